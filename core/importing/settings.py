"""Settings of a training on their way into a report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from trainwiz.core.config.values import NOT_SECRET_PREFIX, SECRET
from trainwiz.core.importing.report import Collector
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text

# Values of foreign files, read as their programs read them.

LARGEST_COUNT = 2.0**64
LONGEST_VALUE = 60
YES, NO = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0", "none", ""})


def as_bool(value: Any) -> bool | None:
    """A yes or no, also as text; None for all else."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    return True if word in YES else False if word in NO else None


def as_number(value: Any) -> float | None:
    """A number, also as text ("1e-5", which YAML 1.1 leaves as text)."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if number - number == 0 else None


def as_count(value: Any) -> int | None:
    """A whole number, also as text or as 5e8; 1e299 counts nothing."""
    number = as_number(value)
    return int(number) if number is not None and abs(number) < LARGEST_COUNT and number == int(number) else None


def is_auto(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() == "auto"


def shown(value: Any) -> str:
    """A foreign value inside a sentence: one line, as JSON writes it, not too long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return plain_text(text, LONGEST_VALUE)


def map_number(collector: Collector, name: str, value: Any, key: str, number: float | None, line: int | None) -> None:
    """Maps what is a number; all else is kept as unknown, with a finding."""
    if number is not None:
        collector.map(name, value, key, number, line)
        return
    collector.unknown(name, value, line)
    message = tr(
        "{file}: {name} is {value}, which is no number; it is left out.",
        file=collector.file,
        name=plain_text(name, LONGEST_VALUE),
        value=shown(value),
    )
    collector.find("bad_value", "warning", message, line)


# One setting of a text, as its reader found it, and what may stand in the place of its value.


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A value that cannot be known without running something: `text` is how it is written ("$LR", "args.lr")."""

    text: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A name with its value and its line; `name` is today's, `written` what stands in the text."""

    name: str
    value: Any
    line: int | None = None
    written: str = ""
    given: Any = ...
    """The value as it stands in the text, where the one of today's name differs."""

    def as_given(self) -> Any:
        return self.value if self.given is ... else self.given

    def as_written(self) -> str:
        return self.written or self.name

    def called(self, name: str, value: Any = ...) -> Setting:
        """The same setting under another name, with another value where one is given."""
        changed = replace(self, name=name, written=self.as_written())
        return changed if value is ... else replace(changed, value=value, given=self.as_given())


class WrongValue(ValueError):
    """A value that its setting cannot have; the reader tells which one and where."""


TRAINING_ARGUMENTS_SETTING_YES = frozenset({"true", "yes", "y", "t", "1", "on"})
TRAINING_ARGUMENTS_SETTING_NO = frozenset({"false", "no", "n", "f", "0", "off"})
"""Of `transformers.hf_argparser.string_to_bool`, and YAML's own two."""

NOTHING = frozenset({"", "none", "null", "~"})

MEMBER = re.compile(r"<?(?P<member>(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*)(?:: '(?P<value>[^']*)'>)?")
"""A member of an enumeration as printed: IntervalStrategy.STEPS, or <IntervalStrategy.STEPS: 'steps'>."""

ENUMERATIONS = ("Strategy", "SchedulerType", "OptimizerNames", "DebugOption", "TaskType", "FSDPOption")
"""Ends of the names of the enumerations whose members are written for their values."""


def is_nothing(value: Any) -> bool:
    """None, or text that says none."""
    return value is None or (isinstance(value, str) and value.strip().lower() in NOTHING)


def whole_number(value: Any) -> int:
    """8, "8", 8.0, "1_000"; raises WrongValue."""
    number = decimal_number(value)
    if abs(number) >= LARGEST_COUNT or number != int(number):
        raise WrongValue(value)
    return int(number)


def decimal_number(value: Any) -> float:
    """2e-5, "2e-5" (YAML reads 2e-5 as text), 3; raises WrongValue."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise WrongValue(value)
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise WrongValue(value) from None
    if number - number != 0:
        raise WrongValue(value)
    return number


def yes_or_no(value: Any) -> bool:
    """True, "true", "yes", 1, ...; raises WrongValue."""
    text = str(value).strip().lower()
    if text in TRAINING_ARGUMENTS_SETTING_YES:
        return True
    if text in TRAINING_ARGUMENTS_SETTING_NO:
        return False
    raise WrongValue(value)


def text_value(value: Any) -> str:
    """Text as it is; a member of an enumeration as its value. Raises WrongValue for lists and mappings."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise WrongValue(value)
    text = str(value).strip()
    member = MEMBER.fullmatch(text)
    if member is None:
        return text
    kind, _, name = member["member"].rpartition(".")
    if member["value"] is not None:
        return member["value"]
    return name.lower() if kind.endswith(ENUMERATIONS) else text


def text_list(value: Any) -> list[str]:
    """A list of texts; one text is split at commas and spaces. Raises WrongValue."""
    if isinstance(value, list | tuple):
        return [text_value(item) for item in value]
    return [part for part in re.split(r"[,\s]+", text_value(value)) if part]


# The settings of one text while they find their places: each can look at the others that decide with it.

Value = TypeVar("Value")
Place = Callable[["Sheet", Setting], None]
"""Puts one setting into its place; raises WrongValue for a value that the setting cannot have."""

UNSET = mark("It is not set.")
HIDDEN = "***"
"""Stands in a report where a password or key stood."""

OF_TOKENIZERS = frozenset(f"{kind}_TOKEN" for kind in ("EOS", "BOS", "PAD", "UNK", "SEP", "CLS", "MASK"))
"""Names that end like a password's and are none."""

SAYS_SO: frozenset[str] = frozenset({"report_to", "mixed_precision"})
"""Settings for which "none" or "no" is a value like others."""


class Sheet:
    """Settings by today's names, and the report that they go to."""

    def __init__(self, collector: Collector, settings: Iterable[Setting]) -> None:
        self.collector = collector
        self.settings: dict[str, Setting] = {setting.name: setting for setting in settings}

    def __contains__(self, name: str) -> bool:
        return name in self.settings

    def read(self, name: str, convert: Callable[[Any], Value]) -> Value | None:
        """Another setting's value; None where it is absent, not set, not known, or wrong (which its own place says)."""
        setting = self.settings.get(name)
        if setting is None or isinstance(setting.value, Unresolved) or is_nothing(setting.value):
            return None
        try:
            return convert(setting.value)
        except WrongValue:
            return None

    def map(self, setting: Setting, key: str, set_to: Any) -> None:
        self.collector.map(setting.as_written(), _plain(setting.as_given()), key, set_to, setting.line)

    def drop(self, setting: Setting, why: str) -> None:
        name = setting.as_written()
        shown = HIDDEN if _is_secret(name) and not is_nothing(setting.value) else _plain(setting.as_given())
        self.collector.drop(name, shown, why, setting.line)

    def unknown(self, setting: Setting) -> None:
        name = setting.as_written()
        self.collector.unknown(name, HIDDEN if _is_secret(name) else _plain(setting.value), setting.line)

    def warn(self, setting: Setting, code: str, message: str) -> None:
        self.collector.find(code, "warning", message, setting.line)

    def wrong(self, setting: Setting) -> None:
        """The value is none that the setting can have: kept in the report, and said."""
        message = tr(
            "{name} cannot be {value}; it is left out.",
            name=plain_text(setting.as_written(), 60),
            value=plain_text(repr(_plain(setting.value)), 60),
        )
        self.unknown(setting)
        self.collector.find("bad_value", "warning", message, setting.line)

    def place(self, places: Mapping[str, Place], reasons: Mapping[str, str]) -> list[Setting]:
        """Put every setting that has a place or a reason; returns the others, in their order."""
        left: list[Setting] = []
        for setting in self.settings.values():
            if setting.name in places:
                self._put(places[setting.name], setting)
            elif setting.name in reasons:
                self.drop(setting, reasons[setting.name])
            else:
                left.append(setting)
        return left

    def _put(self, place: Place, setting: Setting) -> None:
        if isinstance(setting.value, Unresolved):
            self.unknown(setting)
        elif is_nothing(setting.value) and setting.name not in SAYS_SO:
            self.drop(setting, UNSET)
        else:
            try:
                place(self, setting)
            except WrongValue:
                self.wrong(setting)


def direct(key: str, convert: Callable[[Any], Any]) -> Place:
    """The place of a setting whose value only has to be of the right type."""

    def place(sheet: Sheet, setting: Setting) -> None:
        sheet.map(setting, key, convert(setting.value))

    return place


def _plain(value: Any) -> Any:
    """The value as data for a report: what is not known, as it is written."""
    if isinstance(value, Unresolved):
        return value.text
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _is_secret(name: str) -> bool:
    upper = name.upper()
    if upper in OF_TOKENIZERS:
        return False
    return upper.endswith(("TOKEN", "API_KEY", "PASSWORD", "SECRET")) and bool(
        SECRET.search(upper) and not upper.startswith(NOT_SECRET_PREFIX)
    )
