"""The options of `trainwiz` and `trainwiz plan`: of the settings, and of the run itself; their help."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from trainwiz.core.config.setting import Setting, ValueKind
from trainwiz.core.config.settings import REQUEST_SETTINGS, all_settings
from trainwiz.core.language import LANGUAGES, mark, tr

if TYPE_CHECKING:
    from trainwiz.core.plan.refine import RefineTier


# Tiers: how exactly memory is estimated, as the user asks for it. Imports nothing heavy: the wizard's first frame waits.

ENVIRONMENT = "TRAINWIZ_TIER"
TIERS = ("analytic", "layers", "full")


def wanted_tier(asked: str | None, otherwise: RefineTier) -> RefineTier:
    """The tier that was asked for by option, else by TRAINWIZ_TIER, else `otherwise`. UsageError for another word."""
    tier = asked or os.environ.get(ENVIRONMENT) or otherwise
    if tier not in TIERS:
        from trainwiz.tui.choices import checked

        checked(ENVIRONMENT, tier, TIERS)
    return cast("RefineTier", tier)


# What a command takes; the choices of `trainwiz` and `trainwiz plan`: those of settings, and what is said of the run itself.

Group = Literal["what", "how", "where", "run", "modes"]
Kind = ValueKind | Literal["repeated"]

TITLES: dict[Group, str] = {
    "what": mark("Model, data and training"),
    "how": mark("Computation"),
    "where": mark("Machine and GPUs"),
    "run": mark("The run"),
    "modes": mark("Modes"),
}


class Option(NamedTuple):
    """An option of a command, or an argument."""

    synopsis: str
    """As it is written: "--now", "--every S"; of arguments "RUN", "[WHAT]" where it may be left out, "RUN..." for several."""
    help: str
    kind: Kind = "text"
    default: Any = None
    """Ellipsis: an option that has to be given."""
    least: float | None = None
    """Of a number; None: it is above 0."""
    most: float = math.inf
    group: Group = "run"
    key: str | None = None
    """The RunConfig key path that it sets; without one it is handled by name."""
    values: tuple[str, ...] = ()
    """Those that there are."""
    called: str = ""
    """The parameter of a function that gets it, where that is not the name of the option or argument."""
    bare: str = ""
    """The value of an option where none follows."""
    follows: str = ""
    """How a word behind the option begins that is its value."""

    @property
    def is_option(self) -> bool:
        return self.synopsis.startswith("--")

    @property
    def flag(self) -> str:
        return self.synopsis.partition(" ")[0].rstrip(",")

    @property
    def name(self) -> str:
        return self.called or self.flag.strip("-[].").replace("-", "_").lower()

    @property
    def metavar(self) -> str:
        return self.synopsis.partition(" ")[2] if self.is_option else self.synopsis.strip("[]")

    @property
    def is_flag(self) -> bool:
        return self.kind == "switch" or (self.is_option and not self.metavar)

    @property
    def is_list(self) -> bool:
        return self.kind == "repeated" or self.metavar.endswith("...")

    @property
    def is_required(self) -> bool:
        return self.default is ... or not (self.is_option or self.synopsis.startswith("["))

    @property
    def absent(self) -> Any:
        """Its value where it is not given."""
        return [] if self.is_list else False if self.is_flag else self.default


def off(flag: str) -> str:
    return f"--no-{flag.removeprefix('--')}"


def one_of(flag: str, values: tuple[str, ...]) -> str:
    return f"{flag} {{{','.join(values)}}}"


def option_of(setting: Setting) -> Option:
    values = ("auto", *setting.values) if setting.values and setting.may_be_none else setting.values
    kind: Kind = "text" if values else setting.kind
    synopsis = f"{setting.flag}, {off(setting.flag)}" if kind == "switch" else setting.option
    return Option(
        one_of(setting.flag, values) if values else synopsis,
        setting.says,
        kind,
        group=setting.option_group,
        key=None if setting in REQUEST_SETTINGS else setting.key,
        values=values,
    )


OPTIONS: tuple[Option, ...] = (
    Option("--yes", mark("Start without asking (headless).")),
    *(option_of(setting) for setting in all_settings() if setting.option),
    Option("--set KEY=VALUE", mark("Any other setting, by key; can be repeated."), "repeated", group="what"),
    Option(
        "--resume [auto|CHECKPOINT]",
        mark("Resume the run in --output-dir from CHECKPOINT; auto: the newest."),
        bare="auto",
    ),
    Option("--dry-run", mark("Write the run folder without starting the run.")),
    Option("--detach", mark("Start, print the run folder and exit.")),
    Option(
        one_of("--tier", TIERS),
        mark("Memory estimate before the start: analytic is instant, full is the most accurate."),
        values=TIERS,
    ),
    Option("--json", mark("Print JSON instead of text.")),
    Option("--plain", mark("Plain lines: no progress bar, no color.")),
    Option("--force", mark("Start despite plan errors (recorded in the run).")),
    Option("--debug", mark("Show the traceback of an error.")),
    Option(one_of("--lang", LANGUAGES), mark("Language of the output."), values=LANGUAGES),
    Option(
        "--smoke", mark("The same run with a tiny model and sample data, on this machine, in a minute."), group="modes"
    ),
    Option("--dev-run", mark("A few steps of the real model and data."), group="modes"),
    Option("--overfit N", mark("Train on the same N batches again and again."), "integer", group="modes"),
    Option(
        "--benchmark N",
        mark("Measure N steps of the real model and data and compare them with the plan; saves nothing."),
        "integer",
        group="modes",
    ),
    Option("--trace-steps N", mark("Write a profiler trace of N steps."), "integer", group="modes"),
)

BY_NAME: dict[str, Option] = {option.name: option for option in OPTIONS}
OF_COMMANDS: dict[str, str] = {option.key: option.flag for option in OPTIONS if option.key}
"""Key path -> the option that sets it, as a finding names it in a command."""
_PLACE = re.compile(r"`[^`]*`|(?:--set )?(?<![\w./-])([a-z]+(?:\.\w+)+)|(--[a-z][a-z-]+)(?: [A-Z]{1,8}\b)?")
"""A command in backquotes, which stays as it is; a key path; an option with its metavar."""


def named_by(text: str, names: Mapping[str, str]) -> str:
    """`text` with the key paths and options in it as the reader meets them; what `names` does not hold stays."""

    def said(place: re.Match[str]) -> str:
        key = place[1] or place[2] or ""
        mapping, _, entry = key.rpartition(".")
        if key not in names and mapping in names:
            return f"{names[mapping]} ({entry})"
        return names.get(key, place[0])

    return _PLACE.sub(said, text)


# The help of `trainwiz` and `trainwiz plan`, made from the table of choices. Imports nothing heavy.

USAGE = mark("""Usage: trainwiz [OPTIONS]
       trainwiz COMMAND ...

From "which GPU do I have" to a healthy training run, in a terminal.

  trainwiz                                 the wizard
  trainwiz --profile NAME --yes            train without questions (headless)
  trainwiz plan --profile NAME             preview only; writes nothing
  trainwiz monitor                         watch the runs on this machine

Commands (details: trainwiz COMMAND --help):""")

PLAN_USAGE = mark(
    "Usage: trainwiz plan [OPTIONS]\n\nPreview a run: batch, memory, disk, time, findings, and where "
    "each value comes from.\nNothing is written. Errors are shown, but the exit code is 0: the plan may be for "
    "another machine."
)

FIT_USAGE = mark("""Usage: trainwiz fit --dataset FILE [--until 08:00 | --hours 6 | --budget 5EUR] [OPTIONS]

List the models that fit this machine, or --gpu, with this dataset: training method, time, cost, and how many epochs fit
into the time; best first. In a terminal, a row can be opened in the wizard. Nothing is written.""")

BENCH_USAGE = mark("""Usage: trainwiz bench [OPTIONS]

Measure a few real steps of a plan on this machine: time, memory, and the largest micro-batch that fits.
Takes at most 60 seconds and keeps only the result, which the next plan uses
("measured here"). The weights are random, so nothing is downloaded.""")

EXIT_CODES = mark(
    "Exit codes: 0 finished, 1 training failed, 2 invalid usage, 3 cannot run on this machine, 130 stopped by you."
)

DATA_USAGE = mark("""Usage: trainwiz data show DATA --model MODEL [--row N] [OPTIONS]

Show a row as the model reads it: its tokens, who speaks, and which tokens are trained on.
Nothing is written and nothing starts.""")

SAVE_USAGE = mark("""Usage: trainwiz profiles save NAME [--extends PROFILE] [OPTIONS]

Save options as your own profile in your configuration folder. Existing profiles are never overwritten.""")

COMMON: tuple[tuple[str, str], ...] = (
    ("--lang {en,zh}", mark("Language of the output.")),
    ("--debug", mark("Show the traceback of an error.")),
    ("--help", mark("Print this help.")),
)
"""What every command takes."""


def taking(flags: str) -> tuple[Option, ...]:
    return tuple(option for option in OPTIONS if option.flag in flags.split())


RUN_ONLY = "--yes --resume --dry-run --detach --plain --force"
PLAN_OPTIONS = tuple(option for option in OPTIONS if option.flag not in RUN_ONLY.split())
MACHINE_FIELDS: Mapping[str, str] = {
    "gpu": "gpu",
    "num_gpus": "num_gpus",
    "ram": "ram_bytes",
    "gpu_memory": "gpu_memory_bytes",
    "tflops": "tflops",
    "fp32_tflops": "fp32_tflops",
    "bandwidth": "bandwidth",
    "capability": "capability",
}
"""Options that plan for another machine, as findings name them -> attributes of PlanRequest."""
OTHER_MACHINE = tuple(BY_NAME[name].flag for name in MACHINE_FIELDS)
BENCH_OPTIONS = tuple(
    option
    for option in OPTIONS
    if (option in PLAN_OPTIONS or option.flag == "--force")
    and option.flag not in (*OTHER_MACHINE, "--tier", "--trace-steps")
)
SHOWN = "--json --debug --lang"
SAVE_OPTIONS = tuple(
    option
    for option in PLAN_OPTIONS
    if (option.group in ("what", "how", "where") and option.flag != "--profile") or option.flag in SHOWN.split()
)
FIT_OPTIONS = taking(f"--dataset --task --length --epochs --lora-rank {' '.join(OTHER_MACHINE)} --set --tier {SHOWN}")
DATA_OPTIONS = taking(f"--profile --model --task --length --chat-template --set {SHOWN}")


def help_for(options: tuple[Option, ...]) -> str:
    lines: list[str] = []
    for group, title in TITLES.items():
        entries = lines_of((one.synopsis, one.help) for one in options if one.group == group)
        lines += ["", tr("{title}:", title=tr(title)), *entries] if entries else []
    return "\n".join(lines)


def lines_of(entries: Iterable[tuple[str, str]]) -> list[str]:
    """A list in two columns, the right one translated; a long left side gets a line of its own."""
    # Options and commands are never translated: letters are cells, and the help needs nothing of rich.
    return [
        f"  {left:<30}{tr(right)}" if len(left) <= 28 else f"  {left}\n{'':32}{tr(right)}" for left, right in entries
    ]
