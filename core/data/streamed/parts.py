"""The kept rows of one file, read by their number: row groups, text files, tar shards."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
from trainwiz.core.config import DataSource
from trainwiz.core.config.values import Task
from trainwiz.core.data.parquet import ParquetReader
from trainwiz.core.data.reader import PlacedReader, Reader, unreadable
from trainwiz.core.data.rows import trim_of, within_limits
from trainwiz.core.errors import UsageError, os_reason
from trainwiz.core.files import open_at_once
from trainwiz.core.language import tr

# FilesByPlace: of files that are read here and there a few are open at a time, for a data set may be 10,000 shards.

MOST_OPEN = 64
"""Of a process, which may have 256 on macOS and 1,024 on Linux, shared with those of the loaders."""


class FilesByPlace:
    """Reads by place, so that a forked loader worker may go on with the files that its parent opened."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, int] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, path: Path, start: int, count: int) -> bytes:
        """`count` bytes from byte `start` on, fewer at the end of the file. Raises OSError."""
        with self._lock:
            descriptor = self._open.pop(path, None)
            if descriptor is None:
                descriptor = open_at_once(str(path), os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            self._open[path] = descriptor
            if len(self._open) > MOST_OPEN:
                os.close(self._open.popitem(last=False)[1])
            return os.pread(descriptor, count, start)

    def __del__(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])


# Part: the kept rows of one data file, read by their number.

Row = tuple[str, str | None]
"""(text, target); no target where rows have none."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Kept rows that follow each other in a file."""

    rows: int
    bytes: int
    """UTF-8 bytes of their texts and targets."""
    group: int = 0
    """Row group of a parquet file; other files have none."""
    first: int = 0
    """Position of the first kept row in a parquet file."""

    @property
    def size(self) -> int:
        """Bytes of the unit as it lies in memory: Arrow keeps 8 bytes a text beside its letters."""
        return self.bytes + 16 * self.rows


class Part(ABC):
    """Safe in loader workers: files are opened by the process that reads them."""

    units: tuple[Unit, ...]

    @property
    def rows(self) -> int:
        return sum(unit.rows for unit in self.units)

    @abstractmethod
    def row(self, number: int) -> Row:
        """The kept row with this number, from 0. Raises UsageError where the file is not what it was."""


def changed(path: Path) -> UsageError:
    """The file has other rows than when they were counted."""
    return unreadable(
        str(path), tr("was changed while the run reads it; put the file back, or resume the run to read it anew.")
    )


# Rows of text files and tar shards, each read from its own place in the file.

PLACE = np.dtype("<i8")


class PlacedPart(Part):
    """One file whose rows have places, which are read from the index, so that memory does not grow with the rows."""

    def __init__(
        self,
        open_reader: Callable[[], tuple[Reader, list[int]]],
        path: Path,
        trim: Callable[[pa.Array], pa.Array],
        units: tuple[Unit, ...],
        files: FilesByPlace,
        places: Path,
        first_byte: int,
        pieces: int,
    ) -> None:
        """`open_reader` gives the reader of `path` and the wanted columns; `places` holds (rows, pieces, 2) int64
        from `first_byte` on."""
        self.units = units
        self._open = open_reader
        self._opened: tuple[Reader, list[int]] | None = None
        self._trim = trim
        self._path = path
        self._files = files
        self._places = places
        self._first_byte = first_byte
        self._pieces = pieces

    def row(self, number: int) -> Row:
        try:
            bytes_of_row = 2 * self._pieces * PLACE.itemsize
            stored = self._files.read(self._places, self._first_byte + number * bytes_of_row, bytes_of_row)
            places = np.frombuffer(stored, PLACE).reshape(-1, 2).tolist()
            pieces = [self._files.read(self._path, start, end - start) for start, end in places]
        except OSError as error:
            raise unreadable(str(self._path), tr("cannot be read: {reason}.", reason=os_reason(error))) from None
        try:
            self._opened = self._opened or self._open()
            reader, wanted = self._opened
            if not isinstance(reader, PlacedReader):
                raise changed(self._path)
            cells = reader.cells(pieces, wanted)
        except (StopIteration, UsageError):
            raise changed(self._path) from None
        values = self._trim(pa.array(cells, pa.large_string())).to_pylist()
        if not all(values):
            raise changed(self._path)
        return values[0], values[1] if len(values) > 1 else None


# Rows of parquet files: a row group is decoded at once, and kept for as long as its window lasts.


@dataclass(frozen=True, slots=True)
class Decoded:
    """The kept rows of one unit."""

    texts: pa.Array
    targets: pa.Array | None
    size: int
    """Bytes."""

    def row(self, number: int) -> Row:
        return self.texts[number].as_py(), None if self.targets is None else self.targets[number].as_py()


MOST_UNDER_WAY = 2
"""Row groups that are read in the middle: a window begins in one and ends in one. Each holds a page, which may be large."""
MOST_READERS = 16
"""Files that are open at a time. Opening one anew for each of thousands of small row groups takes longer than they do."""


class DecodedUnits:
    """The units that a process has decoded, one window of them: those that were not asked for longest make room."""

    def __init__(self, budget: int) -> None:
        """`budget`: bytes."""
        self.under_way: OrderedDict[tuple[int, int], tuple[int, Iterator[Decoded]]] = OrderedDict()
        """(part, row group) that is half read -> (the next unit, the units from there)."""
        self._readers: OrderedDict[int, ParquetReader] = OrderedDict()
        self.lock = threading.Lock()
        """Held while a unit is looked for: all parts share this."""
        self._budget = budget
        self._units: OrderedDict[tuple[int, int], Decoded] = OrderedDict()
        self._filled = 0

    def reader(self, part: int, path: Path) -> ParquetReader:
        """Raises UsageError."""
        found = self._readers.pop(part, None) or ParquetReader(path)
        self._readers[part] = found
        if len(self._readers) > MOST_READERS:
            self._readers.popitem(last=False)
        return found

    def get(self, key: tuple[int, int]) -> Decoded | None:
        found = self._units.get(key)
        if found is not None:
            self._units.move_to_end(key)
        return found

    def make_room(self, size: int) -> None:
        if not self._units or self._filled + size <= self._budget:
            return
        while self._units and self._filled + size > self._budget:
            self._filled -= self._units.popitem(last=False)[1].size
        # Arrow would keep the memory for later.
        pa.default_memory_pool().release_unused()

    def put(self, key: tuple[int, int], unit: Decoded) -> None:
        before = self._units.pop(key, None)
        self._filled -= 0 if before is None else before.size
        self.make_room(unit.size)
        self._units[key] = unit
        self._filled += unit.size

    def keep_under_way(self, key: tuple[int, int], reading: tuple[int, Iterator[Decoded]]) -> None:
        self.under_way[key] = reading
        if len(self.under_way) > MOST_UNDER_WAY:
            self.under_way.popitem(last=False)

    def clear(self) -> None:
        self.under_way.clear()
        self._readers.clear()
        self._units.clear()
        self._filled = 0


class GroupedPart(Part):
    """One parquet file. The units of a row group too large for one follow each other, and are decoded in one go."""

    def __init__(
        self,
        path: Path,
        wanted: tuple[int, ...],
        source: DataSource,
        task: Task,
        units: tuple[Unit, ...],
        number: int,
        decoded: DecodedUnits,
    ) -> None:
        """`number`: of this part among those that share `decoded`."""
        self.units = units
        self._path = path
        self._wanted = wanted
        self._source = source
        self._trim = trim_of(task)
        self._number = number
        self._decoded = decoded
        self._edges = [0, *accumulate(unit.rows for unit in units)]
        self._firsts = np.array([unit.first for unit in units], np.int64)
        self._groups = np.array([unit.group for unit in units], np.int64)

    def row(self, number: int) -> Row:
        unit = bisect_right(self._edges, number) - 1
        with self._decoded.lock:
            return self._unit(unit).row(number - self._edges[unit])

    def _unit(self, unit: int) -> Decoded:
        found = self._decoded.get((self._number, unit))
        if found is not None:
            return found
        key = self._number, self.units[unit].group
        at, units = self._decoded.under_way.pop(key, (unit + 1, iter(())))
        if at > unit:
            at = int(np.searchsorted(self._groups, key[1]))
            units = self._units_of(at)
        while at <= unit:
            self._decoded.make_room(self.units[at].size)
            found = next(units)
            self._decoded.put((self._number, at), found)
            at += 1
        if at < len(self.units) and self.units[at].group == key[1]:
            self._decoded.keep_under_way(key, (at, units))
        assert found is not None
        return found

    def _units_of(self, first: int) -> Iterator[Decoded]:
        """The units of the row group that begins with unit `first`."""
        group = self.units[first].group
        last = int(np.searchsorted(self._groups, group, side="right")) - 1
        batches = self._kept(group)
        left: tuple[pa.Array, ...] = ()
        positions = np.empty(0, np.int64)
        texts: list[tuple[pa.Array, ...]] = []
        for number in range(first, last + 1):
            missing = self.units[number].rows
            end = self._firsts[number + 1] if number < last else np.iinfo(np.int64).max
            texts = []
            while missing:
                if not len(positions):
                    following = next(batches, None)
                    if following is None:
                        raise changed(self._path)
                    left, positions = following
                here = min(missing, int(np.searchsorted(positions, end)))
                if not here and len(positions):
                    raise changed(self._path)
                texts.append(tuple(side.slice(0, here) for side in left))
                left, positions = tuple(side.slice(here) for side in left), positions[here:]
                missing -= here
            sides = [pa.concat_arrays(parts) for parts in zip(*texts, strict=True)]
            yield Decoded(sides[0], sides[1] if len(sides) > 1 else None, self.units[number].size)

    def _kept(self, group: int) -> Iterator[tuple[tuple[pa.Array, ...], np.ndarray]]:
        """(texts and targets, positions) of the kept rows of a row group."""
        reader = self._decoded.reader(self._number, self._path)
        if group >= len(reader.group_ends()) or max(self._wanted) >= len(reader.columns):
            raise changed(self._path)
        for batch in reader.group(group, self._wanted):
            sides = tuple(self._trim(side) for side in batch.values)
            _, keep, _ = within_limits(sides[0], sides[1] if len(sides) > 1 else None, self._source)
            if keep.all():
                yield sides, batch.positions
            elif keep.any():
                mask = pa.array(keep)
                yield tuple(side.filter(mask) for side in sides), batch.positions[keep]
