"""The help of `trainwiz` and `trainwiz plan`, made from the table of choices. Imports nothing heavy."""

from __future__ import annotations

from trainwiz.core.language import mark, tr
from trainwiz.tui.options import OPTIONS, TITLES, Option

COMMANDS: dict[str, str] = {
    "plan": mark("Show memory, time and every choice for this machine or another; write nothing."),
    "bench": mark("Measure a few real steps of a plan here, at most a minute; the next plan uses them."),
    "monitor": mark("Watch a training, also of other tools: loss, GPU, memory, log."),
    "diagnose": mark("Say why a training ended, from its run folder or any log: cause, evidence, remedies."),
    "import": mark("Make a profile of files that you have: TrainingArguments, accelerate, DeepSpeed, launch commands."),
    "export": mark("Print what starts a run on several machines, or the sbatch file of a Slurm cluster."),
    "profiles": "list, show, use, current, diff, save, validate.",
    "runs": "list, show, stop, resume, join, compare, remove.",
    "hardware": mark("Show what this machine is."),
    "doctor": mark("Show what is missing here, and for what."),
}

USAGE = mark("""Usage: trainwiz [CHOICES]
       trainwiz COMMAND ...

From "which GPU do I have" to a healthy training run, in a terminal.

  trainwiz                                 the wizard
  trainwiz --profile NAME --yes            train without questions (headless)
  trainwiz plan --profile NAME             look first; writes nothing
  trainwiz monitor                         watch what trains here

Commands (trainwiz COMMAND --help says more):""")

PLAN_USAGE = mark("""Usage: trainwiz plan [CHOICES]

Show what a run would be: batch, memory, disk, time, findings, and who chose each value.
Nothing is written. Errors are shown and the exit code is 0: the plan may be for another machine.""")

BENCH_USAGE = mark("""Usage: trainwiz bench [CHOICES]

Measure a few real steps of a plan on this machine: time, memory, and the largest micro-batch that fits.
It takes at most 60 seconds and leaves nothing behind but its result, which the next plan uses
("measured here"). The weights are random, so nothing is downloaded.""")

EXIT_CODES = mark(
    "Exit codes: 0 finished, 1 the training failed, 2 invalid usage, 3 cannot run here, 130 stopped by you."
)

SAVE_USAGE = mark("""Usage: trainwiz profiles save NAME [--extends PROFILE] [CHOICES]

Keep choices as a profile of your own, in your folder for configuration. Existing profiles are never overwritten.""")

COMMON: tuple[tuple[str, str], ...] = (
    ("--lang {en,zh}", mark("Language of the texts.")),
    ("--debug", mark("Show the traceback of a failure.")),
    ("--help", mark("Print this text.")),
)
"""What every command takes."""

PLAN_OPTIONS = tuple(option for option in OPTIONS if option.command == "both")
OTHER_MACHINE = ("--gpu", "--num-gpus", "--ram", "--gpu-memory", "--tflops", "--capability")
BENCH_TAKES = tuple(option for option in OPTIONS if option in PLAN_OPTIONS or option.flag == "--force")
"""What bench reads; it refuses the figures of another machine in a sentence of its own."""
BENCH_OPTIONS = tuple(
    option for option in BENCH_TAKES if option.flag not in (*OTHER_MACHINE, "--tier", "--trace-steps")
)
SAVE_OPTIONS = tuple(
    option
    for option in PLAN_OPTIONS
    if (option.group in ("what", "how", "where") and option.flag != "--profile")
    or option.flag in ("--json", "--debug", "--lang")
)


def root_help() -> str:
    """The text of `trainwiz --help`."""
    commands = [line for name, text in COMMANDS.items() for line in help_lines(name, tr(text))]
    common = help_lines("--version", tr("Print the version.")) + help_lines("--help", tr("Print this text."))
    return "\n".join([tr(USAGE), *commands, help_for(OPTIONS), "", *common, "", tr(EXIT_CODES)])


def plan_help() -> str:
    """The text of `trainwiz plan --help`."""
    own = help_lines("--verbose", tr("All choices with their reasons."))
    return "\n".join([tr(PLAN_USAGE), help_for(PLAN_OPTIONS), "", *own])


def bench_help() -> str:
    """The text of `trainwiz bench --help`."""
    own = help_lines("--seconds N", tr("At most this long, 10 to 600 (60; with --choose 240)."))
    own += help_lines(
        "--choose",
        tr("Measure attention, optimizer, bf16 and torch.compile against the plan's own, and say what to set."),
    )
    return "\n".join([tr(BENCH_USAGE), help_for(BENCH_OPTIONS), "", *own])


def save_help() -> str:
    """The text of `trainwiz profiles save --help`."""
    own = help_lines("--extends PROFILE", tr("Build on this profile; without it, on the one in use here."))
    return "\n".join([tr(SAVE_USAGE), "", *own, help_for(SAVE_OPTIONS)])


def help_for(options: tuple[Option, ...]) -> str:
    """The choices in groups, one line each."""
    lines: list[str] = []
    for group, title in TITLES.items():
        entries = [line for one in options if one.group == group for line in help_lines(one.synopsis, tr(one.help))]
        lines += ["", tr("{title}:", title=tr(title)), *entries] if entries else []
    return "\n".join(lines)


def help_lines(left: str, right: str, width: int = 30) -> list[str]:
    """One entry of a two-column list; a long left side gets a line of its own."""
    # Options and commands are never translated: letters are cells, and the help needs nothing of rich.
    if len(left) <= width - 2:
        return [f"  {left:<{width}}{right}"]
    return [f"  {left}", f"  {' ' * width}{right}"]
