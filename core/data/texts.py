"""The training rows of a run as texts: in memory, or streamed from their files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from trainwiz.core.config import RunConfig
from trainwiz.core.config.values import RowKind
from trainwiz.core.data.chats import last_answer
from trainwiz.core.data.formats import format_of
from trainwiz.core.data.lengths import held_out_count, split_rows, trains_on_chats
from trainwiz.core.data.parquet import ParquetReader
from trainwiz.core.data.rows import KeptRows, SourceTally, has_target, open_columns, read_rows
from trainwiz.core.data.sources import SourceFiles, all_sources, find_files, target_findings
from trainwiz.core.data.streamed import (
    COPIES,
    INDEX_JSON,
    LENGTH,
    LENGTHS,
    PLACE,
    PLACES,
    StreamedRows,
    StreamedTexts,
    Windows,
)
from trainwiz.core.data.text_store import SPECIAL_TOKENS, Collector, TextStore, TextWriter, file_lock
from trainwiz.core.errors import CannotRunError, Finding, UsageError, has_errors, os_reason, sort_findings
from trainwiz.core.files import ROWS
from trainwiz.core.language import tr

# The training rows of a run as texts, in memory or streamed from their files.


@dataclass(frozen=True, slots=True)
class TextRows:
    """All rows of a run, and which of them train and which evaluate."""

    texts: TextStore
    """Text, prompt, source or sequence of each row."""
    targets: TextStore | None
    """Response or target of each row, of the same length as `texts`; None where rows have none."""
    train: np.ndarray
    """(n,) int64: rows that train, ascending."""
    held_out: np.ndarray
    """(m,) int64: rows for evaluation, ascending."""
    windows: Windows | None = None
    """Order of all rows where they are streamed."""
    folder: Path | None = None
    """Where files beside streamed rows may be kept."""
    are_chats: bool = False
    """Each text is a chat as core/data/chats.py keeps it."""

    @property
    def in_pieces(self) -> bool:
        """Whether the rows are read piece by piece: they are streamed, and more than one window."""
        return self.windows is not None and self.windows.several

    def lengths_of(self, task: RowKind, rows: np.ndarray) -> np.ndarray:
        """(n,) int64: UTF-8 bytes of each of `rows`, for arranging them by length. An encoder-decoder pads
        both sides, and the longer one counts."""
        lengths = self.texts.lengths
        if self.targets is not None:
            lengths = np.maximum(lengths, self.targets.lengths) if task == "seq2seq" else lengths + self.targets.lengths
        of_rows: np.ndarray = lengths[rows]
        return of_rows

    def windows_of_training(self) -> Windows | None:
        return None if self.windows is None else self.windows.of_rows(self.train)


class LastAnswers(TextStore):
    """What the assistant says last in each of some chats."""

    def __init__(self, chats: TextStore) -> None:
        self._chats = chats

    def __len__(self) -> int:
        return len(self._chats)

    def __getitem__(self, number: int) -> str:
        return last_answer(self._chats[number])

    @property
    def lengths(self) -> np.ndarray:
        return self._chats.lengths


def load_text_rows(config: RunConfig, folder: Path) -> TextRows:
    """Read every source of a run; relative paths are from `folder`, the run folder.

    Rows have the same numbers with and without data.streaming. Streamed ones get an index, written once to
    `folder`/.rows, where further processes and a resumed run find it, unless a source, a filter or a file has
    changed. Proteins in memory are cut to sequence_length - 2 letters. A hub data set that is not in the local
    cache is downloaded. Raises UsageError with all that is wrong with any source, CannotRunError where the
    index cannot be written.
    """
    train, held = all_sources(config)
    found: list[SourceFiles] = []
    findings = target_findings(config)
    for key, source in (*train, *held):
        try:
            found.append(find_files(source, key, folder, task=config.row_kind, fetch=True))
        except UsageError as error:
            findings.extend(error.findings)
    if findings:
        raise UsageError(sort_findings(findings))
    if config.data.streaming:
        return _streamed(config, found, len(train), folder)
    sides = [Collector() for _ in range(1 + _has_targets(config, found))]
    letters = config.batch.sequence_length - SPECIAL_TOKENS

    def keep(files: SourceFiles, kept: KeptRows) -> None:
        for collected, side in zip(sides, kept.sides, strict=False):
            collected.add(pc.utf8_slice_codeunits(side, 0, letters) if config.row_kind == "proteins" else side)

    training = _read(config, found, len(train), keep)
    texts, *targets = (collected.finish() for collected in sides)
    numbers = _split(config, training, len(texts))
    return TextRows(texts, targets[0] if targets else None, *numbers, are_chats=trains_on_chats(config))


def _has_targets(config: RunConfig, found: list[SourceFiles]) -> bool:
    return any(has_target(files.source, config.row_kind) for files in found)


def _split(config: RunConfig, training: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows that train, rows for evaluation): those of their own sources, which come last, or held out of the others."""
    if config.data.validation_sources:
        return np.arange(training), np.arange(training, rows)
    return split_rows(training, held_out_count(training, config.data), config.training.seed)


def _read(
    config: RunConfig, found: list[SourceFiles], training: int, keep: Callable[[SourceFiles, KeptRows], None]
) -> int:
    """Hand all rows to `keep`, in order; how many of them are of the first `training` sources. Raises UsageError with
    all that is wrong with any source."""
    findings: list[Finding] = []
    rows = rows_that_train = 0
    for number, files in enumerate(found):
        tally = SourceTally()
        for kept in read_rows(files, tally, config.row_kind, placed=bool(config.data.streaming)):
            keep(files, kept)
            rows += len(kept.texts)
        findings.extend(tally.findings)
        rows_that_train = rows if number < training else rows_that_train
    if has_errors(findings):
        raise UsageError(sort_findings(findings))
    return rows_that_train


# The index of streamed rows: how many each piece of a file gives, and where each row of a text file stands. Written in one
# pass, with the texts of files that cannot be read in the middle.

UNIT_BYTES = 32 << 20
"""A unit ends with the batch of rows that fills it. Most row groups are smaller, and one unit."""
BYTES_PER_ROW = 2 * LENGTH.itemsize + 2 * PLACE.itemsize
"""Lengths of both sides, and the place of the row; a parquet file has no places."""
TOKEN_BYTES = 4
"""Of texts that are joined: their tokens are written once."""


def index_bytes(files: Sequence[Path], kind: str | None, rows: int, text_bytes: int) -> int:
    """At most so much beside the run for streamed rows of these files, which hold `text_bytes` of texts."""
    sizes = {path: path.stat().st_size for path in files if path.is_file()}
    # Packed files, arrays and quoted cells: there rows are told only by what stands before them.
    whole = [path for path in sizes if path.name.endswith((".gz", ".json")) or (kind or format_of(path)) == "csv"]
    copied = sum(sizes[path] for path in whole)
    return rows * BYTES_PER_ROW + int(copied / max(sum(sizes.values()), 1) * text_bytes)


class IndexWriter:
    """Takes the kept rows in order and writes an index folder."""

    def __init__(self, folder: Path, task: RowKind, *, targets: bool) -> None:
        """`folder` exists and is empty. Raises OSError, as all methods do when the disk is full."""
        self.rows = 0
        self._folder = folder
        self._task = task
        self._parts: list[dict[str, Any]] = []
        self._group_ends: np.ndarray | None = None
        self._files: SourceFiles | None = None
        self._lengths = [(folder / name).open("wb") for name in LENGTHS[: 1 + targets]]
        self._copies = [TextWriter(folder / name) for name in COPIES[: 1 + targets]]
        self._places = (folder / PLACES).open("wb")

    def add(self, files: SourceFiles, kept: KeptRows) -> None:
        if self._files is not files or self._parts[-1]["path"] != str(kept.path):
            self._files = files
            self._parts.append(self._part_of(files, kept))
        units = self._parts[-1]["units"]
        full = not units or units[-1][1] >= UNIT_BYTES
        if self._group_ends is not None:
            group = int(np.searchsorted(self._group_ends, kept.positions[0]))
            full = full or units[-1][2] != group
        else:
            # After the first unit each batch is one, and the first two are one run: the order of all runs so far.
            group = max(len(units) - 1, 0)
            full = full or len(units) > 1
        if full:
            units.append([0, 0, group, int(kept.positions[0])])
        for number, side in enumerate(kept.sides):
            lengths = np.diff(np.frombuffer(side.buffers()[1], np.int64)[side.offset : side.offset + len(side) + 1])
            self._lengths[number].write(lengths.astype(LENGTH).tobytes())
            units[-1][1] += int(lengths.sum())
            if self._parts[-1]["kind"] == "copied":
                self._copies[number].add(side)
        if kept.places is not None:
            self._places.write(np.ascontiguousarray(kept.places, PLACE).tobytes())
        units[-1][0] += len(kept.texts)
        self.rows += len(kept.texts)

    def _part_of(self, files: SourceFiles, kept: KeptRows) -> dict[str, Any]:
        source = files.source.model_dump(mode="json")
        about: dict[str, Any] = {"path": str(kept.path), "format": files.kind, "key": files.key, "source": source}
        about["units"] = []
        self._group_ends = None
        if kept.places is not None:
            return {**about, "kind": "placed", "first": self._places.tell()}
        reader, _ = open_columns(kept.path, files, self._task)
        if isinstance(reader, ParquetReader):
            self._group_ends = reader.group_ends
            return {**about, "kind": "grouped"}
        return {**about, "kind": "copied", "first": self._copies[0].rows}

    def finish(self, training_rows: int) -> None:
        """`training_rows`: rows of data.sources; those of data.validation_sources follow them."""
        self.close()
        document = {"task": self._task, "training_rows": training_rows, "parts": self._parts}
        (self._folder / INDEX_JSON).write_text(json.dumps(document), encoding="utf-8")

    def close(self) -> None:
        for file in (*self._lengths, self._places):
            file.close()
        for writer in self._copies:
            writer.close()


# From the sources of a run to its StreamedRows: the index is made by whichever process comes first.

VERSION = 3
"""Part of the key of a kept index: raised when the same files would give other rows."""


def _streamed(config: RunConfig, found: list[SourceFiles], training: int, folder: Path) -> TextRows:
    """Of which the first `training` sources train."""
    place = folder / ROWS / _digest(config, found, training)
    try:
        with file_lock(folder / ROWS / "lock") as alone:
            if not place.is_dir():
                if alone:
                    _clear(place.parent)
                _build(config, found, training, place)
            rows = StreamedRows(place)
            numbers = _split(config, rows.training_rows, len(rows))
            if not config.data.validation_sources:
                rows.set_aside(numbers[1])
            chats = trains_on_chats(config)
            texts, *targets = (StreamedTexts(rows, side) for side in range(rows.sides))
            return TextRows(texts, targets[0] if targets else None, *numbers, rows.windows(), place, are_chats=chats)
    except OSError as error:
        message = tr(
            "The rows cannot be stored in {folder}: {reason}; free some space there, or load them into memory "
            "(data.streaming: false).",
            folder=folder / ROWS,
            reason=os_reason(error),
        )
        raise CannotRunError(Finding("cannot_stream", "error", "data.streaming", message)) from None


def _clear(folder: Path) -> None:
    """Remove the index of an earlier version of the data, and what a killed process left half written."""
    for old in folder.iterdir():
        if old.is_dir():
            shutil.rmtree(old)


def _build(config: RunConfig, found: list[SourceFiles], training: int, place: Path) -> None:
    part = place.with_name(f"{place.name}.{os.getpid()}.part")
    part.mkdir()
    writer = IndexWriter(part, config.row_kind, targets=_has_targets(config, found))
    try:
        writer.finish(_read(config, found, training, writer.add))
        if not place.is_dir():
            part.rename(place)
    except BaseException:
        writer.close()
        shutil.rmtree(part, ignore_errors=True)
        raise


def _digest(config: RunConfig, found: list[SourceFiles], training: int) -> str:
    """Name of the index that these sources, filters and files give."""
    described = [
        {
            "source": files.source.model_dump(mode="json"),
            "files": [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files.files],
        }
        for files in found
    ]
    whole = json.dumps([VERSION, config.row_kind, training, described], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]
