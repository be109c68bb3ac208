"""What every reader of data files offers, the sentences that they share, and the reader of parquet files."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from trainwiz.core.errors import UsageError, os_reason, usage_error
from trainwiz.core.language import language, mark, tr

PLACES = {
    "line": mark("{path}, line {number}"),
    "row": mark("{path}, row {number}"),
    "byte": mark("{path}, byte {number}"),
}
"""By the unit that a reader counts its positions in."""


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
class RowBatch:
    """Some rows of one file."""

    sides: tuple[pa.Array, ...]
    """One LargeStringArray (n,) for each wanted column, a missing value null; of kept rows their texts, and perhaps targets."""
    positions: np.ndarray
    """(n,) int64: the row or line number (from 1) of each row in its file."""
    reader: Reader

    @property
    def texts(self) -> pa.Array:
        return self.sides[0]

    @property
    def targets(self) -> pa.Array | None:
        return self.sides[1] if len(self.sides) > 1 else None

    def only(self, chosen: np.ndarray) -> RowBatch:
        """The rows whose entry in `chosen` (n,) bool is true."""
        if chosen.all():
            return self
        mask = pa.array(chosen)
        return RowBatch(tuple(side.filter(mask) for side in self.sides), self.positions[chosen], self.reader)

    def place(self, row: int) -> str:
        """ "rows.csv, line 12" """
        return self.reader.place(int(self.positions[row]))


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
    def batches(self, wanted: Sequence[int]) -> Iterator[RowBatch]:
        """All rows, in the order of the file. Raises UsageError where the file is broken."""

    @abstractmethod
    def sample(self, wanted: Sequence[int], limit: int) -> Iterator[RowBatch]:
        """About `limit` rows that stand for the whole file, where the format can jump to them; else all rows.

        A reader that jumps sets `partial`; a text format then counts its positions in bytes.
        """

    @abstractmethod
    def share_read(self) -> float:
        """Share of the file's bytes consumed so far, or that the sample was taken from, 0 to 1."""

    @abstractmethod
    def head(self, count: int) -> Iterator[tuple[str | None, ...]]:
        """The first rows with all their columns, as text; None where a row has no value. Raises UsageError at a broken one."""

    def first_rows(self, count: int) -> list[tuple[str | None, ...]]:
        """As many of them as can be read: a broken one ends them."""
        rows = list[tuple[str | None, ...]]()
        with suppress(UsageError):
            rows.extend(self.head(count))
        return rows

    def broken_at(self, position: int, problem: str) -> UsageError:
        """The sentence of what is wrong with the row at this position."""
        return unreadable(self.place(position), problem)

    def place(self, position: int) -> str:
        """ "rows.csv, line 12"; from 1."""
        return tr(PLACES[self.unit], path=self.path, number=position)


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


# Parquet files.

SAMPLED_GROUPS = 128
READ_FOR_ONE = 16
"""Rows read for each that is kept: the bytes of a column with a dictionary say little of its rows."""
SAMPLED_BYTES = 32 << 20
"""Decoded for a sample at most, which takes about a tenth of a second: a reader cannot skip rows within a group."""
BUFFER = 4 << 20
"""Packed bytes of a column that are held at once."""
GROUP_ROWS, GROUP_BYTES = 1024, 16 << 20
TEXT_TYPES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


class ParquetReader(Reader):
    """One parquet file; the footer gives rows and columns at once. A field inside a struct is the column `struct.field`."""

    unit = "row"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        try:
            # Else Arrow reads the whole column of a row group at once, which may be most of the file.
            self._file = pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._broken(error) from None
        leaves = [leaf for field in self._file.schema_arrow for leaf in _leaves(field, ())]
        self._paths = [names for names, _ in leaves]
        self._classes = _class_names(self._file.schema_arrow.metadata or {})
        self.columns = tuple(_column(".".join(names), kind) for names, kind in leaves)
        self.rows = self._file.metadata.num_rows

    def batches(self, wanted: Sequence[int]) -> Iterator[RowBatch]:
        for group in range(self._file.num_row_groups):
            yield from self._group(group, wanted)

    def sample(self, wanted: Sequence[int], limit: int) -> Iterator[RowBatch]:
        """Rows of random row groups, one of each part of the file, and spread within them: sorted files are common."""
        if (self.rows or 0) <= limit:
            yield from self.batches(wanted)
            return
        self.partial = True
        groups = spread(self._file.num_row_groups, SAMPLED_GROUPS)
        limit = limit // len(groups)
        for group in groups:
            reach = max(limit, int(SAMPLED_BYTES // len(groups) / self._row_bytes(group)))
            reach = max(1, min(self._file.metadata.row_group(group).num_rows, reach, READ_FOR_ONE * limit))
            size = self._batch_rows(group)
            for number, batch in enumerate(self._group(group, wanted, max(1, -(-limit * size // reach))), 1):
                yield batch
                if number * size >= reach:
                    break

    def _row_bytes(self, group: int) -> float:
        """Uncompressed bytes of a row of the group, at least 1."""
        about = self._file.metadata.row_group(group)
        return float(max(1.0, about.total_byte_size / max(about.num_rows, 1)))

    def _batch_rows(self, group: int) -> int:
        """Rows at once, fewer where rows are books."""
        return int(min(GROUP_ROWS, max(1, GROUP_BYTES / self._row_bytes(group))))

    @cached_property
    def _group_ends(self) -> np.ndarray:
        """(row groups,) int64: position of the last row of each."""
        about = self._file.metadata
        return np.cumsum([about.row_group(group).num_rows for group in range(about.num_row_groups)], dtype=np.int64)

    def share_read(self) -> float:
        return min(1.0, self._read / max(self.rows or 1, 1))

    def head(self, count: int) -> Iterator[tuple[str | None, ...]]:
        try:
            for batch in islice(self._file.iter_batches(batch_size=count), 1):
                columns = [_values(batch, names).to_pylist() for names in self._paths]
                yield from (tuple(_shown(cell) for cell in row) for row in zip(*columns, strict=True))
        except (pa.ArrowException, OSError) as error:
            raise self._broken(error) from None

    def _group(self, group: int, wanted: Sequence[int], each: int | None = None) -> Iterator[RowBatch]:
        """The batches of a row group; of each batch `each` rows, spread over it."""
        names = [self.columns[index].name for index in wanted]
        row = int(self._group_ends[group - 1]) if group else 0
        try:
            for batch in self._file.iter_batches(
                batch_size=self._batch_rows(group), row_groups=[group], columns=names, use_threads=False
            ):
                kept, places = batch, np.arange(batch.num_rows, dtype=np.int64)
                if each is not None and each < batch.num_rows:
                    places = np.linspace(0, batch.num_rows - 1, each).round().astype(np.int64)
                    kept = batch.take(pa.array(places))
                positions = row + 1 + places
                row += batch.num_rows
                self._read += batch.num_rows
                texts = (self._texts(self._named(_values(kept, self._paths[i]), i), positions) for i in wanted)
                yield RowBatch(tuple(texts), positions, self)
        except (pa.ArrowException, OSError) as error:
            place = tr("{path}, row {number} or later", path=self.path, number=row + 1)
            raise self._broken(error, place) from None

    def _named(self, values: pa.Array, column: int) -> pa.Array:
        """The numbers of classes as their names, where the file holds them: datasets writes them there. -1 is none."""
        names = self._classes.get(".".join(self._paths[column]))
        if names is None or self.columns[column].name not in self.labels:
            return values
        cells = values.to_pylist()
        if pa.types.is_nested(values.type):
            return pa.array([cell and [_name_of(number, names) for number in cell] for cell in cells])
        return pa.array([_name_of(number, names) for number in cells], pa.large_string())

    def _texts(self, values: pa.Array, positions: np.ndarray) -> pa.Array:
        """(n,) texts; a list in a column of lists as JSON."""
        if pa.types.is_nested(values.type):
            lists = (
                None if value is None else json.dumps(_said(value), ensure_ascii=False, default=str)
                for value in values.to_pylist()
            )
            return pa.array(lists, pa.large_string())
        try:
            texts = values.cast(pa.large_string())
            texts.validate(full=True)
        except pa.ArrowInvalid:
            raw = values.cast(pa.large_binary()).to_pylist()
            for offset, value in enumerate(raw):
                try:
                    (value or b"").decode("utf-8")
                except UnicodeDecodeError as error:
                    raise self.broken_at(int(positions[offset]), not_utf8(value[error.start])) from None
            raise
        return texts

    def _broken(self, error: Exception, place: str = "") -> UsageError:
        detail = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        return unreadable(
            place or str(self.path),
            tr(
                "is not a complete parquet file ({detail}); the download or copy may be incomplete. Download or "
                "copy it again.",
                detail=detail,
            ),
        )


def _class_names(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    """Column -> names of its classes, as the library datasets keeps them beside a schema."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"].items()
        kinds = [(column, kind.get("feature", kind) if isinstance(kind, dict) else {}) for column, kind in features]
        return {column: list(map(str, kind["names"])) for column, kind in kinds if kind.get("_type") == "ClassLabel"}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _name_of(number: int | None, names: list[str]) -> str | None:
    if number is None or number < 0:
        return None
    return names[number] if number < len(names) else str(number)


def _leaves(field: Any, before: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(names from the top, type) of a field, or of each field inside a struct."""
    names = (*before, field.name)
    if pa.types.is_struct(field.type) and field.type.num_fields:
        for index in range(field.type.num_fields):
            yield from _leaves(field.type.field(index), names)
    else:
        yield names, field.type


def _said(value: Any) -> Any:
    """Without the keys that a row does not have: in a file of structs each row has those of all."""
    if isinstance(value, dict):
        return {key: _said(inner) for key, inner in value.items() if inner is not None}
    return [_said(inner) for inner in value] if isinstance(value, list) else value


def _values(batch: Any, names: Sequence[str]) -> pa.Array:
    """The column behind these names; null where a struct around it is null."""
    column = batch.column(batch.schema.get_all_field_indices(names[0])[0])
    return pc.struct_field(column, list(names[1:])) if len(names) > 1 else column


def _column(name: str, kind: Any) -> Column:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return Column(name, any(check(inner) for check in TEXT_TYPES), str(kind), pa.types.is_nested(inner))


def _shown(cell: Any) -> str | None:
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    return None if cell is None else str(cell)
