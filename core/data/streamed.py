"""Rows that are read while training from where they stand, or from a copy where a file cannot be read in the middle."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from trainwiz.core.config import DataSource
from trainwiz.core.config.values import RowKind
from trainwiz.core.data.chats import BrokenRow
from trainwiz.core.data.columns import Layout
from trainwiz.core.data.parquet import ParquetReader
from trainwiz.core.data.reader import Reader, cannot_read, changed
from trainwiz.core.data.rows import layout_of, open_columns, sides_of, within_limits
from trainwiz.core.data.sources import SourceFiles
from trainwiz.core.data.text_store import FileTexts, TextStore, TextWriter, checked
from trainwiz.core.errors import UsageError
from trainwiz.core.files import open_file, read_small

WINDOW_BYTES = 128 << 20
"""Decoded texts of a window. A constant: the order of a run must not depend on the machine that resumes it."""

# Windows: an order of rows that shuffles data larger than RAM, and needs no state.

SHUFFLED_AS_ONE = "torch.randperm"
"""Said in a refusal. Versions before had other numbers, called "whole"."""


class Windows:
    """Rows are grouped in units, pieces of files that are read at once; a run is a sequence of adjacent units.

    The runs are permuted by (seed, epoch). As many units that follow each other then as fit into
    the budget make a window, and its rows are permuted by (seed, epoch, window). Which row comes
    at a place of an epoch is so a function of these numbers: each row once, whoever reads it, and
    a process needs one window in memory. What fits into one window is shuffled as a whole, as rows
    in memory are.
    """

    def __init__(self, edges: np.ndarray, sizes: np.ndarray, runs: np.ndarray, budget: int) -> None:
        """`edges` (units + 1,) int64: unit u holds the rows from edges[u] to edges[u + 1]; `sizes` (units,) int64:
        decoded bytes of each; `runs` (units,) int64, ascending: number of the run that each belongs to; `budget`:
        bytes of a window (WINDOW_BYTES in every run)."""
        self._edges = edges
        self._sizes = sizes
        self._budget = budget
        # The first unit of each run, and the end.
        self._starts = np.concatenate([np.flatnonzero(np.diff(runs, prepend=-1)), [len(runs)]]).astype(np.int64)

    @property
    def several(self) -> bool:
        """Whether the rows are more than one window; else they are shuffled as rows in memory are."""
        held = self._edges[1:] > self._edges[:-1]
        return int(held.sum()) > 1 and int(self._sizes[held].sum()) > self._budget

    def of_rows(self, rows: np.ndarray) -> Windows:
        """The windows over some of the rows: `rows` (n,) int64, ascending, is what place i of the result stands for."""
        edges = np.searchsorted(rows, self._edges).astype(np.int64)
        runs = np.repeat(np.arange(len(self._starts) - 1), np.diff(self._starts))
        return Windows(edges, self._sizes, runs, self._budget)

    def described(self) -> str:
        """What the order depends on beside seed and epoch: the same for all data that is shuffled as a whole."""
        if not self.several:
            return SHUFFLED_AS_ONE
        digest = hashlib.blake2b(f"{self._budget};".encode(), digest_size=8)
        for numbers in (self._edges, self._sizes, self._starts):
            digest.update(np.ascontiguousarray(numbers, "<i8").tobytes())
        return f"windows-{digest.hexdigest()}"

    def orders(self, seed: int, epoch: int) -> Iterator[np.ndarray]:
        """The rows of each window, (n,) int64, in the order in which they are seen."""
        for number, units in enumerate(self._windows(seed, epoch)):
            rows = np.concatenate([np.arange(self._edges[unit], self._edges[unit + 1]) for unit in units])
            yield _generator(seed, epoch, number, 2).permutation(rows)

    def _windows(self, seed: int, epoch: int) -> list[list[int]]:
        """The units of each window, those without a row left out."""
        windows: list[list[int]] = [[]]
        filled = 0
        for run in _generator(seed, epoch, 0, 3).permutation(len(self._starts) - 1).tolist():
            for unit in range(int(self._starts[run]), int(self._starts[run + 1])):
                if self._edges[unit] == self._edges[unit + 1]:
                    continue
                size = int(self._sizes[unit])
                if windows[-1] and filled + size > self._budget:
                    windows.append([])
                    filled = 0
                windows[-1].append(unit)
                filled += size
        return windows


def _generator(seed: int, epoch: int, number: int, purpose: int) -> np.random.Generator:
    """Philox, whose stream depends on these numbers alone; masks of rows are drawn with purpose 0."""
    return np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, number, purpose, 0]))


# The rows of one file by their number: of a copy, from their places in it, or of the row groups of a parquet file.

Row = tuple[str, ...]
"""The text, and its target where rows have one."""
Sides = tuple[pa.Array, ...]
"""The texts of some rows, and their targets where rows have them."""


class Unit(NamedTuple):
    """Kept rows that follow each other in a file."""

    rows: int
    bytes: int
    """UTF-8 bytes of their texts and targets."""
    group: int
    """Row group of a parquet file; units of one group follow each other."""
    first: int
    """Position of the first kept row."""

    @property
    def size(self) -> int:
        """Bytes of the unit as it lies in memory: Arrow keeps 8 bytes a text beside its letters."""
        return self.bytes + 16 * self.rows


class Part(ABC):
    """The kept rows of one file. Safe in loader workers: files are opened by the process that reads them."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = units
        self.rows = sum(unit.rows for unit in units)

    @abstractmethod
    def row(self, number: int) -> Row:
        """The kept row with this number, from 0. Raises UsageError where the file is not what it was."""


class CopiedPart(Part):
    """Among the texts of all files that were copied."""

    def __init__(self, stores: Sequence[TextStore], units: Sequence[Unit], first: int) -> None:
        """`first`: number of the first row in the `stores`, texts and perhaps targets."""
        super().__init__(units)
        self._stores = stores
        self._first = first

    def row(self, number: int) -> Row:
        return tuple(store[self._first + number] for store in self._stores)


MOST_OPEN = 64
"""Files that are read here and there, of a process, which may have 256 on macOS and 1,024 on Linux: a data set may be
10,000 shards."""
PLACE = np.dtype("<i8")
PLACE_BYTES = 2 * PLACE.itemsize
"""First byte and end of a row."""


class FilesByPlace:
    """Reads by place, so that a forked loader worker may go on with the files that its parent opened."""

    def __init__(self) -> None:
        self._opened = lru_cache(MOST_OPEN)(open_file)

    def read(self, path: Path, start: int, count: int) -> bytes:
        """`count` bytes from byte `start` on, fewer at the end of the file. Raises OSError."""
        return os.pread(self._opened(path).fileno(), count, start)


class PlacedPart(Part):
    """Each row is read from its own place in the file, and this from the index: memory does not grow with the rows."""

    def __init__(
        self, about: dict[str, Any], units: Sequence[Unit], task: RowKind, files: FilesByPlace, places: Path
    ) -> None:
        """`places` holds (rows, 2) int64, from byte about["first"] on."""
        super().__init__(units)
        self._path = Path(about["path"])
        source = DataSource.model_validate(about["source"])
        self._found = SourceFiles(source, about["key"], (self._path,), about["format"])
        self._task = task
        self._opened: tuple[Reader, Layout] | None = None
        self._files = files
        self._places = places
        self._first: int = about["first"]

    def row(self, number: int) -> Row:
        try:
            stored = self._files.read(self._places, self._first + number * PLACE_BYTES, PLACE_BYTES)
            start, end = np.frombuffer(stored, PLACE).tolist()
            piece = self._files.read(self._path, start, end - start)
        except OSError as error:
            raise cannot_read(self._path, error) from None
        try:
            self._opened = self._opened or open_columns(self._path, self._found, self._task)
            reader, layout = self._opened
            cells = [pa.array([cell], pa.large_string()) for cell in reader.cells(piece, layout.wanted)]
            sides = tuple(side[0].as_py() for side in sides_of(cells, layout, self._task))
        except (StopIteration, UnicodeEncodeError, UsageError, BrokenRow):
            raise changed(self._path) from None
        if not all(sides):
            raise changed(self._path)
        return sides


MOST_UNDER_WAY = 2
"""Row groups that are read in the middle: a window begins in one and ends in one. Each holds a page, which may be large."""
MOST_READERS = 16
"""Files that are open at a time. Opening one anew for each of thousands of small row groups takes longer than they do."""
Key = tuple[int, int]
"""(part, unit or row group)."""


class DecodedUnits:
    """The units that a process has decoded, one window of them: those that were not asked for longest make room."""

    def __init__(self, budget: int) -> None:
        """`budget`: bytes."""
        self.reader = lru_cache(MOST_READERS)(ParquetReader)
        """Path -> its reader. Raises UsageError."""
        self.under_way: OrderedDict[Key, tuple[int, Iterator[Sides]]] = OrderedDict()
        """(part, row group) that is half read -> (the next unit, the units from there)."""
        self._budget = budget
        self._units: OrderedDict[Key, tuple[Sides, int]] = OrderedDict()

    def get(self, key: Key) -> Sides | None:
        if key not in self._units:
            return None
        self._units.move_to_end(key)
        return self._units[key][0]

    def put(self, key: Key, unit: Sides, size: int) -> None:
        self._units[key] = unit, size
        filled = sum(size for _, size in self._units.values())
        while filled > self._budget and len(self._units) > 1:
            filled -= self._units.popitem(last=False)[1][1]
            # Arrow would keep the memory for later.
            pa.default_memory_pool().release_unused()

    def keep_under_way(self, key: Key, next_unit: int, units: Iterator[Sides]) -> None:
        self.under_way[key] = next_unit, units
        if len(self.under_way) > MOST_UNDER_WAY:
            self.under_way.popitem(last=False)

    def clear(self) -> None:
        self.under_way.clear()
        self.reader.cache_clear()
        self._units.clear()


class GroupedPart(Part):
    """One parquet file: a row group is decoded at once, and kept for as long as its window lasts.

    The units of a row group too large for one follow each other, and are decoded in one go.
    """

    def __init__(
        self, about: dict[str, Any], units: Sequence[Unit], task: RowKind, number: int, decoded: DecodedUnits
    ) -> None:
        """`number`: of this part among those that share `decoded`."""
        super().__init__(units)
        self._path = Path(about["path"])
        self._source = DataSource.model_validate(about["source"])
        self._task = task
        self._number = number
        self._decoded = decoded
        self._edges = [0, *accumulate(unit.rows for unit in units)]
        self._groups = np.array([unit.group for unit in units], np.int64)

    def row(self, number: int) -> Row:
        unit = bisect_right(self._edges, number) - 1
        return tuple(side[number - self._edges[unit]].as_py() for side in self._unit(unit))

    def _unit(self, unit: int) -> Sides:
        sides = self._decoded.get((self._number, unit))
        if sides is not None:
            return sides
        key = self._number, self.units[unit].group
        at, units = self._decoded.under_way.pop(key, (unit + 1, iter(())))
        if at > unit:
            at = int(np.searchsorted(self._groups, key[1]))
            units = self._units_of(at)
        for number in range(at, unit + 1):
            sides = next(units)
            self._decoded.put((self._number, number), sides, self.units[number].size)
        if unit + 1 < len(self.units) and self.units[unit + 1].group == key[1]:
            self._decoded.keep_under_way(key, unit + 1, units)
        assert sides is not None
        return sides

    def _units_of(self, first: int) -> Iterator[Sides]:
        """The units of the row group that begins with unit `first`."""
        group = self.units[first].group
        last = int(np.searchsorted(self._groups, group, side="right")) - 1
        batches = self._kept(group)
        left: Sides = ()
        positions = np.empty(0, np.int64)
        for number in range(first, last + 1):
            missing = self.units[number].rows
            end = self.units[number + 1].first if number < last else np.iinfo(np.int64).max
            texts: list[Sides] = []
            while missing:
                if not len(positions):
                    left, positions = next(batches, ((), positions))
                here = min(missing, int(np.searchsorted(positions, end)))
                if not here:
                    raise changed(self._path)
                texts.append(tuple(side.slice(0, here) for side in left))
                left, positions = tuple(side.slice(here) for side in left), positions[here:]
                missing -= here
            yield tuple(pa.concat_arrays(pieces) for pieces in zip(*texts, strict=True))

    def _kept(self, group: int) -> Iterator[tuple[Sides, np.ndarray]]:
        """(texts and targets, positions) of the kept rows of a row group, no batch without any."""
        reader = self._decoded.reader(self._path)
        try:
            layout = layout_of(reader, self._source, "", self._task)
        except UsageError:
            raise changed(self._path) from None
        if group >= len(reader.group_ends):
            raise changed(self._path)
        for batch in reader.groups(layout.wanted, [group]):
            try:
                sides = sides_of(batch.values, layout, self._task)
            except BrokenRow:
                raise changed(self._path) from None
            _, keep = within_limits(sides, self._source)
            if keep.any():
                mask = pa.array(keep)
                yield tuple(side.filter(mask) for side in sides), batch.positions[keep]


# StreamedRows: all rows of a run by their numbers.

INDEX_JSON = "index.json"
LENGTHS = ("texts.lengths", "targets.lengths")
LENGTH = np.dtype("<u4")
PLACES = "places"
COPIES = ("copied-texts", "copied-targets")
"""Files of an index folder."""
ASIDE = ("texts", "targets")
ASIDE_ROWS = 1000
"""Written at once."""


class StreamedRows:
    """Rows of an index folder, in the order of the sources and of their files."""

    def __init__(self, place: Path, aside: str | None = None) -> None:
        """`place` holds the index; `aside` names rows that were set aside. Raises OSError."""
        self.place = place
        document: dict[str, Any] = json.loads(read_small(place / INDEX_JSON).decode())
        self.training_rows = int(document["training_rows"])
        self.sides = 1 + (place / LENGTHS[1]).is_file()
        self._decoded = DecodedUnits(WINDOW_BYTES)
        copies = [FileTexts(place / name) for name in COPIES[: self.sides]]
        files = FilesByPlace()
        self.parts: list[Part] = []
        for number, about in enumerate(document["parts"]):
            units = [Unit(*unit) for unit in about["units"]]
            if about["kind"] == "grouped":
                self.parts.append(GroupedPart(about, units, document["task"], number, self._decoded))
            elif about["kind"] == "placed":
                self.parts.append(PlacedPart(about, units, document["task"], files, place / PLACES))
            else:
                self.parts.append(CopiedPart(copies, units, about["first"]))
        self._edges = [0, *accumulate(part.rows for part in self.parts)]
        self._last: tuple[int, Row] | None = None
        self._aside: str | None = None
        self._aside_numbers = np.empty(0, np.int64)
        if aside is not None:
            self._open_aside(aside)

    def __reduce__(self) -> tuple[Any, ...]:
        # A spawned worker opens the files itself.
        return StreamedRows, (self.place, self._aside)

    def __len__(self) -> int:
        return self._edges[-1]

    def row(self, number: int) -> Row:
        """Text and target of one row. Raises UsageError where its file is not what it was."""
        # Both sides are asked for one after the other.
        if self._last is None or self._last[0] != number:
            self._last = number, self._read(checked(number, len(self)))
        return self._last[1]

    def _read(self, number: int) -> Row:
        if self._aside is not None:
            place = int(np.searchsorted(self._aside_numbers, number))
            if place < len(self._aside_numbers) and self._aside_numbers[place] == number:
                return self._aside_rows.row(place)
        part = bisect_right(self._edges, number) - 1
        return self.parts[part].row(number - self._edges[part])

    def windows(self) -> Windows:
        """The order in which all rows can be read."""
        units = [(number, unit) for number, part in enumerate(self.parts) for unit in part.units]
        groups = [(number, unit.group) for number, unit in units]
        runs = np.cumsum([place == 0 or group != groups[place - 1] for place, group in enumerate(groups)]) - 1
        edges = np.cumsum([0, *(unit.rows for _, unit in units)], dtype=np.int64)
        sizes = np.array([unit.size for _, unit in units], np.int64)
        return Windows(edges, sizes, runs.astype(np.int64), WINDOW_BYTES)

    def set_aside(self, numbers: np.ndarray) -> None:
        """Keep these rows (n,) int64, ascending, as texts of their own: they lie all over the files, and an
        evaluation would decode all of them. By one process at a time. Raises OSError."""
        if not len(numbers) or not any(isinstance(part, GroupedPart) for part in self.parts):
            return
        numbers = np.ascontiguousarray(numbers, np.int64)
        name = f"aside-{hashlib.sha256(numbers.tobytes()).hexdigest()[:16]}"
        if not (self.place / f"{name}.rows").is_file():
            writers = [TextWriter(self.place / f"{name}-{side}") for side in ASIDE[: self.sides]]
            for start in range(0, len(numbers), ASIDE_ROWS):
                rows = [self._read(int(number)) for number in numbers[start : start + ASIDE_ROWS]]
                for writer, side in zip(writers, zip(*rows, strict=True), strict=False):
                    writer.add(pa.array(side, pa.large_string()))
            for writer in writers:
                writer.close()
            self._decoded.clear()
            part = self.place / f"{name}.rows.part"
            part.write_bytes(numbers.tobytes())
            part.replace(self.place / f"{name}.rows")
        self._open_aside(name)

    def _open_aside(self, name: str) -> None:
        self._aside_numbers = np.fromfile(self.place / f"{name}.rows", np.int64)
        stores = [FileTexts(self.place / f"{name}-{side}") for side in ASIDE[: self.sides]]
        self._aside_rows = CopiedPart(stores, (), 0)
        self._aside = name


class StreamedTexts(TextStore):
    """One side of StreamedRows."""

    def __init__(self, rows: StreamedRows, side: int) -> None:
        """`side`: 0 for the text, 1 for the target."""
        self.rows = rows
        self._side = side

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> str:
        return self.rows.row(number)[self._side]

    @property
    def lengths(self) -> np.ndarray:
        return np.fromfile(self.rows.place / LENGTHS[self._side], LENGTH).astype(np.int64)
