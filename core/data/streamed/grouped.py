"""Rows of parquet files: a row group is decoded at once, and kept for as long as its window lasts."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
from trainwiz.core.config import DataSource
from trainwiz.core.config.values import Task
from trainwiz.core.data.parquet import ParquetReader
from trainwiz.core.data.rows import trim_of, within_limits
from trainwiz.core.data.streamed.part import Part, Row, Unit, changed


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
