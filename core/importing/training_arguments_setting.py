"""One setting of a text, as its reader found it, and what may stand in the place of its value."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from trainwiz.core.importing.values import LARGEST_COUNT


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


YES = frozenset({"true", "yes", "y", "t", "1", "on"})
NO = frozenset({"false", "no", "n", "f", "0", "off"})
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
    if text in YES:
        return True
    if text in NO:
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
