"""Rows of one source after its filters, and what was noticed on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from trainwiz.core.config import DataSource
from trainwiz.core.config.sections import Task
from trainwiz.core.data.columns import find_column
from trainwiz.core.data.formats import open_reader
from trainwiz.core.data.proteins import trim_proteins
from trainwiz.core.data.reader import Reader
from trainwiz.core.data.sources import SourceFiles
from trainwiz.core.errors import UsageError
from trainwiz.core.findings import Finding

PREVIEW_ROWS = 5
NEARLY_READ = 0.9
"""Share of a file's bytes above which the rest is read too: buffers run ahead of the rows."""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Some rows of one file that pass the filters: no nulls, nothing empty."""

    texts: pa.Array
    """LargeStringArray (n,)."""
    targets: pa.Array | None
    positions: np.ndarray
    """(n,) int64: row or line numbers, from 1."""
    path: Path
    unit: str
    line_of: Callable[[int, int], int]
    """(position of a row, index of a letter in its text) -> position of the letter."""


@dataclass(slots=True)
class SourceTally:
    """Counts over one source, filled while its rows are read."""

    rows: int = 0
    """Rows after filters: exact or extrapolated from the rows that were read."""
    exact: bool = True
    seen: int = 0
    kept: int = 0
    empty: int = 0
    bytes_on_disk: int = 0
    columns: tuple[str, ...] = ()
    preview: tuple[tuple[str, ...], ...] = ()
    findings: list[Finding] = field(default_factory=list)


def read_rows(files: SourceFiles, tally: SourceTally, task: Task, *, limit: int | None = None) -> Iterator[KeptRows]:
    """The kept rows of all files of a source; `limit` reads about that many, spread over the files.

    A broken file adds its sentence to `tally.findings` and the next file goes on, so that one
    pass finds everything.
    """
    source = files.source
    each = None if limit is None else max(limit // len(files.files), 200)
    for path in files.files:
        if source.max_rows is not None and tally.rows >= source.max_rows:
            break
        try:
            yield from _file_rows(path, files, tally, task, each)
        except UsageError as error:
            tally.findings.extend(error.findings)
    if source.max_rows is not None:
        tally.rows = min(tally.rows, source.max_rows)
    _note_what_is_missing(files, tally)


def _file_rows(path: Path, files: SourceFiles, tally: SourceTally, task: Task, limit: int | None) -> Iterator[KeptRows]:
    source = files.source
    by_position = isinstance(source.text_column, int) or (source.text_column or "").isdigit()
    reader = open_reader(path, files.kind, by_position=by_position)
    wanted = [find_column(reader.columns, source.text_column, str(path), f"{files.key}.text_column")]
    if task == "seq2seq":
        wanted.append(find_column(reader.columns, source.target_column, str(path), f"{files.key}.target_column"))
    tally.bytes_on_disk += path.stat().st_size
    if not tally.columns:
        tally.columns = tuple(column.name for column in reader.columns)
        tally.preview = tuple(reader.head(PREVIEW_ROWS))
    trim = trim_proteins if task == "masked-lm" else pc.utf8_trim_whitespace
    seen = kept = 0
    complete = True
    for batch in reader.batches(wanted) if limit is None else reader.sample(wanted, limit):
        seen += len(batch.positions)
        values = (trim(batch.values[0]), *batch.values[1:])
        rows = _filtered(values, batch.positions, reader, source, tally)
        if source.max_rows is not None and tally.rows + kept + len(rows.texts) >= source.max_rows:
            room = source.max_rows - tally.rows - kept
            yield KeptRows(
                rows.texts.slice(0, room),
                None if rows.targets is None else rows.targets.slice(0, room),
                rows.positions[:room],
                path,
                reader.unit,
                reader.line_of,
            )
            kept += room
            break
        kept += len(rows.texts)
        if len(rows.texts):
            yield rows
        if limit is not None and reader.rows is None and seen >= limit and reader.share_read() < NEARLY_READ:
            complete = False
            break
    else:
        complete = reader.rows is None or seen == reader.rows
    tally.seen += seen
    tally.kept += kept
    if complete:
        tally.rows += kept
    elif seen:
        total = reader.rows if reader.rows is not None else round(seen / max(reader.share_read(), 1e-9))
        tally.rows += round(total * kept / seen)
        tally.exact = tally.exact and reader.rows is not None and kept == seen


def _filtered(
    values: tuple[pa.Array, ...],
    positions: np.ndarray,
    reader: Reader,
    source: DataSource,
    tally: SourceTally,
) -> KeptRows:
    texts = values[0]
    targets = values[1] if len(values) > 1 else None
    lengths = pc.fill_null(pc.utf8_length(texts), 0).to_numpy(zero_copy_only=False)
    keep = lengths > 0
    if targets is not None:
        keep &= pc.fill_null(pc.utf8_length(targets), 0).to_numpy(zero_copy_only=False) > 0
    tally.empty += int((~keep).sum())
    if source.min_characters is not None:
        keep &= lengths >= source.min_characters
    if source.max_characters is not None:
        keep &= lengths <= source.max_characters
    if keep.all():
        return KeptRows(texts, targets, positions, reader.path, reader.unit, reader.line_of)
    mask = pa.array(keep)
    texts, targets = texts.filter(mask), None if targets is None else targets.filter(mask)
    return KeptRows(texts, targets, positions[keep], reader.path, reader.unit, reader.line_of)


def _note_what_is_missing(files: SourceFiles, tally: SourceTally) -> None:
    """Errors for a source without rows, a warning for rows that hold nothing."""
    if tally.findings:
        return
    name = files.source.name
    if tally.seen == 0:
        tally.findings.append(_error("empty_data", files.key, f"{name} holds no rows."))
    elif tally.kept == 0 and tally.empty == tally.seen:
        tally.findings.append(_error("empty_data", files.key, f"all {tally.seen} rows of {name} are empty."))
    elif tally.kept == 0:
        low, high = files.source.min_characters or 0, files.source.max_characters
        span = f"{low} to {high} characters" if high is not None else f"at least {low} characters"
        tally.findings.append(
            _error(
                "all_filtered",
                f"{files.key}.min_characters" if high is None else f"{files.key}.max_characters",
                f"all {tally.seen} rows of {name} are filtered away: none has {span}; widen min_characters and max_characters.",
            )
        )
    elif tally.empty:
        tally.findings.append(
            Finding("empty_rows", "warning", files.key, f"{tally.empty} empty rows of {name} are left out.")
        )


def _error(code: str, where: str, message: str) -> Finding:
    return Finding(code=code, severity="error", where=where, message=message)
