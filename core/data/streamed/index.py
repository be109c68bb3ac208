"""The index of streamed rows: how many each piece of a file gives, and what is copied once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import IO, Any

import numpy as np
from trainwiz.core.config.values import Task
from trainwiz.core.data.formats import format_of
from trainwiz.core.data.parquet import ParquetReader
from trainwiz.core.data.rows import KeptRows, open_columns
from trainwiz.core.data.sources import SourceFiles
from trainwiz.core.data.streamed.parts import PLACE, Part, Row, Unit
from trainwiz.core.data.text_store import TextStore, TextWriter

# What reading rows while training takes on disk.

INDEX_BYTES_PER_ROW = 2 * 4 + 2 * 2 * 8
"""Lengths of both sides, and the places of both; a parquet file has no places, a line of text has one."""
TOKEN_BYTES = 4
"""Of texts that are joined: their tokens are written once."""


def index_bytes(files: Sequence[Path], kind: str | None, rows: int, text_bytes: int) -> int:
    """At most so much beside the run for streamed rows of these files, which hold `text_bytes` of texts."""
    sizes = [(path, path.stat().st_size) for path in files if path.is_file()]
    copied = sum(size for path, size in sizes if may_be_copied(path, kind))
    share = copied / max(sum(size for _, size in sizes), 1)
    return rows * INDEX_BYTES_PER_ROW + int(share * text_bytes)


def may_be_copied(path: Path, kind: str | None) -> bool:
    """Whether rows may be told only by what stands before them, as far as the name says: quotes, packing, arrays."""
    return path.name.endswith((".gz", ".json")) or (kind or format_of(path)) == "csv"


# Rows of files that cannot be read in the middle (gzip, JSON arrays, CSV with quotes): copied once.


class CopiedPart(Part):
    """The rows of one file, among the texts of all that were copied."""

    def __init__(self, texts: TextStore, targets: TextStore | None, units: tuple[Unit, ...], first: int) -> None:
        """`first`: number of the first row in `texts` and `targets`."""
        self.units = units
        self._first = first
        self._texts = texts
        self._targets = targets

    def row(self, number: int) -> Row:
        place = self._first + number
        return self._texts[place], None if self._targets is None else self._targets[place]


# The index of streamed rows: how many each piece of a file gives. Written in one pass over the data, without its texts.

UNIT_BYTES = 32 << 20
"""A unit ends with the batch of rows that fills it. Most row groups are smaller, and one unit."""
INDEX_JSON = "index.json"
LENGTHS = ("texts.lengths", "targets.lengths")
LENGTH = np.dtype("<u4")
PLACES = "places"
COPIES = ("copied-texts", "copied-targets")


class IndexWriter:
    """Takes the kept rows in order and writes an index folder."""

    def __init__(self, folder: Path, task: Task, *, targets: bool) -> None:
        """`folder` exists and is empty. Raises OSError, as all methods do when the disk is full."""
        self.rows = 0
        self._folder = folder
        self._task = task
        self._parts: list[dict[str, Any]] = []
        self._part: _Part | None = None
        self._files: SourceFiles | None = None
        self._lengths = [(folder / name).open("wb") for name in LENGTHS[: 1 + targets]]
        self._places = (folder / PLACES).open("wb")
        self._copies = [TextWriter(folder / name) for name in COPIES[: 1 + targets]]

    def begin(self, files: SourceFiles) -> None:
        """The rows of another source follow."""
        self._end_part()
        self._files = files

    def add(self, kept: KeptRows) -> None:
        if self._part is None or self._part.path != kept.path:
            self._end_part()
            self._part = self._begin_part(kept)
        sides = [kept.texts] if kept.targets is None else [kept.texts, kept.targets]
        size = 0
        for file, side in zip(self._lengths, sides, strict=False):
            lengths = np.diff(np.frombuffer(side.buffers()[1], np.int64)[side.offset : side.offset + len(side) + 1])
            file.write(lengths.astype(LENGTH).tobytes())
            size += int(lengths.sum())
        self._part.add(kept, size)
        self.rows += len(kept.texts)

    def finish(self, training_rows: int) -> None:
        """`training_rows`: rows of data.sources; those of data.validation_sources follow them."""
        self._end_part()
        self.close()
        document = {"task": self._task, "training_rows": training_rows, "parts": self._parts}
        (self._folder / INDEX_JSON).write_text(json.dumps(document), encoding="utf-8")

    def close(self) -> None:
        for file in (*self._lengths, self._places):
            file.close()
        for writer in self._copies:
            writer.close()

    def _begin_part(self, kept: KeptRows) -> _Part:
        assert self._files is not None
        if kept.places is not None:
            return _Placed(kept, self._places)
        reader, wanted = open_columns(kept.path, self._files, self._task)
        if isinstance(reader, ParquetReader):
            return _Grouped(kept, reader, wanted)
        return _Copied(kept, self._copies)

    def _end_part(self) -> None:
        if self._part is None or self._files is None:
            return
        about = {"path": str(self._part.path), "format": self._files.kind, "key": self._files.key}
        source = self._files.source.model_dump(mode="json")
        units = [list(astuple(unit)) for unit in self._part.finished()]
        self._parts.append({**about, "source": source, "units": units, **self._part.about})
        self._part = None


class _Part:
    """One file: its rows are counted in units."""

    def __init__(self, kept: KeptRows) -> None:
        self.path = kept.path
        self.about: dict[str, Any] = {}
        self._units: list[Unit] = []
        self._rows = self._bytes = self._group = self._first = 0

    def add(self, kept: KeptRows, size: int) -> None:
        group = self._group_of(kept)
        if self._rows and (group != self._group or self._bytes >= UNIT_BYTES):
            self._end_unit()
        if not self._rows:
            self._group, self._first = group, int(kept.positions[0])
        self._rows += len(kept.texts)
        self._bytes += size
        self._keep(kept)

    def finished(self) -> list[Unit]:
        if self._rows:
            self._end_unit()
        return self._units

    def _end_unit(self) -> None:
        self._units.append(Unit(self._rows, self._bytes, self._group, self._first))
        self._rows = self._bytes = 0

    def _group_of(self, kept: KeptRows) -> int:
        """Units of one group are read one after another."""
        return len(self._units)

    def _keep(self, kept: KeptRows) -> None:
        """Write what the rows are found by."""


class _Grouped(_Part):
    def __init__(self, kept: KeptRows, reader: ParquetReader, wanted: list[int]) -> None:
        super().__init__(kept)
        self.about = {"kind": "grouped", "wanted": wanted}
        self._ends = reader.group_ends()

    def _group_of(self, kept: KeptRows) -> int:
        return int(np.searchsorted(self._ends, kept.positions[0]))


class _Placed(_Part):
    def __init__(self, kept: KeptRows, places: IO[bytes]) -> None:
        super().__init__(kept)
        assert kept.places is not None
        self.about = {"kind": "placed", "pieces": kept.places.shape[1], "first": places.tell()}
        self._file = places

    def _keep(self, kept: KeptRows) -> None:
        assert kept.places is not None
        self._file.write(np.ascontiguousarray(kept.places, PLACE).tobytes())


class _Copied(_Part):
    def __init__(self, kept: KeptRows, copies: list[TextWriter]) -> None:
        super().__init__(kept)
        self.about = {"kind": "copied", "first": copies[0].rows}
        self._copies = copies

    def _keep(self, kept: KeptRows) -> None:
        for writer, side in zip(self._copies, (kept.texts, kept.targets), strict=False):
            if side is not None:
                writer.add(side)
