"""The typer application behind `trainwiz`. Each command imports what it needs when it runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from trainwiz.core.language import mark, tr
from trainwiz.tui.cli import command_as_one, replay_without_speed, resume_without_value
from trainwiz.tui.options import (
    BENCH_TAKES,
    FIT_OPTIONS,
    OPTIONS,
    PLAN_OPTIONS,
    bench_help,
    fit_help,
    plan_help,
    root_help,
)
from trainwiz.tui.subcommands import (
    HelpfulCommand,
    data_app,
    explained,
    model_app,
    profiles_app,
    reading,
    runs_app,
    takes_choices,
)


class RootGroup(typer.core.TyperGroup):
    """`trainwiz` itself: help in groups, and `--resume` with or without a value."""

    def get_help(self, ctx: Any) -> str:
        return root_help()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, resume_without_value(args))


app = typer.Typer(
    name="trainwiz", cls=RootGroup, invoke_without_command=True, add_completion=False, rich_markup_mode=None
)

AsJson = Annotated[bool, typer.Option("--json", help=mark("Print JSON instead of text."))]


@app.callback()
@takes_choices(OPTIONS)
def root(ctx: typer.Context, version: bool = typer.Option(False, "--version"), **choices: Any) -> int:
    """The wizard, or with --yes the headless run."""
    if version:
        from trainwiz.core import product_version

        print(f"trainwiz {product_version()}")
        return 0
    if ctx.invoked_subcommand is None:
        from trainwiz.tui.choices import start

        return start(choices)
    given = [option.flag for option in OPTIONS if choices[option.name] and option.flag not in ("--debug", "--lang")]
    if given:
        from trainwiz.core.errors import usage_error

        command = ctx.invoked_subcommand
        raise usage_error(
            "usage",
            given[0],
            tr("Put {flag} after the command: trainwiz {command} {flag} ...", flag=given[0], command=command),
        )
    return 0


@app.command("plan", cls=explained(plan_help))
@takes_choices(PLAN_OPTIONS)
def plan(verbose: bool = typer.Option(False, "--verbose"), **choices: Any) -> int:
    """Show memory, time and every choice of a plan. Nothing is written."""
    from trainwiz.tui.commands.plan import run_plan

    return run_plan(choices, verbose=verbose)


@app.command("fit", cls=explained(fit_help))
@takes_choices(FIT_OPTIONS)
def fit(
    model: Annotated[list[str] | None, typer.Option("--model")] = None,
    until: Annotated[str | None, typer.Option("--until")] = None,
    hours: Annotated[str | None, typer.Option("--hours")] = None,
    budget: Annotated[str | None, typer.Option("--budget")] = None,
    per_hour: Annotated[str | None, typer.Option("--per-hour")] = None,
    best: Annotated[str, typer.Option("--best")] = "largest",
    everything: Annotated[bool, typer.Option("--all")] = False,
    **choices: Any,
) -> int:
    """Find the models that fit the machine, the data and the time limit."""
    from trainwiz.tui.commands.fit import run_fit

    limits = {"--until": until, "--hours": hours, "--budget": budget, "--per-hour": per_hour}
    return run_fit(choices, limits, models=tuple(model or ()), best=best, everything=everything)


@app.command("bench", cls=explained(bench_help))
@takes_choices(BENCH_TAKES)
def bench(
    seconds: Annotated[
        float | None, typer.Option("--seconds", help=mark("Maximum duration in seconds."), min=10, max=600)
    ] = None,
    choose: Annotated[bool, typer.Option("--choose", help=mark("Compare settings with their alternatives."))] = False,
    **choices: Any,
) -> int:
    """Measure a few real steps of a plan on this machine."""
    if choose:
        from trainwiz.tui.commands.bench import run_choose

        return run_choose(choices, limit_s=seconds)
    from trainwiz.tui.commands.bench import run_bench

    return run_bench(choices, limit_s=seconds or 60.0)


WHAT_TO_WATCH = mark("Run name, folder, metrics file, process ID or gpu:0. Default: what is running, or the list.")
REPLAY_HELP = mark("Replay a run that has ended, at SPEED times real time (default: 60).")


@app.command("monitor", cls=reading(replay_without_speed))
def monitor(
    target: Annotated[str | None, typer.Argument(metavar="WHAT", help=WHAT_TO_WATCH)] = None,
    once: Annotated[bool, typer.Option("--once", help=mark("Print the current state once and exit."))] = False,
    as_json: AsJson = False,
    plain: Annotated[
        bool, typer.Option("--plain", help=mark("Plain lines only, for pipes and screen readers."))
    ] = False,
    every: Annotated[
        float | None,
        typer.Option("--every", metavar="S", help=mark("Seconds between readings (default: 1; with --plain: 5).")),
    ] = None,
    readonly: Annotated[bool, typer.Option("--readonly", help=mark("Read-only: no key changes the run."))] = False,
    replay: Annotated[str | None, typer.Option("--replay", metavar="SPEED", help=REPLAY_HELP)] = None,
) -> int:
    """Monitor training: a run, the folder of another tool, or a process."""
    from trainwiz.tui.commands.monitor import run_monitor

    return run_monitor(
        target, once=once, as_json=as_json, plain=plain, readonly=readonly, interval_s=every, replay=replay
    )


@app.command("hardware", cls=HelpfulCommand)
def hardware(
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help=mark(
                "Benchmark this machine for a few seconds and save the result, for better time estimates in plans."
            ),
        ),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Show the hardware of this machine: GPUs, cores, RAM, disk and measured performance."""
    from trainwiz.tui.commands.hardware import run_hardware

    return run_hardware(as_json=as_json, measure=measure)


@app.command("doctor", cls=HelpfulCommand)
def doctor(as_json: AsJson = False) -> int:
    """Show what is missing on this machine, which feature needs it, and how to get it."""
    from trainwiz.tui.commands.hardware import run_doctor

    return run_doctor(as_json=as_json)


@app.command("completion", cls=HelpfulCommand)
def completion(shell: Annotated[str, typer.Argument(metavar="SHELL", help=mark("bash, zsh or fish."))]) -> int:
    """Print the completion script of a shell: commands, options, profiles, runs and GPUs."""
    from trainwiz.tui.commands.completion import run_completion

    return run_completion(shell)


WHAT_SCHEMA = mark("profile (default), run, plan, fit, diagnose, monitor, runs-list, runs-show, hardware or failure.")


@app.command("schema", cls=HelpfulCommand)
def schema(
    what: Annotated[str, typer.Argument(metavar="WHAT", help=WHAT_SCHEMA)] = "profile",
) -> int:
    """Print a JSON schema: of a profile, of run.yaml, or of the output of a command."""
    from trainwiz.tui.commands.agent_docs import run_schema

    return run_schema(what)


@app.command("agent-docs", cls=HelpfulCommand)
def agent_docs() -> int:
    """Print a reference for programs: commands, JSON schemas, exit codes, recipes."""
    from trainwiz.tui.commands.agent_docs import run_agent_docs

    return run_agent_docs()


@app.command("mcp", cls=HelpfulCommand)
def mcp(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER",
            help=mark("Folder of runs and data; paths outside it are refused. Default: the current folder."),
        ),
    ] = ".",
    allow_start: Annotated[bool, typer.Option("--allow-start", help=mark("Offer a tool that starts runs."))] = False,
    allow_stop: Annotated[bool, typer.Option("--allow-stop", help=mark("Offer a tool that stops runs."))] = False,
) -> int:
    """Serve plan, fit, diagnose, runs and monitor to an agent over stdio (MCP)."""
    from trainwiz.tui.commands.mcp_server import run_mcp

    return run_mcp(folder, allow_start=allow_start, allow_stop=allow_stop)


WHAT_TO_DIAGNOSE = mark("Run name or folder, log file, output folder of a Trainer, or - to read a log from stdin.")


@app.command("diagnose", cls=HelpfulCommand)
def diagnose(
    what: Annotated[str, typer.Argument(metavar="WHAT", help=WHAT_TO_DIAGNOSE)], as_json: AsJson = False
) -> int:
    """Diagnose why training ended: cause, evidence and fixes."""
    from trainwiz.tui.commands.diagnose import run_diagnose

    return run_diagnose(what, as_json=as_json)


WHAT_TO_IMPORT = mark(
    "TrainingArguments (Python, YAML, JSON), an accelerate config, a DeepSpeed JSON, a launch script, a quoted "
    "launch command, or - for stdin. Several are merged."
)


@app.command("import", cls=reading(command_as_one))
def import_files(
    given: Annotated[list[str] | None, typer.Argument(metavar="FILE...", help=WHAT_TO_IMPORT)] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help=mark("Profile name. Default: from the file name."))
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help=mark("Overwrite your profile of that name."))] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help=mark("Show the report without writing a profile."))
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Create a profile from existing settings and report what became of each."""
    from trainwiz.tui.commands.import_files import run_import

    return run_import(given or [], name=name, replace=replace, dry_run=dry_run, as_json=as_json)


@app.command("export", cls=HelpfulCommand)
def export(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help=mark("Run name, the start of it, or the run folder (--dry-run creates one).")
        ),
    ],
    script: Annotated[bool, typer.Option("--script", help=mark("The launch command of each node."))] = False,
    slurm: Annotated[bool, typer.Option("--slurm", help=mark("A complete sbatch file."))] = False,
    main: Annotated[
        str | None, typer.Option("--main", metavar="HOST:PORT", help=mark("Address of node 0, for --script."))
    ] = None,
    account: Annotated[str | None, typer.Option("--account", metavar="NAME", help=mark("Slurm account."))] = None,
    partition: Annotated[str | None, typer.Option("--partition", metavar="NAME", help=mark("Slurm partition."))] = None,
    qos: Annotated[str | None, typer.Option("--qos", metavar="NAME", help=mark("Slurm quality of service."))] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="D-HH:MM:SS", help=mark("Time limit. Default: from the plan, with a margin.")),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help=mark("Output file; default: print to the terminal."))
    ] = None,
) -> int:
    """Print the launch commands for several nodes, or an sbatch file for a Slurm cluster."""
    from trainwiz.tui.commands.export import run_export

    return run_export(
        run,
        script=script,
        slurm=slurm,
        main=main,
        account=account,
        partition=partition,
        qos=qos,
        time=time,
        output=output,
    )


app.add_typer(data_app, name="data")
app.add_typer(model_app, name="model")
app.add_typer(profiles_app, name="profiles")
app.add_typer(runs_app, name="runs")
