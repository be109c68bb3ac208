"""The training rows of a run as texts, in memory or streamed from files under the run folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from trainwiz.core.config import DataSource, RunConfig
from trainwiz.core.config.sections import Task
from trainwiz.core.data.rows import read_rows
from trainwiz.core.data.sources import SourceFiles, all_sources, find_files, target_findings
from trainwiz.core.data.split import held_out_count, split_rows
from trainwiz.core.data.tally import SourceTally
from trainwiz.core.data.text_store import FileTexts, TextStore, TextWriter
from trainwiz.core.data.turn import turn
from trainwiz.core.errors import CannotRunError, UsageError, os_reason
from trainwiz.core.findings import Finding, has_errors, sort_findings
from trainwiz.core.language import tr
from trainwiz.core.run.folder import ROWS

VERSION = 1
"""Part of the key of kept rows: raised when the same files would give other rows."""


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


@dataclass(frozen=True, slots=True)
class _Stored:
    texts: TextStore
    targets: TextStore | None
    training_rows: int
    """Rows of data.sources; those of data.validation_sources follow."""


def load_text_rows(config: RunConfig, folder: Path) -> TextRows:
    """Read every source of a causal-lm or seq2seq run; relative paths are from `folder`, the run folder.

    Rows stand in the order of the sources and of their files, the same with and without
    data.streaming. Streamed rows are written once to `folder`/.rows; further processes and a
    resumed run find them there, unless a source, a filter or a file has changed. A hub data set
    that is not in the local cache is downloaded. Raises UsageError with all that is wrong with any
    source, CannotRunError where the rows cannot be written.
    """
    train, held = all_sources(config)
    found, findings = _find(config.task, [*train, *held], folder)
    findings = [*target_findings(config), *findings]
    if findings:
        raise UsageError(sort_findings(findings))
    stored = (
        _streamed(config, found, len(train), folder)
        if config.data.streaming
        else _read(config, found, len(train), TextWriter(), TextWriter() if _has_targets(config) else None)
    )
    rows, every = stored.training_rows, len(stored.texts)
    if held:
        return TextRows(stored.texts, stored.targets, np.arange(rows), np.arange(rows, every))
    split = split_rows(rows, held_out_count(rows, config.data), config.training.seed)
    return TextRows(stored.texts, stored.targets, *split)


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


def _read(
    config: RunConfig, found: list[SourceFiles], training: int, texts: TextWriter, targets: TextWriter | None
) -> _Stored:
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
    return _Stored(texts.finish(), None if targets is None else targets.finish(), rows)


def _streamed(config: RunConfig, found: list[SourceFiles], training: int, folder: Path) -> _Stored:
    """The rows from `folder`/.rows, written there first by whichever process comes first."""
    place = folder / ROWS / _digest(config, found, training)
    try:
        with turn(folder / ROWS / "lock") as alone:
            if not place.is_dir():
                if alone:
                    _clear(place.parent)
                _build(config, found, training, place)
            return _open(place)
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
    """Remove rows of an earlier version of the data, and what a killed process left half written."""
    for old in folder.iterdir():
        if old.is_dir():
            shutil.rmtree(old)


def _build(config: RunConfig, found: list[SourceFiles], training: int, place: Path) -> None:
    part = place.with_name(f"{place.name}.{os.getpid()}.part")
    part.mkdir()
    texts = TextWriter(part / "texts")
    targets = TextWriter(part / "targets") if _has_targets(config) else None
    try:
        stored = _read(config, found, training, texts, targets)
        document = {"training_rows": stored.training_rows, "targets": targets is not None}
        (part / "rows.json").write_text(json.dumps(document), encoding="utf-8")
        if not place.is_dir():
            part.rename(place)
    except BaseException:
        texts.close()
        if targets is not None:
            targets.close()
        shutil.rmtree(part, ignore_errors=True)
        raise


def _open(place: Path) -> _Stored:
    document = json.loads((place / "rows.json").read_text(encoding="utf-8"))
    targets = FileTexts(place / "targets") if document["targets"] else None
    return _Stored(FileTexts(place / "texts"), targets, int(document["training_rows"]))


def _digest(config: RunConfig, found: list[SourceFiles], training: int) -> str:
    """Name of the rows that these sources, filters and files give."""
    described = [
        {
            "source": files.source.model_dump(mode="json"),
            "files": [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files.files],
        }
        for files in found
    ]
    whole = json.dumps([VERSION, config.task, _has_targets(config), training, described], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]
