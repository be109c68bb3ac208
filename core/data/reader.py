"""What every reader of data files offers, and the sentences that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from trainwiz.core.errors import UsageError, os_reason, usage_error
from trainwiz.core.language import language, mark, tr

PLACES = {
    "line": mark("{path}, line {number}"),
    "row": mark("{path}, row {number}"),
    "byte": mark("{path}, byte {number}"),
}
"""By the unit that a reader counts its positions in."""


def place_of(path: Path, unit: str, number: int) -> str:
    """ "rows.csv, line 12"; numbers are from 1."""
    return tr(PLACES[unit], path=path, number=number)


def listed(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return tr("{names} and {count} more", names=shown, count=len(names) - most) if len(names) > most else shown


BATCH_ROWS = 4096

Holds = Literal["texts", "lists", "classes"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a file. `type_name` is what to call a column that holds no text."""

    name: str
    is_text: bool = True
    type_name: str = "text"
    is_list: bool = False
    """Each row has several values there, such as the turns of a chat."""

    def may_hold(self, holds: Holds) -> bool:
        """Whether it can be used where texts are wanted, or texts and lists, or texts and numbers that name classes."""
        return self.is_text or (holds == "lists" and self.is_list) or (holds == "classes" and not self.is_list)


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Some rows of the wanted columns."""

    values: tuple[pa.Array, ...]
    """One LargeStringArray of n texts for each wanted column; a missing value is null."""
    positions: np.ndarray
    """(n,) int64: the row or line number (from 1) of each row in its file."""


class Reader(ABC):
    """One opened data file. The constructors raise UsageError for a file that they cannot open."""

    path: Path
    unit: str
    """What a position counts: "row" or "line"."""
    columns: tuple[Column, ...]
    rows: int | None = None
    """Exact number of rows where the format says so at once, else None."""
    partial = False
    """A sample left rows out."""
    may_lack: frozenset[str] = frozenset()
    """Columns that a row need not have, where the format lets it leave one out."""
    labels: frozenset[str] = frozenset()
    """Columns of classes: their numbers are read as texts, by the names that the file has for them."""

    @abstractmethod
    def batches(self, wanted: Sequence[int]) -> Iterator[ColumnBatch]:
        """All rows, in the order of the file. Raises UsageError where the file is broken."""

    @abstractmethod
    def sample(self, wanted: Sequence[int], limit: int) -> Iterator[ColumnBatch]:
        """About `limit` rows that stand for the whole file, where the format can jump to them; else all rows.

        A reader that jumps sets `partial`; a text format then counts its positions in bytes.
        """

    @abstractmethod
    def share_read(self) -> float:
        """Share of the file's bytes consumed so far, or that the sample was taken from, 0 to 1."""

    @abstractmethod
    def head(self, count: int) -> Iterator[tuple[str | None, ...]]:
        """The first rows with all their columns, as text; None where a row has no value. Raises UsageError at a broken one."""

    def broken_at(self, position: int, problem: str) -> UsageError:
        """The sentence of what is wrong with the row at this position."""
        return unreadable(place_of(self.path, self.unit, position), problem)


def unreadable(where: str, problem: str) -> UsageError:
    """A file, or a place in it, that cannot be read: the place and what is wrong there."""
    if language() == "en" and problem.startswith(("is ", "cannot ", "contains ", "has ", "must ")):
        return usage_error("unreadable_data", where, f"{where} {problem}")
    return usage_error("unreadable_data", where, tr("{place}: {problem}", place=where, problem=problem))


def cannot_read(path: Path, error: OSError) -> UsageError:
    return unreadable(str(path), tr("cannot be read: {reason}.", reason=os_reason(error)))


def text_array(values: Sequence[Any], positions: Sequence[int], reader: Reader) -> pa.Array:
    """Texts as an Arrow array; UsageError names the place of one that is not UTF-8.

    Files are opened with `errors="surrogateescape"`: an undecodable byte arrives as a lone
    surrogate, which Arrow cannot encode.
    """
    try:
        return pa.array(values, pa.large_string())
    except UnicodeEncodeError:
        for value, position in zip(values, positions, strict=True):
            broken = next((ch for ch in value or "" if "\ud800" <= ch <= "\udfff"), None)
            if broken is not None and "\udc80" <= broken <= "\udcff":
                raise reader.broken_at(position, not_utf8(ord(broken) - 0xDC00)) from None
            if broken is not None:
                problem = tr(
                    "the text contains an unpaired surrogate ({character}); write it as UTF-8, without \\u escapes.",
                    character=f"\\u{ord(broken):04x}",
                )
                raise reader.broken_at(position, problem) from None
        raise


def not_utf8(byte: int) -> str:
    return tr(
        "the text is not UTF-8 (byte {byte}); convert the file, for example with `iconv -t UTF-8`.",
        byte=f"0x{byte:02x}",
    )


SEED = 0x7EAD


def spread(count: int, most: int) -> list[int]:
    """Numbers below `count`, ascending: all, or a random one of each of `most` equal parts; the same at each call."""
    if count <= most:
        return list(range(count))
    edges = np.linspace(0, count, most + 1).astype(np.int64)
    chosen = np.random.Generator(np.random.Philox(SEED)).integers(edges[:-1], edges[1:])
    return [int(number) for number in chosen]
