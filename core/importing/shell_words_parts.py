"""The words of a shell script before anything in them is expanded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PartKind = Literal["text", "variable", "arithmetic", "opaque"]
"""opaque: only a shell, or the one who fills in a template, could know it."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word. Quoted pieces are not split at spaces."""

    kind: PartKind
    text: str
    quoted: bool = False


@dataclass(slots=True)
class RawWord:
    """A word before expansion; `array` holds the words of NAME=(...)."""

    line: int
    parts: list[Part] = field(default_factory=list)
    array: list[RawWord] | None = None

    def plain(self) -> str:
        """The text, with what is to be expanded as it is written."""
        return "".join(part.text for part in self.parts)


@dataclass(slots=True)
class RawCommand:
    """The words between two separators, without redirections."""

    line: int
    words: list[RawWord] = field(default_factory=list)
