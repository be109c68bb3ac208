"""From the sources of a run to its StreamedRows: the index is made by whichever process comes first."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from trainwiz.core.config import RunConfig
from trainwiz.core.data.rows import KeptRows, has_target, read_rows
from trainwiz.core.data.sources import SourceFiles
from trainwiz.core.data.split import held_out_count, split_rows
from trainwiz.core.data.streamed.index import IndexWriter
from trainwiz.core.data.streamed.rows import StreamedRows
from trainwiz.core.data.tally import SourceTally
from trainwiz.core.data.turn import turn
from trainwiz.core.errors import CannotRunError, UsageError, os_reason
from trainwiz.core.findings import Finding, has_errors, sort_findings
from trainwiz.core.language import tr
from trainwiz.core.small_file import ROWS

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
        with turn(folder / ROWS / "lock") as alone:
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
