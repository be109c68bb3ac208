"""Rows of one source after its filters, and what was noticed on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from trainwiz.core.config import DataSource
from trainwiz.core.config.values import Task
from trainwiz.core.data.blocks import spread
from trainwiz.core.data.columns import chooses_by_position, find_columns
from trainwiz.core.data.formats import open_reader
from trainwiz.core.data.proteins import trim_proteins
from trainwiz.core.data.reader import PlacedReader, Reader
from trainwiz.core.data.sources import SourceFiles
from trainwiz.core.data.tally import Place, SourceTally
from trainwiz.core.errors import UsageError

FIRST_ROWS = 5
SMALL_BYTES, SMALL_PACKED_BYTES = 8 << 20, 2 << 20
"""A file up to this size is read whole in a fraction of a second: sorted ones make a poor sample."""
SAMPLED_FILES, SHARDS_BYTES = 16, 64 << 20
"""Of more files, with more bytes together, so many are read, spread over all; the others are opened."""
NAMED_FILES = 20
"""Broken files of one source that are named; the others are counted: a folder may hold 100,000."""
NEARLY_READ = 0.9
"""Share of a file's bytes above which the rest is read too: buffers run ahead of the rows."""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Some rows of one file that pass the filters: no nulls, nothing empty."""

    texts: pa.Array
    """LargeStringArray (n,)."""
    targets: pa.Array | None
    """LargeStringArray (n,), None where the source has no targets."""
    positions: np.ndarray
    """(n,) int64: row or line numbers, from 1."""
    path: Path
    unit: str
    line_of: Callable[[int, int], int]
    """(position of a row, index of a letter in its text) -> position of the letter."""
    places: np.ndarray | None = None
    """(n, p, 2) int64: see ColumnBatch; None unless they were asked for."""

    def only(self, chosen: pa.Array) -> KeptRows:
        """The rows whose entry in `chosen`, a BooleanArray (n,), is true."""
        mask = chosen.to_numpy(zero_copy_only=False)
        targets = None if self.targets is None else self.targets.filter(chosen)
        places = None if self.places is None else self.places[mask]
        return replace(
            self, texts=self.texts.filter(chosen), targets=targets, positions=self.positions[mask], places=places
        )

    def first(self, count: int) -> KeptRows:
        targets = None if self.targets is None else self.targets.slice(0, count)
        places = None if self.places is None else self.places[:count]
        return replace(
            self, texts=self.texts.slice(0, count), targets=targets, positions=self.positions[:count], places=places
        )


def has_target(source: DataSource, task: Task) -> bool:
    """Whether the rows of a source have a target side: always for seq2seq, for causal-lm where a column is named."""
    return task == "seq2seq" or (task == "causal-lm" and source.target_column is not None)


def read_rows(
    files: SourceFiles, tally: SourceTally, task: Task, *, limit: int | None = None, placed: bool = False
) -> Iterator[KeptRows]:
    """The kept rows of all files of a source; `limit` reads about that many, spread over the files.

    `placed` rows know their places in the files that can be read row by row.

    A broken file adds its sentence to `tally.findings` and the next file goes on, so that one
    pass finds everything.
    """
    source = files.source
    chosen = set(range(len(files.files)))
    if limit is not None and source.max_rows is None and _bytes(files) > SHARDS_BYTES:
        chosen = set(spread(len(files.files), SAMPLED_FILES))
    each = None if limit is None else max(limit // len(chosen), 200)
    rest = _Rest()
    broken = 0
    for number, path in enumerate(files.files):
        if source.max_rows is not None and tally.rows >= source.max_rows:
            break
        try:
            if number in chosen:
                yield from _file_rows(path, files, tally, task, each, placed=placed)
            else:
                rest.add(path, open_columns(path, files, task)[0])
        except UsageError as error:
            broken += 1
            if broken <= NAMED_FILES:
                tally.findings.extend(error.findings)
    if broken > NAMED_FILES:
        tally.add_broken(source, files.key, broken - NAMED_FILES)
    rest.count(tally)
    if source.max_rows is not None:
        tally.rows = min(tally.rows, source.max_rows)
    tally.conclude(source, files.key)


@dataclass(slots=True)
class _Rest:
    """Files of a source with many that are opened and not read."""

    rows: int = 0
    """Of those that say how many they have."""
    bytes: int = 0
    """Of the others."""
    bytes_on_disk: int = 0

    def add(self, path: Path, reader: Reader) -> None:
        size = path.stat().st_size
        self.bytes_on_disk += size
        self.rows += reader.rows or 0
        self.bytes += size if reader.rows is None else 0

    def count(self, tally: SourceTally) -> None:
        """Adds their rows, as many of them kept as of those that were read."""
        kept = tally.kept / max(1, tally.seen)
        like_these = self.bytes * tally.rows / max(1, tally.bytes_on_disk)
        tally.rows += round(self.rows * kept + like_these)
        tally.bytes_on_disk += self.bytes_on_disk
        if self.bytes_on_disk:
            tally.sampled = True
            tally.exact = tally.exact and not self.bytes and tally.kept == tally.seen


def _bytes(files: SourceFiles) -> int:
    return sum(path.stat().st_size for path in files.files if path.is_file())


def _file_rows(
    path: Path, files: SourceFiles, tally: SourceTally, task: Task, limit: int | None, *, placed: bool
) -> Iterator[KeptRows]:
    source = files.source
    reader, wanted = open_columns(path, files, task)
    size = path.stat().st_size
    if size <= (SMALL_PACKED_BYTES if path.name.endswith((".gz", ".parquet")) else SMALL_BYTES):
        limit = None
    tally.bytes_on_disk += size
    if not tally.columns:
        tally.columns = tuple(column.name for column in reader.columns)
        # A sample jumps over the first rows of a large file; what is broken there is found here.
        reader.head(FIRST_ROWS)
    trim = trim_of(task)
    seen = kept = 0
    complete = True
    if placed and isinstance(reader, PlacedReader) and reader.has_places():
        reads = reader.placed(wanted)
    elif limit is not None and source.max_rows is not None and source.max_rows - tally.rows <= limit:
        # Training takes the first ones.
        reads = reader.batches(wanted)
    else:
        reads = reader.batches(wanted) if limit is None else reader.sample(wanted, limit)
    for batch in reads:
        seen += len(batch.positions)
        tally.sampled = tally.sampled or reader.partial
        values = [trim(column) for column in batch.values]
        targets = values[1] if len(values) > 1 else None
        whole = KeptRows(values[0], targets, batch.positions, path, reader.unit, reader.line_of, batch.places)
        rows = _filtered(whole, source, tally)
        if source.max_rows is not None and tally.rows + kept + len(rows.texts) >= source.max_rows:
            room = source.max_rows - tally.rows - kept
            yield rows.first(room)
            kept += room
            break
        kept += len(rows.texts)
        if len(rows.texts):
            yield rows
        if limit is not None and not reader.partial and seen >= limit and reader.share_read() < NEARLY_READ:
            complete = False
            break
    else:
        complete = not reader.partial
    tally.seen += seen
    tally.kept += kept
    if complete:
        tally.rows += kept
    elif seen:
        total = reader.rows if reader.rows is not None else round(seen / max(reader.share_read(), 1e-9))
        tally.rows += round(total * kept / seen)
        tally.exact = tally.exact and reader.rows is not None and kept == seen


def open_columns(path: Path, files: SourceFiles, task: Task) -> tuple[Reader, list[int]]:
    """The opened file and the positions of its text column and, where rows have targets, of its target column.

    Raises UsageError for a file that cannot be opened and for columns that it does not have.
    """
    source = files.source
    reader = open_reader(path, files.kind, by_position=chooses_by_position(source))
    return reader, find_columns(reader.columns, source, str(path), files.key, task, has_target(source, task))


def trim_of(task: Task) -> Callable[[pa.Array], pa.Array]:
    """What is taken from the ends of the texts of a task before they are measured."""
    return trim_proteins if task == "masked-lm" else pc.utf8_trim_whitespace


def within_limits(texts: pa.Array, targets: pa.Array | None, source: DataSource) -> tuple[np.ndarray, ...]:
    """(which rows hold something, which rows are kept, characters of the longer side), (n,) each.

    A row is kept whose text, and target where there is one, is neither empty nor outside the length limits.
    """
    sides = [texts] if targets is None else [texts, targets]
    lengths = np.stack([pc.fill_null(pc.utf8_length(side), 0).to_numpy(zero_copy_only=False) for side in sides])
    full = lengths.min(axis=0) > 0
    keep = full
    if source.min_characters is not None:
        keep = keep & (lengths.min(axis=0) >= source.min_characters)
    if source.max_characters is not None:
        keep = keep & (lengths.max(axis=0) <= source.max_characters)
    return full, keep, lengths.max(axis=0)


def _filtered(rows: KeptRows, source: DataSource, tally: SourceTally) -> KeptRows:
    full, keep, characters = within_limits(rows.texts, rows.targets, source)
    place = Place(rows.path, rows.unit, rows.positions)
    tally.add_empty(place, ~full)
    tally.add_lengths(place, np.where(keep, characters, 0))
    return rows if keep.all() else rows.only(pa.array(keep))
