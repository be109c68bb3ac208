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
from trainwiz.core.importing.sentences import SENTENCES
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
from trainwiz.core.text import parse_json, plain_text

Kind = Literal["training_arguments", "accelerate", "deepspeed", "launch_command"]
KIND_WORDS: Mapping[Kind, str] = {
    "training_arguments": mark("Trainer arguments"),
    "accelerate": mark("accelerate file"),
    "deepspeed": mark("DeepSpeed JSON"),
    "launch_command": mark("launch command"),
}
Role = Literal["accelerate", "deepspeed", "script", "arguments"]
HIDDEN = "***"
"""Stands in a report where a password or key stood."""
OF_TOKENIZERS = frozenset(f"{kind}_TOKEN" for kind in ("EOS", "BOS", "PAD", "UNK", "SEP", "CLS", "MASK"))
"""Names that end like a password's and are none."""
TAKES_WORDS = (
    "report_to", "mixed_precision", "use_flash_attn", "attn_implementation", "device", "zero_optimization.stage",
    "zero_stage",
)  # fmt: skip
"""Ends of settings for which "none" and "auto" are values like others."""


NOTES = words("assumed_meaning follows from_command_line library_defaults missing_data missing_model")
"""Codes of findings that are notes; all others are warnings."""


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


@dataclass(frozen=True, slots=True)
class Reference:
    """Another file that the text names, as it names it."""

    role: Role
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
    program: str = ""
    """The class whose defaults hold for what is left out; empty where that is not known."""
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

    def take_back(self, key: str, why: str) -> None:
        """What was mapped and turns out to contradict others: dropped."""
        for entry in [entry for entry in self.mapped if entry.key == key]:
            self.mapped.remove(entry)
            self.dropped.append(Dropped(entry.name, entry.value, entry.line, entry.file, why))
        self.values.pop(key, None)

    def set_all(self, key: str, value: Any) -> None:
        """Several settings that together mean `value`: each of them gave it."""
        self.values[key] = value
        self.mapped = [replace(entry, set_to=value) if entry.key == key else entry for entry in self.mapped]

    def rename(self, old: str, new: str, line: int | None = None) -> None:
        self.renamed.append(Renamed(old, new, line, self.file))

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

    def take_in(self, inner: Imported, setting: Setting) -> None:
        """The settings of another program that stand in this one as the value of a setting."""
        name, line = setting.as_written(), setting.line
        for kind in ("mapped", "dropped", "unknown"):
            entries = getattr(inner, kind)
            getattr(self, kind).extend(replace(entry, name=f"{name}.{entry.name}", line=line) for entry in entries)
        self.renamed += [replace(entry, old=f"{name}.{entry.old}", line=line) for entry in inner.renamed]
        self.values |= inner.values
        where = f"{self.file}:{line}" if line else self.file
        self.findings += [replace(finding, where=where) for finding in inner.findings]

    def refer(self, role: Role, path: str, line: int | None) -> None:
        """The text names another file."""
        self.references.append(Reference(role, path, line))

    def place(self, setting: Setting, rule: Rule | Place | None, auto: str) -> None:
        """Put one setting where its rule says. `auto`: why that word sets nothing."""
        try:
            self.become(setting, self._became(setting, rule, auto))
        except LeftOut as reason:
            self.drop(setting, str(reason))
        except WrongValue:
            self.wrong(setting)

    def become(self, setting: Setting, became: Became) -> None:
        if isinstance(became, str):
            self.drop(setting, became)
        elif became is None:
            self.leave_unknown(setting)
        else:
            for key, value in became.items():
                self.map(setting, key, value)

    def _became(self, setting: Setting, rule: Rule | Place | None, auto: str) -> Became:
        if isinstance(rule, str):
            return rule
        if rule is None or isinstance(setting.value, Unresolved):
            return None
        if not setting.name.endswith(TAKES_WORDS) and (is_nothing(setting.value) or is_auto(setting.value)):
            return UNSET if is_nothing(setting.value) else auto
        return {rule[0]: CONVERSIONS[rule[1]](setting.value)} if isinstance(rule, tuple) else rule(self, setting)


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
    """A mapping. `lines` maps dotted key paths to lines; `twice` holds keys that stand twice, with both lines."""

    values: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    twice: tuple[tuple[str, int, int], ...] = ()

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

    def opened(self, kind: Kind, file: str) -> Imported:
        """An import with a finding for each key that stands twice; the last one counts, as for the programs that read
        these files."""
        imported = Imported(kind, file)
        for key, first, second in self.twice:
            shown_key = plain_text(key, LONGEST_REASON)
            imported.say(second, "contradiction.twice", key=shown_key, first=first, second=second)
        return imported


def read_document(text: str, file: str) -> Document:
    """The mapping in `text`. Raises NotImportable naming the line of what is broken, or that it is no mapping."""
    text = text.removeprefix("\ufeff")
    values, node = _json(text, file) if looks_like_json(text) else _yaml(text, file)
    if not isinstance(values, Mapping):
        raise refusal("not_importable.no_settings", file)
    lines: dict[str, int] = {}
    twice: list[tuple[str, int, int]] = []
    if isinstance(node, yaml.MappingNode):
        _collect(node, "", lines, twice)
    return Document({str(key): value for key, value in values.items()}, lines, tuple(twice))


def looks_like_json(text: str) -> bool:
    """The first thing that is no comment is a brace."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith(("//", "#", "/*", "*"))), "")
    return first[:1] in ("{", "[")


def _json(text: str, file: str) -> tuple[Any, yaml.Node | None]:
    """Values, and the same as a node of YAML, of which JSON is a part, for the lines."""
    plain = COMMENT.sub(_blank, COMMENT.sub(_blank, text))
    try:
        values = parse_json(plain)
    except json.JSONDecodeError as error:
        ends = not text[error.pos :].strip() or error.msg.startswith("Unterminated string")
        what = "broken_file.json_ends" if ends else "broken_file.json_at"
        raise refusal(what, file, error.lineno, column=error.colno, reason=error.msg) from None
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
        raise refusal("not_importable.too_long", file)
    try:
        return load_yaml(text), yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError) as error:
        place = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        reason = plain_text(getattr(error, "problem", None) or error, LONGEST_REASON)
        raise refusal("broken_file.yaml_at", file, place.line + 1 if place else 1, reason=reason) from None


def _collect(node: yaml.MappingNode, prefix: str, lines: dict[str, int], twice: list[tuple[str, int, int]]) -> None:
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            continue
        key, line = f"{prefix}{key_node.value}", key_node.start_mark.line + 1
        # An alias brings the same nodes, with the same lines, again.
        if lines.get(key, line) != line:
            twice.append((key, lines[key], line))
        lines[key] = line
        if isinstance(value_node, yaml.MappingNode):
            _collect(value_node, f"{key}.", lines, twice)
