"""The settings of one text, and what became of each: mapped, renamed, dropped or unknown, with findings."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import yaml
from trainwiz.core.config.values import NOT_SECRET_PREFIX, SECRET
from trainwiz.core.config.yaml_text import load_yaml
from trainwiz.core.errors import Finding, Severity, UsageError, sort_findings
from trainwiz.core.importing.names import UNSET, Rule, words
from trainwiz.core.importing.values import (
    LONGEST_SHOWN,
    LeftOut,
    Unresolved,
    Value,
    WrongValue,
    attempt,
    is_auto,
    is_nothing,
    shown,
)
from trainwiz.core.language import mark, tr
from trainwiz.core.text import parse_json, plain_text

Kind = Literal["training_arguments", "accelerate", "deepspeed", "launch_command"]
KIND_WORDS: Mapping[Kind, str] = {
    "training_arguments": mark("Trainer arguments"),
    "accelerate": mark("accelerate file"),
    "deepspeed": mark("DeepSpeed JSON"),
    "launch_command": mark("launch command"),
}
ROLES: Mapping[str, str] = {
    "accelerate": mark("the accelerate file"),
    "deepspeed": mark("the DeepSpeed file"),
    "script": mark("the script"),
    "arguments": mark("the arguments file"),
}
HIDDEN = "***"
"""Stands in a report where a password or key stood."""
OF_TOKENIZERS = frozenset(f"{kind}_TOKEN" for kind in ("EOS", "BOS", "PAD", "UNK", "SEP", "CLS", "MASK"))
TAKES_WORDS = (
    "report_to", "mixed_precision", "use_flash_attn", "attn_implementation", "device", "zero_optimization.stage",
    "zero_stage", "distributed_type", "num_processes",
)  # fmt: skip
"""Ends of settings for which "none" and "auto" are values like others."""
NOTES = words("assumed_meaning follows library_defaults missing_data missing_model")


class NotImportable(UsageError):
    """The text is not one of the kinds, is half of one, or belongs to another program."""


def finding(what: str, where: str, severity: Severity | None = None, /, **values: object) -> Finding:
    """One of SENTENCES about one place."""
    code = what.partition(".")[0]
    return Finding(code, severity or ("note" if code in NOTES else "warning"), where, tr(SENTENCES[what], **values))


def refusal(what: str, file: str, line: int | None = None, /, **values: object) -> NotImportable:
    """One of SENTENCES, to be raised."""
    where = f"{file}:{line}" if line else file
    return NotImportable(finding(what, where, "error", file=file, line=line, **values))


@dataclass(frozen=True, slots=True)
class Setting:
    """A name with its value and its line; `name` is today's, `written` what stands in the text."""

    name: str
    value: Any
    line: int | None = None
    written: str = ""
    given: Any = ...
    """The value as it stands in the text, where the one of today's name differs."""

    def as_written(self) -> str:
        return self.written or self.name

    def as_given(self) -> Any:
        """As data for a report; passwords stay out of it."""
        value = _plain(self.value if self.given is ... else self.given)
        return HIDDEN if is_secret(self.as_written()) and not is_nothing(self.value) else value

    def called(self, name: str, value: Any = ...) -> Setting:
        """The same setting under another name, with another value where one is given."""
        changed = replace(self, name=name, written=self.as_written())
        given = self.value if self.given is ... else self.given
        return changed if value is ... else replace(changed, value=value, given=given)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A setting that its program does not have, or whose value cannot be known without running something."""

    name: str
    value: Any
    line: int | None = None
    file: str = ""

    def given(self) -> tuple[str, Any, int | None, str]:
        return self.name, self.value, self.line, self.file


@dataclass(frozen=True, slots=True)
class Mapped(Unknown):
    """A setting that has a place: `key` of a RunConfig and what it was set to."""

    key: str = ""
    set_to: Any = None


@dataclass(frozen=True, slots=True)
class Dropped(Unknown):
    """A setting that is known and was left out; `why` is one sentence, marked for translation."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class Renamed:
    """An old spelling and the name that its program has for it today."""

    old: str
    new: str
    line: int | None = None
    file: str = ""


@dataclass(slots=True)
class Imported:
    """What one text, or all of them together, come to.

    `values` maps key paths of a RunConfig to values; `setup` holds those that only a command's launcher decides, which
    are weaker than what files and scripts say; engine.processes counts all nodes until all texts are one. `defaults`
    holds what the program takes for settings that the text leaves out: any value of any text wins.
    """

    kind: Kind
    file: str
    settings: dict[str, Setting] = field(default_factory=dict)
    """By today's names: each can look at the others that decide with it."""
    values: dict[str, Any] = field(default_factory=dict)
    setup: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    program: str = ""
    """The class whose defaults hold for what is left out; empty where that is not known."""
    mapped: list[Mapped] = field(default_factory=list)
    renamed: list[Renamed] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    references: list[Setting] = field(default_factory=list)
    """Other files that the text names: one of ROLES with the path."""
    inner: list[Imported] = field(default_factory=list)
    """Settings of another program that stand in this text as a value."""
    parts: list[Imported] = field(default_factory=list)
    """The texts, where this is all of them together."""

    def place_of(self, key: str) -> str:
        """ "FILE:LINE" of the setting that gave the value at `key`, or the file."""
        entry = next((entry for entry in reversed(self.mapped) if entry.key == key), None)
        if entry is None:
            return self.file
        return f"{entry.file}:{entry.line}" if entry.line else entry.file

    def to_json(self) -> dict[str, Any]:
        names = ("mapped", "renamed", "dropped", "unknown")
        report: dict[str, Any] = {name: [asdict(entry) for entry in getattr(self, name)] for name in names}
        return {**report, "findings": [finding.to_json() for finding in sort_findings(self.findings)]}

    def take(self, settings: Iterable[Setting]) -> None:
        self.settings.update((setting.name, setting) for setting in settings)

    def read(self, name: str, convert: Callable[[Any], Value]) -> Value | None:
        """A setting's value; None where it is absent, not set, not known, or wrong (which its own place says)."""
        return attempt(convert, self.settings[name].value) if name in self.settings else None

    def map(self, setting: Setting, key: str, set_to: Any) -> None:
        """The setting has a place: the value at `key` becomes `set_to`."""
        self.values[key] = set_to
        self.mapped.append(Mapped(*self._entry(setting), key, set_to))

    def rename(self, old: str, new: str, line: int | None = None) -> None:
        self.renamed.append(Renamed(old, new, line, self.file))

    def of_today(self, setting: Setting, renamed: Mapping[str, str]) -> Setting:
        """Under the name that its program has for it today."""
        new = renamed.get(setting.name)
        if new is None:
            return setting
        self.rename(setting.as_written(), new, setting.line)
        return setting.called(new)

    def drop(self, setting: Setting, why: str) -> None:
        """`why` is a sentence from `mark`, or one that `tr` has translated."""
        self.dropped.append(Dropped(*self._entry(setting), why))

    def leave_unknown(self, setting: Setting) -> None:
        self.unknown.append(Unknown(*self._entry(setting)))

    def _entry(self, setting: Setting) -> tuple[str, Any, int | None, str]:
        return setting.as_written(), setting.as_given(), setting.line, self.file

    def wrong(self, setting: Setting) -> None:
        """The value is none that the setting can have: kept in the report, and said."""
        self.leave_unknown(setting)
        self.say(setting, "bad_value", value=plain_text(repr(setting.as_given()), LONGEST_SHOWN))

    def say(self, at: Setting | int | None, what: str, severity: Severity | None = None, /, **values: object) -> None:
        """A finding at a setting, or at a line; {file}, {line}, {name} and {value} are filled in from it."""
        line = at.line if isinstance(at, Setting) else at
        if isinstance(at, Setting):
            name = plain_text(at.as_written(), LONGEST_SHOWN)
            values = {"name": name, "value": shown(at.as_given()), **values}
        where = f"{self.file}:{line}" if line else self.file
        self.findings.append(finding(what, where, severity, **{"file": self.file, "line": line, **values}))

    def place(self, setting: Setting, rule: Rule | Place | None, auto: str) -> None:
        """Put one setting where its rule says. `auto`: why that word sets nothing."""
        value = setting.value
        says_nothing = not setting.name.endswith(TAKES_WORDS) and (is_nothing(value) or is_auto(value))
        try:
            if rule is None or isinstance(rule, str):
                became: Became = rule
            elif isinstance(value, Unresolved):
                became = None
            elif says_nothing:
                became = UNSET if is_nothing(value) else auto
            else:
                became = {rule[0]: rule[1](value)} if isinstance(rule, tuple) else rule(self, setting)
        except LeftOut as reason:
            self.drop(setting, str(reason))
        except WrongValue:
            self.wrong(setting)
        else:
            self.become(setting, became)

    def become(self, setting: Setting, became: Became) -> None:
        if isinstance(became, str):
            self.drop(setting, became)
        elif became is None:
            self.leave_unknown(setting)
        else:
            for key, value in became.items():
                self.map(setting, key, value)


Became = str | Mapping[str, Any] | None
"""Why a setting is left out, or the values of a run that it gives, or None where nobody knows."""
Place = Callable[[Imported, Setting], Became]
"""What becomes of a setting where others decide with it; raises WrongValue or LeftOut."""


def _plain(value: Any) -> Any:
    """The value as data: what is not known, as it is written."""
    if isinstance(value, Unresolved):
        return value.text
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def is_secret(name: str) -> bool:
    """A variable with such a word in its name, or a setting that ends in one: `max_new_tokens` is none."""
    upper = name.upper()
    ends = upper == name or (upper.endswith(("TOKEN", "API_KEY", "PASSWORD", "SECRET")) and upper not in OF_TOKENIZERS)
    return ends and SECRET.search(upper) is not None and not upper.startswith(NOT_SECRET_PREFIX)


# JSON and YAML documents as settings with their lines.

QUOTED = r'"(?:[^"\\\n]|\\.)*"?'
COMMENT = re.compile(rf"{QUOTED}|//[^\n]*|\#[^\n]*|/\*(?:.*?\*/|.*)|,(?=\s*[\]}}])", re.DOTALL)
"""DeepSpeed reads its JSON with json.load, but files of the wild carry `//`, `/* */`, `#` and idle commas."""
LONGEST_REASON = 160
MOST_YAML_CHARACTERS = 2**17
"""Far above every file of settings, and parsed in seconds."""


@dataclass(frozen=True, slots=True)
class Document:
    """A mapping. `lines` maps dotted key paths to lines; `twice` holds (line, its first and its last spelling) of keys
    that stand twice."""

    values: Mapping[str, Any]
    lines: dict[str, int] = field(default_factory=dict)
    twice: list[tuple[int, str, str]] = field(default_factory=list)

    def flat(
        self, is_section: Callable[[str], bool], values: Mapping[Any, Any] | None = None, above: str = ""
    ) -> Iterator[Setting]:
        """All settings, those of sections with the section's name in front: "zero_optimization.stage"."""
        for key, value in (self.values if values is None else values).items():
            name = f"{above}{key}"
            if isinstance(value, Mapping) and is_section(name):
                yield from self.flat(is_section, value, f"{name}.")
            else:
                yield Setting(name, value, self.lines.get(name))

    def find_lines(self, node: yaml.Node | None, above: str = "") -> None:
        said: dict[str, str] = {}
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            name, line = f"{above}{key.value}", key.start_mark.line + 1
            is_shown = isinstance(value, yaml.ScalarNode) and not is_secret(name)
            text = plain_text(f"{name}={value.value if is_shown else '...'}", LONGEST_SHOWN)
            if name in said:
                self.twice.append((line, said[name], text))
            said[name], self.lines[name] = text, line
            self.find_lines(value, f"{name}.")


def read_document(text: str, file: str) -> Document:
    """The mapping in `text`. Raises NotImportable naming the line of what is broken, or that it is no mapping."""
    values, node = _json(text, file) if looks_like_json(text) else _yaml(text, file)
    if not isinstance(values, Mapping):
        raise refusal("not_importable.kinds", file)
    document = Document({str(key): value for key, value in values.items()})
    document.find_lines(node)
    return document


def looks_like_json(text: str) -> bool:
    """The first thing that is no comment is a brace."""
    return COMMENT.sub(_blank, text).lstrip()[:1] in ("{", "[")


def _json(text: str, file: str) -> tuple[Any, yaml.Node | None]:
    """Values, and the same as a node of YAML, of which JSON is a part, for the lines."""
    plain = COMMENT.sub(_blank, COMMENT.sub(_blank, text))
    try:
        values = parse_json(plain)
    except json.JSONDecodeError as error:
        raise refusal("broken_file.json_at", file, error.lineno, column=error.colno, reason=error.msg) from None
    except (ValueError, RecursionError) as error:
        reason = plain_text(error, LONGEST_REASON) if isinstance(error, ValueError) else tr("it is nested too deeply")
        raise refusal("broken_file.json", file, reason=reason) from None
    try:
        short = len(plain) <= MOST_YAML_CHARACTERS
        return values, yaml.compose(plain.replace("\t", " "), Loader=yaml.SafeLoader) if short else None
    except (yaml.YAMLError, ValueError, RecursionError):
        return values, None


def _blank(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])


def _yaml(text: str, file: str) -> tuple[Any, yaml.Node | None]:
    if len(text) > MOST_YAML_CHARACTERS:
        raise refusal("not_importable.kinds", file)
    try:
        return load_yaml(text), yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError) as error:
        place = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        reason = plain_text(getattr(error, "problem", None) or error, LONGEST_REASON)
        raise refusal("broken_file.yaml_at", file, place.line + 1 if place else 1, reason=reason) from None


SENTENCES: Mapping[str, str] = {
    "assumed_meaning": "{name} is read as the micro-batch (the sequences that one process computes at once); if the "
    "script means all processes together, set batch.micro_batch_size.",
    "bad_value": "{name} cannot be {value}; it is ignored.",
    "bad_value.is_left_out": "{message} It is ignored.",
    "broken_file.json": "{file} is not valid JSON ({reason}).",
    "broken_file.json_at": "{file}, line {line}, column {column}: this is not valid JSON ({reason}).",
    "broken_file.python": "{file} cannot be parsed as Python.",
    "broken_file.python_at": "{file}, line {line}: this is not valid Python ({reason}).",
    "broken_file.yaml_at": "{file}, line {line}: this is not valid YAML ({reason}).",
    "changed_later": "{name} is changed after it is set, and only running the script would show the result; it is "
    "ignored, so set the value you want.",
    "contradiction.contradicts": "{place} sets {total} sequences per step, but micro-batch {micro} x accumulation "
    "{accumulation} x {world} processes is {product}; {product} is used.",
    "contradiction.one_process": "{file}: distributed_type NO starts one process, so num_processes {count} has no "
    "effect; {count} processes need MULTI_GPU. One process is used.",
    "contradiction.two_places": "{place} sets {key} to {value}, but {other_place} sets it to {other}; {value} is used.",
    "contradiction.two_values": "{first} and {second} are the same setting with two values; {counts} takes effect. "
    "Keep one.",
    "cut_off": "The command on line {line} is incomplete; use the whole command.",
    "cuts_nothing": "{name}: no row is truncated there; this run truncates at batch.sequence_length, so set the max "
    "length.",
    "follows": "A step uses micro-batch x accumulation {window} x {world} processes = {total} sequences; a plan "
    "keeps this number on other GPUs (batch.target_samples).",
    "follows.any_number": "The number of GPUs is not specified; a plan keeps micro-batch x accumulation = {window} "
    "sequences per step on any number of GPUs, unless --target-samples sets another value.",
    "follows.so_many": "{place}: {total} sequences per step are micro-batch x accumulation {window} x {world} "
    "processes, so engine.processes is {world}.",
    "library_defaults": "Unset settings use the defaults of {program}: {said}.",
    "other_targets": "lora_target_modules is not set: PEFT then uses its own table, q_proj and v_proj for most models; "
    "a plan targets all linear layers (peft.targets).",
    "missing_data": "No data is specified; set it with --dataset FILE.",
    "missing_file": "{file} refers to {what} {path}, which was not found; its settings are missing, so import it too.",
    "missing_model": "No model is specified; a plan uses {default} until --model sets one.",
    "no_such_path": "{file} is neither a file nor a launch command.",
    "not_importable.among_other_text": "{file} contains commands among other text: paste only the one command or the "
    "settings.",
    "not_importable.empty": "{file} is empty.",
    "not_importable.from_command": "{file} reads its arguments from the command line (line {line}); import the command "
    "that starts it.",
    "not_importable.kinds": "{file} cannot be imported. Supported kinds are Trainer arguments (Python, YAML, JSON), an "
    "accelerate file, a DeepSpeed JSON and a launch command.",
    "not_importable.no_launch": "{file} does not start a training ({said}); expected a command with accelerate launch, "
    "torchrun, deepspeed or python.",
    "not_importable.no_script": "{file}: the {program} command on line {line} contains no script; use the whole "
    "command.",
    "not_importable.no_utf8": "{file} is not text (byte {start} is not UTF-8).",
    "not_importable.only_a_part": "{file} has no `distributed_type`, which accelerate requires: the file is "
    "incomplete. Use the whole file, or create one with: accelerate config",
    "not_importable.too_large": "{file} is larger than {size} MiB; settings and scripts are smaller.",
    "not_offered.no_fp8": "{file}: trainwiz does not support FP8; it uses bf16, in which accelerate computes "
    "everything that is not FP8.",
    "not_offered.shards_less": "{file}: {name} {value} keeps more on each GPU than trainwiz, which shards everything "
    "across all GPUs; the closest match is: --strategy zero2",
    "nothing_mapped": "Nothing in {file} applies to a run; the profile contains the defaults of a plan.",
    "other_training": "This trains {what}, which trainwiz does not support; the settings are kept to plan its size and "
    "speed.",
    "packing_counts_rows": "{name}: rows are packed end to end, and each attends only to itself (data.packing); a step "
    "counts rows in trainwiz, but packed sequences in the original program: check the effective batch.",
    "processes_unknown": "The number of processes that {program} starts is not read; set it with --num-gpus and "
    "--nodes.",
    "rows_changed": "The script changes its rows or its loss with its own code (line {line}), and only running it "
    "would show the result: the data is used unchanged. `trainwiz data show` shows what is trained on.",
    "several_trainings.several": "{count} commands in it could start a training; the one on line {line} was read.",
    "several_trainings.several_calls": "{name} is called {count} times; the call on line {line} was read.",
    "trl_learns_more": "TRL trains on every token of `messages` unless assistant_only_loss is on; this run trains on "
    "the answers (training.train_on).",
    "unknown_data": "{data}: no file or folder with this name was found, and it is not a Hub ID of a dataset "
    "(OWNER/NAME). Specify the file: --dataset FILE.",
    "unreadable_file": "{file} cannot be read: {reason}.",
    "unsupported_optimizer": "{name}: trainwiz has no optimizer {optimizer}, so the plan chooses one; engine.optimizer "
    "can be {known}.",
    "unsupported_schedule": "{name}: trainwiz has no schedule {kind}, so the learning rate decreases "
    "linearly; training.schedule can be {known}.",
}  # fmt: skip
"""Findings and refusals by their codes, with a word behind a dot where a code has several. scripts/catalogue.py reads
them here."""
