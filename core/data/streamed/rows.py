"""StreamedRows: all rows of a run by their numbers, in an order that shuffles data larger than RAM."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from trainwiz.core.config import DataSource
from trainwiz.core.data.proteins import LETTERS
from trainwiz.core.data.rows import open_columns, trim_of
from trainwiz.core.data.sources import SourceFiles
from trainwiz.core.data.streamed.index import COPIES, INDEX_JSON, LENGTH, LENGTHS, PLACES, CopiedPart
from trainwiz.core.data.streamed.parts import DecodedUnits, FilesByPlace, GroupedPart, Part, PlacedPart, Row, Unit
from trainwiz.core.data.text_store import FileTexts, TextStore, TextWriter, checked
from trainwiz.core.files import read_small

# How much of streamed rows is in memory. Imports nothing: the plan knows it before any data is opened.

WINDOW_BYTES = 128 << 20
"""Decoded texts of a window. A constant: the order of a run must not depend on the machine that resumes it."""


# Windows: an order of rows that shuffles data larger than RAM, and needs no state.

SHUFFLED_AS_ONE = "torch.randperm"
"""Said in a refusal. Versions before had other numbers, called "whole"."""


class Windows:
    """Rows stand in units, pieces of files that are read at once; units of one run follow each other in a file.

    The runs are permuted by (seed, epoch). As many units that follow each other then as fit into
    the budget make a window, and its rows are permuted by (seed, epoch, window). Which row comes
    at a place of an epoch is so a function of these numbers: each row once, whoever reads it, and
    a process needs one window in memory. What fits into one window is shuffled as a whole, as rows
    in memory are.
    """

    def __init__(self, edges: np.ndarray, sizes: np.ndarray, runs: np.ndarray, budget: int) -> None:
        """`edges` (units + 1,) int64: unit u holds the rows from edges[u] to edges[u + 1]; `sizes` (units,) int64:
        decoded bytes of each; `runs` (units,) int64, ascending: number of the run that each belongs to; `budget`:
        bytes of a window (core.data.window_size.WINDOW_BYTES in every run)."""
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


# StreamedRows: all rows of a run by their numbers, read from the files where they stand.

ASIDE_ROWS = 1000
"""Written at once."""


class StreamedRows:
    """Rows of an index folder, in the order of the sources and of their files."""

    def __init__(self, place: Path, aside: str | None = None) -> None:
        """`place` holds the index; `aside` names rows that were set aside. Raises OSError."""
        self.place = place
        document: dict[str, Any] = json.loads(read_small(place / INDEX_JSON).decode())
        self.training_rows = int(document["training_rows"])
        self.has_targets = (place / LENGTHS[1]).is_file()
        self._decoded = DecodedUnits(WINDOW_BYTES)
        self._files = FilesByPlace()
        self._copied_texts = FileTexts(place / COPIES[0])
        self._copied_targets = FileTexts(place / COPIES[1]) if self.has_targets else None
        self.parts = [self._part(number, about, document) for number, about in enumerate(document["parts"])]
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
        last = self._last
        if last is not None and last[0] == number:
            return last[1]
        row = self._read(checked(number, len(self)))
        self._last = number, row
        return row

    def _read(self, number: int) -> Row:
        if self._aside is not None:
            place = int(np.searchsorted(self._aside_numbers, number))
            if place < len(self._aside_numbers) and self._aside_numbers[place] == number:
                return self._aside_texts[place], None if self._aside_targets is None else self._aside_targets[place]
        part = bisect_right(self._edges, number) - 1
        return self.parts[part].row(number - self._edges[part])

    def texts(self) -> TextStore:
        return StreamedTexts(self, 0)

    def targets(self) -> TextStore | None:
        return StreamedTexts(self, 1) if self.has_targets else None

    def windows(self) -> Windows:
        """The order in which all rows can be read."""
        units = [(part, unit) for part, found in enumerate(self.parts) for unit in found.units]
        groups = [(part, unit.group) for part, unit in units]
        runs = np.cumsum([place == 0 or group != groups[place - 1] for place, group in enumerate(groups)]) - 1
        edges = np.cumsum([0, *(unit.rows for _, unit in units)], dtype=np.int64)
        sizes = np.array([unit.size for _, unit in units], np.int64)
        return Windows(edges, sizes, runs.astype(np.int64), WINDOW_BYTES)

    def set_aside(self, numbers: np.ndarray) -> None:
        """Keep these rows (n,) int64, ascending, as texts of their own: they lie all over the files, and an
        evaluation would decode all of them. By one process at a time. Raises OSError."""
        if not len(numbers) or not any(isinstance(part, GroupedPart) for part in self.parts):
            return
        name = f"aside-{hashlib.sha256(np.ascontiguousarray(numbers, np.int64).tobytes()).hexdigest()[:16]}"
        if not (self.place / f"{name}.rows").is_file():
            writers = [
                TextWriter(self.place / f"{name}-{side}") for side in ("texts", "targets")[: 1 + self.has_targets]
            ]
            for start in range(0, len(numbers), ASIDE_ROWS):
                rows = [self._read(int(number)) for number in numbers[start : start + ASIDE_ROWS]]
                for writer, side in zip(writers, zip(*rows, strict=True), strict=False):
                    writer.add(pa.array(side, pa.large_string()))
            for writer in writers:
                writer.close()
            self._decoded.clear()
            part = self.place / f"{name}.rows.part"
            part.write_bytes(np.ascontiguousarray(numbers, np.int64).tobytes())
            part.replace(self.place / f"{name}.rows")
        self._open_aside(name)

    def _open_aside(self, name: str) -> None:
        self._aside_numbers = np.fromfile(self.place / f"{name}.rows", np.int64)
        self._aside_texts = FileTexts(self.place / f"{name}-texts")
        self._aside_targets = FileTexts(self.place / f"{name}-targets") if self.has_targets else None
        self._aside = name

    def _part(self, number: int, about: dict[str, Any], document: dict[str, Any]) -> Part:
        path, task, kind = Path(about["path"]), document["task"], about["kind"]
        units = tuple(Unit(*unit) for unit in about["units"])
        source = DataSource.model_validate(about["source"])
        if kind == "grouped":
            return GroupedPart(path, tuple(about["wanted"]), source, task, units, number, self._decoded)
        if kind == "placed":
            opened = partial(open_columns, path, SourceFiles(source, about["key"], (path,), about["format"]), task)
            places = self.place / PLACES
            return PlacedPart(opened, path, trim_of(task), units, self._files, places, about["first"], about["pieces"])
        return CopiedPart(self._copied_texts, self._copied_targets, units, about["first"])


class StreamedTexts(TextStore):
    """One side of StreamedRows."""

    def __init__(self, rows: StreamedRows, side: int) -> None:
        """`side`: 0 for the text, 1 for the target."""
        self.rows = rows
        self._side = side

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> str:
        text = self.rows.row(number)[self._side]
        assert text is not None
        return text

    @property
    def lengths(self) -> np.ndarray:
        return np.fromfile(self.rows.place / LENGTHS[self._side], LENGTH).astype(np.int64)


# StreamedProteins: sequences as token numbers, read while training.


class StreamedProteins:
    """Sequences of a store of texts, each cut and encoded when it is asked for."""

    def __init__(self, texts: TextStore, letters: int) -> None:
        """`letters`: most of one sequence."""
        self.texts = texts
        self._letters = letters

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64: letters of each sequence."""
        lengths: np.ndarray = np.minimum(self.texts.lengths, self._letters)
        return lengths

    def letters(self, row: int) -> np.ndarray:
        """(n,) uint8: token numbers of one sequence."""
        raw = self.texts[row][: self._letters].encode("utf-8")
        found: np.ndarray = LETTERS[np.frombuffer(raw, np.uint8)]
        return found
