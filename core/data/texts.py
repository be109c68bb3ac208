"""The training rows of a run as texts: in memory, or streamed from a copy beside the run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from trainwiz.core.config import RunConfig
from trainwiz.core.config.values import RowKind
from trainwiz.core.data.chats import last_answer
from trainwiz.core.data.lengths import Windows, held_out_count, split_rows, trains_on_chats
from trainwiz.core.data.rows import SourceTally, has_target, read_rows
from trainwiz.core.data.sources import SourceFiles, all_sources, find_files, target_findings
from trainwiz.core.data.text_store import (
    SPECIAL_TOKENS,
    FileTexts,
    TextStore,
    TextWriter,
    file_lock,
    memory_texts,
    text_files,
)
from trainwiz.core.errors import CannotRunError, Finding, UsageError, has_errors, os_reason, sort_findings
from trainwiz.core.files import ROWS, read_small
from trainwiz.core.language import tr


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
    folder: Path | None = None
    """Where streamed rows lie, and files beside them may be kept."""
    are_chats: bool = False
    """Each text is a chat as core/data/chats.py keeps it."""

    def lengths_of(self, task: RowKind, rows: np.ndarray) -> np.ndarray:
        """(n,) int64: UTF-8 bytes of each of `rows`, for arranging them by length. An encoder-decoder pads
        both sides, and the longer one counts."""
        lengths = self.texts.lengths
        if self.targets is not None:
            lengths = np.maximum(lengths, self.targets.lengths) if task == "seq2seq" else lengths + self.targets.lengths
        of_rows: np.ndarray = lengths[rows]
        return of_rows

    def windows_of_training(self) -> Windows | None:
        """The order of the rows that train, where they are streamed."""
        if self.folder is None:
            return None
        lengths = self.texts.lengths if self.targets is None else self.texts.lengths + self.targets.lengths
        return Windows(lengths[self.train])


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

    Rows have the same numbers with and without data.streaming. Streamed ones are copied once to `folder`/.rows, where
    further processes and a resumed run find them, unless a source, a filter or a file has changed. Proteins are cut to
    sequence_length - 2 letters. A hub data set that is not in the local cache is downloaded. Raises UsageError with all
    that is wrong with any source, CannotRunError where the copy cannot be written.
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
    sides = [(BytesIO(), BytesIO()) for _ in _sides(config, found)]
    training = _read(config, found, len(train), [TextWriter(*side) for side in sides])
    return _rows(config, [memory_texts(*side) for side in sides], training, None)


def _sides(config: RunConfig, found: Sequence[SourceFiles]) -> tuple[str, ...]:
    has_targets = any(has_target(files.source, config.row_kind) for files in found)
    return ("texts", "targets") if has_targets else ("texts",)


def _read(config: RunConfig, found: Sequence[SourceFiles], training: int, sides: Sequence[TextWriter]) -> int:
    """Add all rows to `sides`, in order; how many of them are of the first `training` sources. Raises UsageError with
    all that is wrong with any source."""
    letters = config.batch.sequence_length - SPECIAL_TOKENS
    findings: list[Finding] = []
    rows_that_train = 0
    for number, files in enumerate(found):
        tally = SourceTally()
        for kept in read_rows(files, tally, config.row_kind):
            for side, texts in zip(sides, kept.sides, strict=True):
                side.add(pc.utf8_slice_codeunits(texts, 0, letters) if config.row_kind == "proteins" else texts)
            rows_that_train += len(kept.texts) if number < training else 0
        findings.extend(tally.findings)
    if has_errors(findings):
        raise UsageError(sort_findings(findings))
    return rows_that_train


def _rows(config: RunConfig, sides: Sequence[TextStore], training: int, folder: Path | None) -> TextRows:
    """Those for evaluation are of their own sources, which come last, or held out of the `training` rows."""
    if config.data.validation_sources:
        split = np.arange(training), np.arange(training, len(sides[0]))
    else:
        split = split_rows(training, held_out_count(training, config.data), config.training.seed)
    return TextRows(sides[0], sides[1] if len(sides) > 1 else None, *split, folder, trains_on_chats(config))


# The copy of streamed rows: made by whichever process comes first.

VERSION = 4
"""Part of the name of a copy: raised when the same files would give other rows."""
TRAINING_ROWS = "training-rows"


def _streamed(config: RunConfig, found: Sequence[SourceFiles], training: int, folder: Path) -> TextRows:
    """Of which the first `training` sources train."""
    place = folder / ROWS / _digest(config, found, training)
    try:
        with file_lock(folder / ROWS / "lock") as alone:
            if not place.is_dir():
                if alone:
                    _clear(place.parent)
                _write(config, found, training, place)
        sides = [FileTexts(place / side) for side in _sides(config, found)]
        return _rows(config, sides, int(read_small(place / TRAINING_ROWS)), place)
    except OSError as error:
        message = tr(
            "The rows cannot be stored in {folder}: {reason}; free some space there, or load them into memory "
            "(data.streaming: false).",
            folder=folder / ROWS,
            reason=os_reason(error),
        )
        raise CannotRunError(Finding("cannot_stream", "error", "data.streaming", message)) from None


def _clear(folder: Path) -> None:
    """Remove the copy of an earlier version of the data, and what a killed process left half written."""
    for old in folder.iterdir():
        if old.is_dir():
            shutil.rmtree(old)


def _write(config: RunConfig, found: Sequence[SourceFiles], training: int, place: Path) -> None:
    part = place.with_name(f"{place.name}.{os.getpid()}.part")
    part.mkdir()
    try:
        with ExitStack() as stack:
            writers = [
                TextWriter(*(stack.enter_context(file.open("wb")) for file in text_files(part / side)))
                for side in _sides(config, found)
            ]
            rows = _read(config, found, training, writers)
        (part / TRAINING_ROWS).write_text(str(rows), encoding="utf-8")
        if not place.is_dir():
            part.rename(place)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _digest(config: RunConfig, found: Sequence[SourceFiles], training: int) -> str:
    """Name of the copy that these sources, filters and files give."""
    described = [
        {
            "source": files.source.model_dump(mode="json"),
            "files": [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files.files],
        }
        for files in found
    ]
    cut = config.batch.sequence_length if config.row_kind == "proteins" else None
    whole = json.dumps([VERSION, config.row_kind, cut, training, described], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]
