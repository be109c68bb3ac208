"""Choices: what the command line asked for, as one checked value; and what starts by it."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.config.request import PlanRequest, RunMode
from trainwiz.core.defaults import NO_PROFILE, default_profile, profile_in_use
from trainwiz.core.errors import Finding, UsageError, usage_error
from trainwiz.core.language import mark, tr
from trainwiz.core.profile.profile import parse_size
from trainwiz.core.text import plain_text
from trainwiz.tui.options import BY_NAME, MACHINE_FIELDS, OPTIONS, Option
from trainwiz.tui.output import is_terminal
from trainwiz.tui.text import parse_number, parse_whole_number

EXCLUSIVE = (
    ("smoke", "dev_run", "overfit", "benchmark"),
    ("target_tokens", "target_real_tokens", "target_samples"),
    # GPUs of this machine, or another machine.
    ("gpus", "gpu"),
    # A new folder is written, or a run begins or goes on in one.
    ("resume", "dry_run"),
    ("detach", "dry_run"),
)
"""Of each of these at most one option is taken."""
REQUEST_FIELDS: Mapping[str, str] = {
    **MACHINE_FIELDS,
    **{name: name for name in ("trace_steps", "output_dir", "name")},
    "overfit": "overfit_batches",
    "benchmark": "benchmark_steps",
}
"""Option -> the field of a PlanRequest that it is the value of."""
MODES: dict[str, RunMode] = {"smoke": "smoke", "dev_run": "dev-run", "benchmark": "benchmark", "overfit": "overfit"}


@dataclass(frozen=True, slots=True)
class Choices:
    request: PlanRequest
    yes: bool = False
    dry_run: bool = False
    detach: bool = False
    json: bool = False
    plain: bool = False
    tier: str | None = None
    """How exactly memory is estimated: one of `TIERS`; None leaves it to the command."""
    resume: str | None = None
    """None, "auto" (the newest complete checkpoint) or the name or path of a checkpoint."""
    given: tuple[str, ...] = ()
    """The options that were written, as flags."""

    @property
    def headless(self) -> bool:
        return self.yes or self.dry_run or self.resume is not None


def parse_choices(values: Mapping[str, Any]) -> Choices:
    """`values` maps names of options to what was typed: text, or whether of a flag."""
    parsed, findings = read_values(OPTIONS, values)
    overrides = overrides_from(parsed, findings)
    findings += contradictions(parsed)
    if findings:
        raise UsageError(findings)
    simple = ("yes", "dry_run", "detach", "json", "plain", "tier", "resume")
    return Choices(
        request=request_from(parsed, overrides),
        given=tuple(option.flag for option in OPTIONS if option.name in parsed),
        **{name: parsed[name] for name in simple if name in parsed},
    )


def read_values(options: Iterable[Option], values: Mapping[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """The values of those that were written, and a finding for each that cannot be read. `--no-...` of a switch counts as
    written, an absent flag does not."""
    parsed: dict[str, Any] = {}
    findings = []
    for option in options:
        value = values.get(option.name)
        if value is None or value == [] or (value is False and option.kind != "switch"):
            continue
        try:
            parsed[option.name] = value if option.is_flag or option.is_list else parse_value(option, str(value))
        except ValueError as error:
            findings.append(wrong(option.flag, f"{error}"))
    return parsed, findings


def choices_of(named: Mapping[str, Any], options: Sequence[Option]) -> Choices:
    """The choices of a Python program, by the names and values that it has. Raises UsageError as `parse_choices`."""
    known = tuple(option.name for option in options if option.flag not in ("--json", "--debug", "--lang"))
    for name in named:
        checked(plain_text(name, 40), name, tuple(difflib.get_close_matches(name, known)) or known)
    return parse_choices({name: _as_typed(value, BY_NAME[name].is_list) for name, value in named.items()})


def assignments(values: Mapping[str, Any]) -> list[str]:
    """As they are written behind --set."""
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items()]


def _as_typed(value: Any, is_list: bool) -> Any:
    if isinstance(value, Mapping):
        return assignments(value)
    if isinstance(value, list | tuple):
        return list(map(str, value)) if is_list else ",".join(map(str, value))
    return value


def parse_value(option: Option, text: str) -> Any:
    """Raises ValueError with a sentence."""
    text = text.strip()
    if not text:
        raise ValueError(tr("a value is required: {option}", option=option.synopsis))
    if option.values:
        return one_of(text, option.values)
    if option.kind == "text":
        return text
    if option.kind == "list":
        return [part.strip() for part in text.split(",") if part.strip()]
    shown = plain_text(text, 40)
    if option.kind == "size":
        bytes_ = parse_size(text)
        if bytes_ is None:
            raise ValueError(tr("{shown} is not a size; examples: 64G, 512M", shown=repr(shown)))
        return bytes_
    parse, words = NUMBERS[option.kind]
    try:
        value = parse(text)
    except ValueError:
        raise ValueError(tr(words, shown=repr(shown))) from None
    if option.least is None and value <= 0:
        raise ValueError(tr("{shown} must be greater than 0", shown=shown))
    if option.least is not None and value < option.least:
        raise ValueError(tr("{name} must be at least {least}", name=shown, least=option.least))
    if value > option.most:
        raise ValueError(tr("{name} must be at most {most}", name=shown, most=option.most))
    return value


NUMBERS: Mapping[str, tuple[Callable[[str], float], str]] = {
    "integer": (parse_whole_number, mark("{shown} is not a whole number")),
    "number": (parse_number, mark("{shown} is not a number")),
}


def one_of(text: str, values: tuple[str, ...]) -> str:
    if text in values:
        return text
    words = tr(
        "{text} is not a valid choice; use {values}", text=repr(plain_text(text, 40)), values=tr(" or ").join(values)
    )
    close = difflib.get_close_matches(text.lower(), values, n=1, cutoff=0.7)
    if close:
        words = tr("{sentence}. Did you mean {near}?", sentence=words, near=close[0])
    raise ValueError(words)


def checked(flag: str, text: str, values: tuple[str, ...]) -> str:
    """Raises UsageError for a word that is none of `values`."""
    try:
        return one_of(text, values)
    except ValueError as error:
        raise UsageError(wrong(flag, str(error))) from None


def overrides_from(parsed: Mapping[str, Any], findings: list[Finding]) -> dict[str, Any]:
    """RunConfig key path -> value; adds a finding for each --set that cannot be read."""
    overrides: dict[str, Any] = {}
    for name, value in parsed.items():
        key = BY_NAME[name].key
        if key is not None:
            overrides[key] = None if value == "auto" and "auto" in BY_NAME[name].values else value
    for assignment in parsed.get("set", ()):
        key, equals, value = assignment.partition("=")
        key, words = key.strip(), ""
        if not equals or not key:
            shown = repr(plain_text(assignment, 60))
            words = tr("{assignment} is not key=value; example: training.seed=7", assignment=shown)
        elif overrides.get(key) is not None:
            words = tr("{key} is also set by its own option; use only one of the two", key=plain_text(key, 60))
        if words:
            findings.append(wrong("--set", words))
        else:
            overrides[key] = value
    return overrides


def contradictions(parsed: Mapping[str, Any]) -> list[Finding]:
    findings = []
    for names in EXCLUSIVE:
        flags = [BY_NAME[name].flag for name in names if name in parsed]
        if len(flags) > 1:
            words = tr("{options} can't be combined; use only one", options=tr(" and ").join(flags))
            findings.append(wrong(flags[-1], words))
    if "resume" in parsed and "output_dir" not in parsed:
        findings.append(wrong("--resume", tr("specify the run folder to resume: --resume --output-dir runs/NAME")))
    return findings


def request_from(parsed: Mapping[str, Any], overrides: dict[str, Any]) -> PlanRequest:
    fields = {field: parsed.get(name) for name, field in REQUEST_FIELDS.items()}
    mode: RunMode = next((mode for name, mode in MODES.items() if name in parsed), "train")
    force = parsed.get("force", False)
    return PlanRequest(profile_of(parsed), overrides, mode, force=force, **fields)


def profile_of(parsed: Mapping[str, Any]) -> str | None:
    """The one asked for; else the profile in use in this folder; else the demo, unless a model or data of one's own was
    named."""
    if "profile" in parsed:
        return None if parsed["profile"] == NO_PROFILE else str(parsed["profile"])
    if "model" in parsed or "dataset" in parsed:
        return profile_in_use(Path.cwd())
    return default_profile(Path.cwd())


def wrong(flag: str, message: str) -> Finding:
    sentence = message if message.endswith(("?", "？")) else tr("{sentence}.", sentence=message)
    return Finding("usage", "error", flag, tr("{flag}: {sentence}", flag=flag, sentence=sentence))


# `trainwiz` without a command: the wizard, or with --yes the headless run.


def start(values: Mapping[str, Any]) -> int:
    """`values` are the choices as they were typed; returns the exit code."""
    choices = parse_choices(values)
    if choices.headless:
        from trainwiz.tui.headless.run import run_headless

        return run_headless(choices)
    refuse_without_yes(choices)
    from trainwiz.tui.commands.wizard import run_wizard

    return run_wizard(choices.request, at_review="--profile" in choices.given, tier=choices.tier)


def refuse_without_yes(choices: Choices) -> None:
    """The wizard needs a terminal and takes no headless options. Raises UsageError."""
    for flag in ("--json", "--plain", "--detach"):
        if flag in choices.given:
            message = tr("{flag} only works in a headless run; add --yes to start one.", flag=flag)
            raise usage_error("needs_yes", flag, message)
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        profile = choices.request.profile or "NAME"
        words = mark("The wizard needs a terminal. Without one, run: trainwiz --profile {profile} --yes")
        raise usage_error("no_terminal", "terminal", tr(words, profile=profile))
