"""`trainwiz profiles ...` and `trainwiz runs ...`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from trainwiz.core.language import mark
from trainwiz.tui.choice_parameters import takes_choices
from trainwiz.tui.command_help import HelpfulCommand, HelpfulGroup
from trainwiz.tui.help import SAVE_OPTIONS, save_help

AsJson = Annotated[bool, typer.Option("--json", help=mark("JSON instead of text."))]
ProfileName = Annotated[str, typer.Argument(metavar="NAME", help=mark("Name of a profile, or its file."))]
Run = Annotated[str, typer.Argument(metavar="RUN", help=mark("Name of a run, the start of it, or its folder."))]

SETTINGS: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "no_args_is_help": False}

profiles_app = typer.Typer(
    help=mark("Hardware profiles: tested settings for one kind of machine."), cls=HelpfulGroup, **SETTINGS
)
runs_app = typer.Typer(help=mark("The runs in ./runs."), cls=HelpfulGroup, **SETTINGS)


@profiles_app.command("list", cls=HelpfulCommand)
def profiles_list(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD...", help=mark("Of a card, model or task, like 4090 or lora; none: all profiles.")
        ),
    ] = None,
    guides: Annotated[bool, typer.Option("--guides", help=mark("Also the guides to the letter."))] = False,
    as_json: AsJson = False,
) -> int:
    """List the profiles, and which of them fit this machine."""
    from trainwiz.tui.commands.profiles import run_list

    return run_list(as_json=as_json, words=words or [], guides=guides)


@profiles_app.command("show", cls=HelpfulCommand)
def profiles_show(name: ProfileName, as_json: AsJson = False) -> int:
    """Show all values of a profile with their reasons."""
    from trainwiz.tui.commands.profiles import run_show

    return run_show(name, as_json=as_json)


@profiles_app.command("use", cls=HelpfulCommand)
def profiles_use(name: ProfileName) -> int:
    """Make a profile the default of later commands in this folder."""
    from trainwiz.tui.commands.profiles import run_use

    return run_use(name)


@profiles_app.command("current", cls=HelpfulCommand)
def profiles_current(as_json: AsJson = False) -> int:
    """Show the profile in use in this folder."""
    from trainwiz.tui.commands.profiles import run_current

    return run_current(as_json=as_json)


@profiles_app.command("diff", cls=HelpfulCommand)
def profiles_diff(
    first: Annotated[str, typer.Argument(metavar="A", help=mark("A profile."))],
    second: Annotated[str, typer.Argument(metavar="B", help=mark("Another profile."))],
    as_json: AsJson = False,
) -> int:
    """Show where two profiles differ."""
    from trainwiz.tui.commands.profiles import run_diff

    return run_diff(first, second, as_json=as_json)


@profiles_app.command("validate", cls=HelpfulCommand)
def profiles_validate(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE...", help=mark("Files; none: all profiles."))
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Check profile files; every mistake is named with its file and line."""
    from trainwiz.tui.commands.profiles import run_validate

    return run_validate(files or [], as_json=as_json)


class SaveCommand(typer.core.TyperCommand):
    """`trainwiz profiles save`: the choices of a run, in their groups."""

    def get_help(self, ctx: Any) -> str:
        return save_help()


@profiles_app.command("save", cls=SaveCommand)
@takes_choices(SAVE_OPTIONS)
def profiles_save(
    name: Annotated[str, typer.Argument(metavar="NAME", help=mark("Name of the new profile."))],
    extends: Annotated[str | None, typer.Option("--extends", metavar="PROFILE")] = None,
    **choices: Any,
) -> int:
    """Keep choices as a profile of your own."""
    from trainwiz.tui.choices import parse_choices
    from trainwiz.tui.commands.profiles import run_save

    asked = parse_choices({**choices, "profile": extends})
    return run_save(name, request=asked.request, extends=extends, as_json=asked.json)


@runs_app.command("list", cls=HelpfulCommand)
def runs_list(
    as_json: AsJson = False,
    everywhere: Annotated[bool, typer.Option("--all", help=mark("Also runs that lie in other folders."))] = False,
) -> int:
    """List the runs in ./runs, newest first."""
    from trainwiz.tui.commands.runs import run_list

    return run_list(as_json=as_json, everywhere=everywhere)


@runs_app.command("show", cls=HelpfulCommand)
def runs_show(run: Run, as_json: AsJson = False) -> int:
    """Show one run: state, progress, settings, how it ended."""
    from trainwiz.tui.commands.runs_show import run_show

    return run_show(run, as_json=as_json)


@runs_app.command("stop", cls=HelpfulCommand)
def runs_stop(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help=mark("One run or more."))],
    now: Annotated[bool, typer.Option("--now", help=mark("End at once, without a checkpoint."))] = False,
) -> int:
    """Finish the step, save a checkpoint and stop."""
    from trainwiz.tui.commands.runs_stop import run_stop

    return run_stop(*runs, now=now)


@runs_app.command("resume", cls=HelpfulCommand)
def runs_resume(
    run: Run,
    detach: Annotated[bool, typer.Option("--detach", help=mark("Print the folder and leave."))] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept",
            metavar="PART",
            help=mark(
                "Go on although this is not what the run began with: "
                "data, model, tokenizer, batch, processes, training, engine or all."
            ),
        ),
    ] = None,
) -> int:
    """Go on from the newest complete checkpoint."""
    from trainwiz.tui.commands.runs_resume import run_resume

    return run_resume(run, detach=detach, accept=accept or [])


@runs_app.command("join", cls=HelpfulCommand)
def runs_join(
    run: Run,
    node: Annotated[
        int | None, typer.Option("--node", metavar="N", help=mark("Number of this machine, from 0; in Slurm its own."))
    ] = None,
    main: Annotated[
        str | None, typer.Option("--main", metavar="HOST:PORT", help=mark("Where node 0 is reached (port 29500)."))
    ] = None,
) -> int:
    """Train a run of several machines: this one is number N."""
    from trainwiz.tui.commands.runs_join import run_join

    return run_join(run, node=node, main=main)


@runs_app.command("compare", cls=HelpfulCommand)
def runs_compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help=mark("Two runs or more."))],
    as_json: AsJson = False,
) -> int:
    """Show where runs differ, in settings and in results."""
    from trainwiz.tui.commands.runs_compare import run_compare

    return run_compare(runs, as_json=as_json)


@runs_app.command("remove", cls=HelpfulCommand)
def runs_remove(run: Run, yes: Annotated[bool, typer.Option("--yes", help=mark("Do not ask."))] = False) -> int:
    """Delete a run's folder, after asking."""
    from trainwiz.tui.commands.runs_remove import run_remove

    return run_remove(run, yes=yes)
