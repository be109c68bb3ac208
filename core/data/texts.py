"""The training rows of a run as texts: in memory, or streamed from their files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from trainwiz.core.config import DataSource, RunConfig
from trainwiz.core.config.values import Task
from trainwiz.core.data.lengths import held_out_count, split_rows
from trainwiz.core.data.rows import KeptRows, SourceTally, has_target, read_rows
from trainwiz.core.data.sources import SourceFiles, all_sources, find_files, target_findings
from trainwiz.core.data.streamed.index import IndexWriter
from trainwiz.core.data.streamed.rows import StreamedRows, Windows
from trainwiz.core.data.text_store import TextStore, TextWriter, file_lock
from trainwiz.core.errors import CannotRunError, Finding, UsageError, has_errors, os_reason, sort_findings
from trainwiz.core.files import ROWS
from trainwiz.core.language import tr

# From the sources of a run to its StreamedRows: the index is made by whichever process comes first.

VERSION = 3
"""Part of the key of a kept index: raised when the same files would give other rows."""
Check = Callable[[], tuple[Callable[[KeptRows], None], Callable[[str], list[Finding]]]]
"""Makes, for one source, what sees its rows while they are counted, and what then says (of its key) what is wrong."""


def streamed_rows(
    config: RunConfig,
    found: list[SourceFiles],
    training: int,
    folder: Path,
    check: Check | None = None,
) -> tuple[StreamedRows, tuple[np.ndarray, np.ndarray]]:
    """(rows, (numbers of those that train, of those held out)), of which the first `training` sources train.

    Raises UsageError with all that is wrong with any source, CannotRunError where
    the index cannot be written to `folder`/.rows.
    """
    place = folder / ROWS / _digest(config, found, training)
    try:
        with file_lock(folder / ROWS / "lock") as alone:
            if not place.is_dir():
                if alone:
                    _clear(place.parent)
                _build(config, found, training, place, check)
            rows = StreamedRows(place)
            count = rows.training_rows
            if len(rows) > count:
                return rows, (np.arange(count), np.arange(count, len(rows)))
            numbers = split_rows(count, held_out_count(count, config.data), config.training.seed)
            rows.set_aside(numbers[1])
            return rows, numbers
    except OSError as error:
        raise CannotRunError(
            Finding(
                "cannot_stream",
                "error",
                "data.streaming",
                tr(
                    "the rows cannot be kept in {folder}: {reason}; free some space there, or read them into "
                    "memory with data.streaming: false.",
                    folder=folder / ROWS,
                    reason=os_reason(error),
                ),
            )
        ) from None


def _clear(folder: Path) -> None:
    """Remove the index of an earlier version of the data, and what a killed process left half written."""
    for old in folder.iterdir():
        if old.is_dir():
            shutil.rmtree(old)


def _build(
    config: RunConfig,
    found: list[SourceFiles],
    training: int,
    place: Path,
    check: Check | None,
) -> None:
    part = place.with_name(f"{place.name}.{os.getpid()}.part")
    part.mkdir()
    targets = any(has_target(files.source, config.task) for files in found)
    writer = IndexWriter(part, config.task, targets=targets)
    findings: list[Finding] = []
    rows = 0
    try:
        for number, files in enumerate(found):
            tally = SourceTally()
            see, said = check() if check is not None else (_ignore, _nothing)
            writer.begin(files)
            for kept in read_rows(files, tally, config.task, placed=True):
                see(kept)
                writer.add(kept)
            findings.extend([*tally.findings, *said(files.key)])
            rows = writer.rows if number < training else rows
        if has_errors(findings):
            raise UsageError(sort_findings(findings))
        writer.finish(rows)
        if not place.is_dir():
            part.rename(place)
    except BaseException:
        writer.close()
        shutil.rmtree(part, ignore_errors=True)
        raise


def _ignore(kept: KeptRows) -> None:
    """Nothing is wrong with any text."""


def _nothing(key: str) -> list[Finding]:
    return []


def _digest(config: RunConfig, found: list[SourceFiles], training: int) -> str:
    """Name of the index that these sources, filters and files give."""
    described = [
        {
            "source": files.source.model_dump(mode="json"),
            "files": [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files.files],
        }
        for files in found
    ]
    whole = json.dumps([VERSION, config.task, training, described], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


# The training rows of a run as texts, in memory or streamed from their files.


@dataclass(frozen=True, slots=True)
class TextRows:
    """All rows of a text task, and which of them train and which evaluate."""

    texts: TextStore
    """Text, prompt or source of each row."""
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

    @property
    def in_pieces(self) -> bool:
        """Whether the rows are read piece by piece: they are streamed, and more than one window."""
        return self.windows is not None and self.windows.several

    def lengths_of(self, task: Task, rows: np.ndarray) -> np.ndarray:
        """(n,) int64: UTF-8 bytes of each of `rows`, for arranging them by length. An encoder-decoder pads
        both sides, and the longer one counts."""
        lengths = self.texts.lengths
        if self.targets is not None:
            lengths = np.maximum(lengths, self.targets.lengths) if task == "seq2seq" else lengths + self.targets.lengths
        of_rows: np.ndarray = lengths[rows]
        return of_rows

    def windows_of_training(self) -> Windows | None:
        return None if self.windows is None else self.windows.of_rows(self.train)


def load_text_rows(config: RunConfig, folder: Path) -> TextRows:
    """Read every source of a causal-lm or seq2seq run; relative paths are from `folder`, the run folder.

    Rows have the same numbers with and without data.streaming. Streamed rows stay where they are;
    an index of them is written once to `folder`/.rows, where further processes and a resumed run
    find it, unless a source, a filter or a file has changed. A hub data set that is not in the local
    cache is downloaded. Raises UsageError with all that is wrong with any source, CannotRunError
    where the index cannot be written.
    """
    train, held = all_sources(config)
    found, findings = _find(config.task, [*train, *held], folder)
    findings = [*target_findings(config), *findings]
    if findings:
        raise UsageError(sort_findings(findings))
    if config.data.streaming:
        rows, numbers = streamed_rows(config, found, len(train), folder)
        return TextRows(rows.texts(), rows.targets(), *numbers, rows.windows(), rows.place)
    texts, targets, training = _read(config, found, len(train))
    if held:
        return TextRows(texts, targets, np.arange(training), np.arange(training, len(texts)))
    return TextRows(texts, targets, *split_rows(training, held_out_count(training, config.data), config.training.seed))


def _has_targets(config: RunConfig) -> bool:
    return config.task == "seq2seq" or any(source.target_column is not None for source in config.data.sources)


def _find(task: Task, sources: list[tuple[str, DataSource]], folder: Path) -> tuple[list[SourceFiles], list[Finding]]:
    found: list[SourceFiles] = []
    findings: list[Finding] = []
    for key, source in sources:
        try:
            found.append(find_files(source, key, folder, task=task, fetch=True))
        except UsageError as error:
            findings.extend(error.findings)
    return found, findings


def _read(config: RunConfig, found: list[SourceFiles], training: int) -> tuple[TextStore, TextStore | None, int]:
    """Texts and targets in memory, and how many of them are of data.sources."""
    texts, targets = TextWriter(), TextWriter() if _has_targets(config) else None
    findings: list[Finding] = []
    rows = 0
    for number, files in enumerate(found):
        tally = SourceTally()
        for kept in read_rows(files, tally, config.task):
            texts.add(kept.texts)
            if targets is not None and kept.targets is not None:
                targets.add(kept.targets)
        findings.extend(tally.findings)
        if number < training:
            rows = texts.rows
    if has_errors(findings):
        raise UsageError(sort_findings(findings))
    return texts.finish(), None if targets is None else targets.finish(), rows
