"""The settings of one text, and what became of each: mapped, renamed, dropped or unknown, with findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from trainwiz.core.config.values import NOT_SECRET_PREFIX, SECRET
from trainwiz.core.errors import Finding, UsageError, sort_findings
from trainwiz.core.importing.names import UNSET, Rule
from trainwiz.core.importing.values import (
    CONVERSIONS,
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
from trainwiz.core.text import plain_text

Kind = Literal["training_arguments", "accelerate", "deepspeed", "launch_command"]
KIND_WORDS: Mapping[Kind, str] = {
    "training_arguments": mark("arguments of the Trainer"),
    "accelerate": mark("accelerate file"),
    "deepspeed": mark("DeepSpeed JSON"),
    "launch_command": mark("launch command"),
}
HIDDEN = "***"
"""Stands in a report where a password or key stood."""
OF_TOKENIZERS = frozenset(f"{kind}_TOKEN" for kind in ("EOS", "BOS", "PAD", "UNK", "SEP", "CLS", "MASK"))
"""Names that end like a password's and are none."""
TAKES_WORDS = (
    "report_to", "mixed_precision", "use_flash_attn", "attn_implementation", "device", "zero_optimization.stage",
    "zero_stage",
)  # fmt: skip
"""Ends of settings for which "none" and "auto" are values like others."""


NOTES = frozenset(
    {"assumed_meaning", "follows", "from_command_line", "library_defaults", "missing_data", "missing_model",
     "nodes_unknown", "other_program"}
)  # fmt: skip
"""Codes of findings that are notes; all others are warnings."""
BAD_VALUE = mark("{name} cannot be {value}; it is left out.")


class NotImportable(UsageError):
    """The text is not one of the kinds, is half of one, or belongs to another program."""


def refusal(where: str, message: str, code: str = "not_importable") -> NotImportable:
    """One sentence about one place ("FILE" or "FILE:LINE"), to be raised."""
    return NotImportable(Finding(code, "error", where, message))


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
class Mapped:
    """A setting that has a place: `name` with `value` in the file, `key` of a RunConfig and what it was set to."""

    name: str
    value: Any
    key: str
    set_to: Any
    line: int | None = None
    file: str = ""


@dataclass(frozen=True, slots=True)
class Renamed:
    """An old spelling and the name that its program has for it today."""

    old: str
    new: str
    line: int | None = None
    file: str = ""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A setting that is known and was left out; `why` is one sentence, marked for translation."""

    name: str
    value: Any
    why: str
    line: int | None = None
    file: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A setting that its program does not have, or whose value cannot be known without running something."""

    name: str
    value: Any
    line: int | None = None
    file: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """Another file that the text names, as it names it."""

    role: Literal["accelerate", "deepspeed", "script", "arguments"]
    path: str
    line: int | None = None


@dataclass(slots=True)
class Imported:
    """What one text, or all of them together, come to.

    `values` maps key paths of a RunConfig to values; `setup` holds what decides how the processes are started, under
    accelerate's own names (num_processes counts all nodes, launcher "accelerate|torchrun|deepspeed|python", ...), so
    that a command line and the file that it names can be laid over each other before they become `engine.*` values.
    `defaults` holds what the program takes for settings that the text leaves out: any value of any text wins.
    """

    kind: Kind
    file: str
    settings: dict[str, Setting] = field(default_factory=dict)
    """By today's names: each can look at the others that decide with it."""
    values: dict[str, Any] = field(default_factory=dict)
    setup: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    mapped: list[Mapped] = field(default_factory=list)
    renamed: list[Renamed] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    parts: list[Imported] = field(default_factory=list)
    """The texts, where this is all of them together."""

    def place_of(self, key: str) -> str:
        """ "FILE:LINE" of the setting that gave the value at `key`, or the file."""
        entry = next((entry for entry in reversed(self.mapped) if entry.key == key), None)
        if entry is None:
            return self.file
        return f"{entry.file}:{entry.line}" if entry.line else entry.file

    def to_json(self) -> dict[str, Any]:
        lists = {"mapped": self.mapped, "renamed": self.renamed, "dropped": self.dropped, "unknown": self.unknown}
        report: dict[str, Any] = {name: [asdict(entry) for entry in entries] for name, entries in lists.items()}
        return {**report, "findings": [finding.to_json() for finding in sort_findings(self.findings)]}

    def take(self, settings: Iterable[Setting]) -> None:
        self.settings.update((setting.name, setting) for setting in settings)

    def read(self, name: str, convert: Callable[[Any], Value]) -> Value | None:
        """A setting's value; None where it is absent, not set, not known, or wrong (which its own place says)."""
        return attempt(convert, self.settings[name].value) if name in self.settings else None

    def map(self, setting: Setting, key: str, set_to: Any) -> None:
        """The setting has a place: the value at `key` becomes `set_to`."""
        self.values[key] = set_to
        self.mapped.append(Mapped(setting.as_written(), setting.as_given(), key, set_to, setting.line, self.file))

    def take_back(self, key: str, name: str, why: str) -> None:
        """A setting that was mapped and turns out to contradict another one: dropped, with the value that it gave."""
        for entry in [entry for entry in self.mapped if entry.key == key and entry.name == name]:
            self.mapped.remove(entry)
            self.dropped.append(Dropped(name, entry.value, why, entry.line, self.file))
            if all(other.key != key for other in self.mapped):
                self.values.pop(key, None)

    def set_all(self, key: str, value: Any) -> None:
        """Several settings that together mean `value`: each of them gave it."""
        self.values[key] = value
        self.mapped = [replace(entry, set_to=value) if entry.key == key else entry for entry in self.mapped]

    def rename(self, old: str, new: str, line: int | None = None) -> None:
        self.renamed.append(Renamed(old, new, line, self.file))

    def drop(self, setting: Setting, why: str) -> None:
        """`why` is a sentence from `mark`, or one that `tr` has translated."""
        self.dropped.append(Dropped(setting.as_written(), setting.as_given(), why, setting.line, self.file))

    def leave_unknown(self, setting: Setting) -> None:
        self.unknown.append(Unknown(setting.as_written(), setting.as_given(), setting.line, self.file))

    def wrong(self, setting: Setting) -> None:
        """The value is none that the setting can have: kept in the report, and said."""
        self.leave_unknown(setting)
        self.say(setting, "bad_value", BAD_VALUE, value=plain_text(repr(setting.as_given()), LONGEST_SHOWN))

    def say(self, at: Setting | int | None, code: str, sentence: str, **values: object) -> None:
        """A finding at a setting, or at a line; {file}, {name} and {value} are filled in from it."""
        line = at.line if isinstance(at, Setting) else at
        if isinstance(at, Setting):
            name = plain_text(at.as_written(), LONGEST_SHOWN)
            values = {"name": name, "value": shown(at.as_given()), **values}
        where = f"{self.file}:{line}" if line else self.file
        words = tr(sentence, **{"file": self.file, **values})
        self.findings.append(Finding(code, "note" if code in NOTES else "warning", where, words))

    def refer(
        self, role: Literal["accelerate", "deepspeed", "script", "arguments"], path: str, line: int | None
    ) -> None:
        """The text names another file."""
        self.references.append(Reference(role, path, line))

    def place(self, setting: Setting, rule: Rule | Place | None, auto: str) -> None:
        """Put one setting where its rule says. `auto`: why that word sets nothing."""
        if isinstance(rule, str):
            self.drop(setting, rule)
        elif rule is None or isinstance(setting.value, Unresolved):
            self.leave_unknown(setting)
        elif is_nothing(setting.value) and not setting.name.endswith(TAKES_WORDS):
            self.drop(setting, UNSET)
        elif is_auto(setting.value) and not setting.name.endswith(TAKES_WORDS):
            self.drop(setting, auto)
        else:
            try:
                if isinstance(rule, tuple):
                    self.map(setting, rule[0], CONVERSIONS[rule[1]](setting.value))
                else:
                    rule(self, setting)
            except LeftOut as reason:
                self.drop(setting, str(reason))
            except WrongValue:
                self.wrong(setting)


Place = Callable[[Imported, Setting], None]
"""Puts a setting into its place where others decide with it; raises WrongValue or LeftOut."""


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
    upper = name.upper()
    ends = upper.endswith(("TOKEN", "API_KEY", "PASSWORD", "SECRET")) and upper not in OF_TOKENIZERS
    return ends and SECRET.search(upper) is not None and not upper.startswith(NOT_SECRET_PREFIX)
