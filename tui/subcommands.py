"""`trainwiz profiles ...` and `trainwiz runs ...`; what commands have in common: help, and choices as options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from trainwiz.core.language import mark, tr
from trainwiz.tui.options import COMMON, DATA_OPTIONS, SAVE_OPTIONS, Option, data_help, help_lines, save_help

# The help of commands with few options of their own, in the reader's language; typer's own is English only.


class HelpfulCommand(typer.core.TyperCommand):
    def get_help(self, ctx: Any) -> str:
        return command_help(ctx)


class HelpfulGroup(typer.core.TyperGroup):
    """A group of commands; each gives the first line of its docstring."""

    def get_help(self, ctx: Any) -> str:
        return group_help(ctx)


def reading(rewritten: Callable[[list[str]], list[str]]) -> type[HelpfulCommand]:
    """A command whose arguments are rewritten before they are read."""

    class Reading(HelpfulCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            return super().parse_args(ctx, rewritten(args))

    return Reading


def explained(by: Callable[[], str]) -> type[typer.core.TyperCommand]:
    """A command that takes choices, with a help of its own in their groups."""

    class Explained(typer.core.TyperCommand):
        def get_help(self, ctx: Any) -> str:
            return by()

    return Explained


def command_help(ctx: Any) -> str:
    """Usage, what it does, its arguments and options. `ctx` is the context of a command."""
    parameters = ctx.command.params
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    options = [one for one in parameters if one.param_type_name == "option" and "--help" not in one.opts]
    names = [one.metavar if one.required else f"[{one.metavar}]" for one in arguments]
    lines = [tr("Usage: {command}", command=" ".join([ctx.command_path, tr("[OPTIONS]"), *names]))]
    lines += ["", tr(said(ctx.command)), ""]
    lines += [line for one in arguments for line in help_lines(one.metavar, tr(one.help or ""))]
    lines += [line for one in options for line in help_lines(synopsis(one), tr(one.help or ""))]
    return "\n".join([*lines, *common_lines()])


def group_help(ctx: Any) -> str:
    group = ctx.command
    commands = [(name, group.get_command(ctx, name)) for name in group.list_commands(ctx)]
    lines = [tr("Usage: {command}", command=f"{ctx.command_path} {tr('COMMAND')} ..."), "", tr(said(group)), ""]
    lines += [line for name, command in commands for line in help_lines(name, tr(said(command)))]
    return "\n".join([*lines, "", *common_lines()])


def said(command: Any) -> str:
    """What a command says of itself: the first paragraph of its docstring."""
    return str(command.help or "").partition("\n\n")[0].replace("\n", " ").strip()


def synopsis(option: Any) -> str:
    """How an option is written: "--every S"."""
    return option.opts[0] if option.is_flag else f"{option.opts[0]} {option.metavar or 'N'}"


def common_lines() -> list[str]:
    return [line for left, right in COMMON for line in help_lines(left, tr(right))]


# The choices of a command line as typer parameters, so that several commands take the same ones.


def takes_choices(options: Sequence[Option]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command one parameter for each choice; it receives them as keyword arguments.

    Values stay text here, so that all wrong ones can be reported together.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.kind is not p.VAR_KEYWORD]
        choices = [choice_parameter(option) for option in options]
        command.__signature__ = inspect.Signature([*own, *choices])  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in [*own, *choices]}
        return command

    return decorate


def choice_parameter(option: Option) -> inspect.Parameter:
    """The typer parameter of one choice; absent values are None."""
    default: Any
    annotation: Any
    if option.kind == "flag":
        default, annotation = typer.Option(False, option.flag), bool
    elif option.kind == "switch":
        both = f"{option.flag}/--no-{option.flag.removeprefix('--')}"
        default, annotation = typer.Option(None, both), bool | None
    elif option.kind == "repeated":
        default, annotation = typer.Option([], option.flag), list[str]
    else:
        default, annotation = typer.Option(None, option.flag), str | None
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


# `trainwiz profiles ...` and `trainwiz runs ...`.

AsJson = Annotated[bool, typer.Option("--json", help=mark("Print JSON instead of text."))]
ProfileName = Annotated[str, typer.Argument(metavar="NAME", help=mark("Name or file of a profile."))]
Run = Annotated[str, typer.Argument(metavar="RUN", help=mark("Name of a run, the start of its name, or its folder."))]

SETTINGS: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "no_args_is_help": False}

profiles_app = typer.Typer(
    help=mark("Hardware profiles: tested settings for one kind of machine."), cls=HelpfulGroup, **SETTINGS
)
runs_app = typer.Typer(help=mark("The runs in ./runs."), cls=HelpfulGroup, **SETTINGS)


data_app = typer.Typer(help=mark("The rows of a run, as the model reads them."), cls=HelpfulGroup, **SETTINGS)


@data_app.command("show", cls=explained(data_help))
@takes_choices(DATA_OPTIONS)
def data_show(
    source: Annotated[str, typer.Argument(metavar="DATA", help=mark("Sample name, file, folder or Hub ID."))],
    row: Annotated[int, typer.Option("--row", metavar="N", min=1)] = 1,
    **choices: Any,
) -> int:
    """Show a row as tokens, and which of them are trained on."""
    from trainwiz.tui.commands.data import run_show

    return run_show(source, choices, row)


@profiles_app.command("list", cls=HelpfulCommand)
def profiles_list(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD...",
            help=mark("Words to search for: GPU, model or task, such as 4090 or lora; default: all profiles."),
        ),
    ] = None,
    guides: Annotated[
        bool, typer.Option("--guides", help=mark("Also list the profiles that follow the guides exactly."))
    ] = False,
    as_json: AsJson = False,
) -> int:
    """List the profiles and which of them fit this machine."""
    from trainwiz.tui.commands.profiles import run_list

    return run_list(as_json=as_json, words=words or [], guides=guides)


@profiles_app.command("show", cls=HelpfulCommand)
def profiles_show(name: ProfileName, as_json: AsJson = False) -> int:
    """Show all values of a profile with their reasons."""
    from trainwiz.tui.commands.profiles import run_show

    return run_show(name, as_json=as_json)


@profiles_app.command("use", cls=HelpfulCommand)
def profiles_use(name: ProfileName) -> int:
    """Make a profile the default for later commands in this folder."""
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
        list[str] | None, typer.Argument(metavar="FILE...", help=mark("Files; default: all profiles."))
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Check profile files; every error is reported with its file and line."""
    from trainwiz.tui.commands.profiles import run_validate

    return run_validate(files or [], as_json=as_json)


@profiles_app.command("save", cls=explained(save_help))
@takes_choices(SAVE_OPTIONS)
def profiles_save(
    name: Annotated[str, typer.Argument(metavar="NAME", help=mark("Name of the new profile."))],
    extends: Annotated[str | None, typer.Option("--extends", metavar="PROFILE")] = None,
    **choices: Any,
) -> int:
    """Save options as your own profile."""
    from trainwiz.tui.choices import parse_choices
    from trainwiz.tui.commands.profiles import run_save

    asked = parse_choices({**choices, "profile": extends})
    return run_save(name, request=asked.request, extends=extends, as_json=asked.json)


@runs_app.command("list", cls=HelpfulCommand)
def runs_list(
    as_json: AsJson = False,
    everywhere: Annotated[bool, typer.Option("--all", help=mark("Also list runs in other folders."))] = False,
) -> int:
    """List the runs in ./runs, newest first."""
    from trainwiz.tui.commands.runs import run_list

    return run_list(as_json=as_json, everywhere=everywhere)


@runs_app.command("show", cls=HelpfulCommand)
def runs_show(run: Run, as_json: AsJson = False) -> int:
    """Show one run: state, progress, settings, how it ended."""
    from trainwiz.tui.commands.runs import run_show

    return run_show(run, as_json=as_json)


@runs_app.command("stop", cls=HelpfulCommand)
def runs_stop(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help=mark("One or more runs."))],
    now: Annotated[bool, typer.Option("--now", help=mark("Stop immediately, without a checkpoint."))] = False,
) -> int:
    """Finish the current step, save a checkpoint and stop."""
    from trainwiz.tui.commands.runs import run_stop

    return run_stop(*runs, now=now)


@runs_app.command("resume", cls=HelpfulCommand)
def runs_resume(
    run: Run,
    detach: Annotated[bool, typer.Option("--detach", help=mark("Print the run folder and exit."))] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept",
            metavar="PART",
            help=mark(
                "Resume although this differs from what the run began with: data, model, tokenizer, batch, "
                "processes, training, engine or all."
            ),
        ),
    ] = None,
) -> int:
    """Resume from the newest complete checkpoint."""
    from trainwiz.tui.commands.runs import run_resume

    return run_resume(run, detach=detach, accept=accept or [])


@runs_app.command("join", cls=HelpfulCommand)
def runs_join(
    run: Run,
    node: Annotated[
        int | None,
        typer.Option(
            "--node", metavar="N", help=mark("Node number of this machine, from 0; set automatically in Slurm.")
        ),
    ] = None,
    main: Annotated[
        str | None, typer.Option("--main", metavar="HOST:PORT", help=mark("Address of node 0 (default port: 29500)."))
    ] = None,
) -> int:
    """Join a run on several nodes: this machine is node N."""
    from trainwiz.tui.commands.runs import run_join

    return run_join(run, node=node, main=main)


@runs_app.command("compare", cls=HelpfulCommand)
def runs_compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help=mark("Two or more runs."))],
    as_json: AsJson = False,
) -> int:
    """Show how runs differ in settings and results."""
    from trainwiz.tui.commands.runs import run_compare

    return run_compare(runs, as_json=as_json)


@runs_app.command("remove", cls=HelpfulCommand)
def runs_remove(
    run: Run, yes: Annotated[bool, typer.Option("--yes", help=mark("Do not ask for confirmation."))] = False
) -> int:
    """Delete a run folder, after confirmation."""
    from trainwiz.tui.commands.runs import run_remove

    return run_remove(run, yes=yes)


model_app = typer.Typer(
    help=mark("A finished model: chat with it, merge, describe, export and publish it."), cls=HelpfulGroup, **SETTINGS
)
ModelPath = Annotated[str, typer.Argument(metavar="PATH", help=mark("A run, or a folder with a model or an adapter."))]
Base = Annotated[
    str | None,
    typer.Option("--base", metavar="FOLDER", help=mark("Base model of the adapter, if it has moved.")),
]


def _speech(word: str, says: str) -> None:
    """`trainwiz model chat`, `fill` and `translate`, which take the same options."""

    @model_app.command(word, cls=HelpfulCommand, help=says)
    def speech(
        path: ModelPath,
        prompt: Annotated[
            list[str] | None,
            typer.Option("--prompt", metavar="TEXT", help=mark("Ask this and exit; can be repeated, one turn each.")),
        ] = None,
        compare: Annotated[
            bool, typer.Option("--compare", help=mark("Also ask the base model, side by side."))
        ] = False,
        plain: Annotated[
            bool, typer.Option("--plain", help=mark("Continue the text, without a chat template."))
        ] = False,
        system: Annotated[str | None, typer.Option("--system", metavar="TEXT", help=mark("System prompt."))] = None,
        max_tokens: Annotated[
            int,
            typer.Option(
                "--max-tokens", metavar="N", min=1, help=mark("Maximum answer length in tokens (default: 512).")
            ),
        ] = 512,
        temperature: Annotated[
            float | None,
            typer.Option(
                "--temperature", metavar="T", min=0, help=mark("0: greedy; default: the model's own settings.")
            ),
        ] = None,
        seed: Annotated[int | None, typer.Option("--seed", metavar="N", help=mark("Sampling seed."))] = None,
        bits: Annotated[
            int | None,
            typer.Option(
                "--bits",
                metavar="N",
                help=mark("Load the adapter's base model in 4, 8 or 16 bits; default: as it was trained."),
            ),
        ] = None,
        base: Base = None,
        source_language: Annotated[
            str | None, typer.Option("--source-language", metavar="CODE", help=mark("For multilingual models."))
        ] = None,
        target_language: Annotated[
            str | None, typer.Option("--target-language", metavar="CODE", help=mark("For multilingual models."))
        ] = None,
        cpu: Annotated[bool, typer.Option("--cpu", help=mark("Do not use a GPU."))] = False,
        as_json: AsJson = False,
    ) -> int:
        from trainwiz.tui.commands.model import SpeechOptions, run_speech

        options = SpeechOptions(
            tuple(prompt or ()), compare, plain, system, max_tokens, temperature, seed, bits, base,
            source_language, target_language, cpu, as_json,
        )  # fmt: skip
        return run_speech(word, path, options)


_speech("chat", mark("Chat with a causal language model, in its own chat template."))
_speech("fill", mark("Fill in masks with a masked language model."))
_speech("translate", mark("Run a sequence-to-sequence model on source texts."))


To = Annotated[
    str | None, typer.Option("--to", metavar="FILE", help=mark("Output file; default: print to the terminal."))
]


@model_app.command("merge", cls=HelpfulCommand)
def model_merge(
    path: ModelPath,
    to: Annotated[str, typer.Option("--to", metavar="FOLDER", help=mark("A new folder for the full model."))],
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="T", help=mark("bf16, fp16 or fp32; default: that of the base model.")),
    ] = None,
    base: Base = None,
    as_json: AsJson = False,
) -> int:
    """Merge an adapter into its base model, check the result, and write a full model."""
    from trainwiz.tui.commands.model_files import run_merge

    return run_merge(path, to, dtype=dtype, base=base, as_json=as_json)


@model_app.command("card", cls=HelpfulCommand)
def model_card_command(path: ModelPath, to: To = None) -> int:
    """Print the model card (README.md) from the records of the run."""
    from trainwiz.tui.commands.model_files import run_card

    return run_card(path, to)


@model_app.command("export", cls=HelpfulCommand)
def model_export(
    path: ModelPath,
    ollama: Annotated[
        bool, typer.Option("--ollama", help=mark("A Modelfile: template, stop tokens, parameters."))
    ] = False,
    vllm: Annotated[bool, typer.Option("--vllm", help=mark("Command that serves it with vLLM."))] = False,
    gguf: Annotated[
        bool,
        typer.Option(
            "--gguf",
            help=mark("GGUF for llama.cpp: with --to FILE.gguf the file itself, else the command that converts."),
        ),
    ] = False,
    mlx: Annotated[bool, typer.Option("--mlx", help=mark("Command that converts it for Apple's MLX."))] = False,
    merged: Annotated[
        str | None,
        typer.Option("--merged", metavar="FOLDER", help=mark("Folder of the merged model, existing or future.")),
    ] = None,
    to: To = None,
) -> int:
    """Print what another program needs to run the model, and the conditions to meet first."""
    from trainwiz.tui.commands.model_files import run_model_export

    targets: dict[Any, bool] = {"ollama": ollama, "vllm": vllm, "gguf": gguf, "mlx": mlx}
    return run_model_export(path, targets=targets, to=to, merged=merged)


@model_app.command("push", cls=HelpfulCommand)
def model_push(
    path: ModelPath,
    repo: Annotated[str, typer.Argument(metavar="REPO", help=mark("OWNER/NAME on the Hugging Face Hub."))],
    public: Annotated[bool, typer.Option("--public", help=mark("Make it public; default: private."))] = False,
    yes: Annotated[bool, typer.Option("--yes", help=mark("Do not ask for confirmation."))] = False,
    base: Annotated[
        str | None, typer.Option("--base", metavar="OWNER/NAME", help=mark("Hub ID of the adapter's base model."))
    ] = None,
) -> int:
    """Upload a model and its model card to the Hub in one commit."""
    from trainwiz.tui.commands.model_files import run_push

    return run_push(path, repo, public=public, yes=yes, base=base)
