"""Rows of one source after its filters, and what was counted and noticed on the way."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from trainwiz.core.config import DataSource
from trainwiz.core.config.values import CLASSIFIES, HAVE_TARGETS, RowKind
from trainwiz.core.data.chats import contents_of
from trainwiz.core.data.columns import Layout, find_layout
from trainwiz.core.data.formats import open_reader
from trainwiz.core.data.labels import tagged_words
from trainwiz.core.data.reader import Reader, RowBatch, spread
from trainwiz.core.data.sources import SourceFiles
from trainwiz.core.data.text_store import OUTSIDE, trim_proteins
from trainwiz.core.errors import Finding, Severity, UsageError, usage_error
from trainwiz.core.language import tr, trn


@dataclass(slots=True)
class SourceTally:
    """Counts over one source, filled while its rows are read."""

    rows: int = 0
    """Rows after filters: exact or extrapolated from the rows that were read."""
    exact: bool = True
    sampled: bool = False
    """Rows were left out that the reader jumped over."""
    seen: int = 0
    kept: int = 0
    empty: int = 0
    bytes_on_disk: int = 0
    columns: tuple[str, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    _first_empty: str = ""

    def add(self, rows: RowBatch, full: np.ndarray) -> None:
        """`full` (n,) bool: rows with a text and, where there is one, a target."""
        empty = len(full) - int(full.sum())
        if empty and not self.empty:
            self._first_empty = rows.place(int(np.argmin(full)))
        self.empty += empty

    def conclude(self, source: DataSource, key: str) -> None:
        """Errors for a source without rows, a warning for rows that hold nothing."""
        if self.findings:
            return
        name, low, high = source.name, source.min_characters or 0, source.max_characters
        code, where = "empty_data", key
        severity: Severity = "error"
        if self.seen == 0:
            message = tr("{name} has no rows.", name=name)
        elif self.empty == self.seen:
            message = tr(
                "all {seen} rows of {name} are empty (first: {first}).",
                seen=self.seen, name=name, first=self._first_empty,
            )  # fmt: skip
        elif self.kept == 0:
            code, where = "all_filtered", f"{key}.{'min' if high is None else 'max'}_characters"
            span = tr("at least {low} characters", low=low)
            if high is not None:
                span = tr("{low} to {high} characters", low=low, high=high)
            message = tr(
                "all {seen} rows of {name} are filtered out: none has {span}; widen min_characters and max_characters.",
                seen=self.seen, name=name, span=span,
            )  # fmt: skip
        elif self.empty:
            code, severity = "empty_rows", "warning"
            message = trn(
                "{n} empty row of {name} is skipped (first: {first}).",
                "{n} empty rows of {name} are skipped (first: {first}).",
                self.empty, name=name, first=self._first_empty,
            )  # fmt: skip
        else:
            return
        self.findings.append(Finding(code, severity, where, message))


# Rows of one source after its filters, and what was noticed on the way.

FIRST_ROWS = 5
SMALL_BYTES, SMALL_PACKED_BYTES = 8 << 20, 2 << 20
"""A file up to this size is read whole in a fraction of a second: sorted ones make a poor sample."""
SAMPLED_FILES, SHARDS_BYTES = 16, 64 << 20
"""Of more files, with more bytes together, so many are read, spread over all; the others are opened."""
NAMED_FILES = 20
"""Broken files of one source after which the others are not read: a folder may hold 100,000."""
NEARLY_READ = 0.9
"""Share of a file's bytes above which the rest is read too: buffers run ahead of the rows."""


def has_target(source: DataSource, task: RowKind) -> bool:
    """Whether the rows of a source have a target side: always where texts are translated or classified, for causal-lm
    where a column is named. A chat is one text."""
    if source.layout == "chat":
        return False
    return task in HAVE_TARGETS or (task == "causal-lm" and source.target_column is not None)


def read_rows(files: SourceFiles, tally: SourceTally, task: RowKind, *, limit: int | None = None) -> Iterator[RowBatch]:
    """The kept rows of all files of a source; `limit` reads about that many, spread over the files.

    A broken file adds its sentence to `tally.findings` and the next file goes on, so that one
    pass finds everything.
    """
    most = files.source.max_rows
    chosen = set(range(len(files.files)))
    size = sum(path.stat().st_size for path in files.files if path.is_file())
    if limit is not None and most is None and size > SHARDS_BYTES:
        chosen = set(spread(len(files.files), SAMPLED_FILES))
    each = None if limit is None else max(limit // len(chosen), 200)
    unread = list[tuple[int | None, int]]()
    broken = 0
    for number, path in enumerate(files.files):
        if broken == NAMED_FILES or (most is not None and tally.rows >= most):
            break
        try:
            reader, layout = open_columns(path, files, task)
            if number in chosen:
                yield from _file_rows(reader, layout, files, tally, task, each)
            else:
                unread.append((reader.rows, path.stat().st_size))
        except UsageError as error:
            tally.findings.extend(error.findings)
            broken += 1
    if unread:
        # Files that were opened and not read: as many of their rows are kept as of those that were read.
        unknown_bytes = sum(size for rows, size in unread if rows is None)
        like_these = unknown_bytes * tally.rows / max(1, tally.bytes_on_disk)
        known = sum(rows or 0 for rows, _ in unread) * tally.kept / max(1, tally.seen)
        tally.rows += round(known + like_these)
        tally.bytes_on_disk += sum(size for _, size in unread)
        tally.sampled = True
        tally.exact = tally.exact and not unknown_bytes and tally.kept == tally.seen
    if most is not None:
        tally.rows = min(tally.rows, most)
    tally.conclude(files.source, files.key)


def _file_rows(
    reader: Reader, layout: Layout, files: SourceFiles, tally: SourceTally, task: RowKind, limit: int | None
) -> Iterator[RowBatch]:
    source, size = files.source, reader.path.stat().st_size
    if size <= (SMALL_PACKED_BYTES if reader.path.name.endswith((".gz", ".parquet")) else SMALL_BYTES):
        limit = None
    tally.bytes_on_disk += size
    if not tally.columns:
        tally.columns = tuple(column.name for column in reader.columns)
        # A sample jumps over the first rows of a large file; what is broken there is found here.
        list(reader.head(FIRST_ROWS))
    most = math.inf if source.max_rows is None else source.max_rows - tally.rows
    seen = kept = 0
    complete = True
    # Where the first ones are enough training takes those.
    in_order = limit is None or most <= limit
    for batch in reader.batches(layout.wanted) if in_order else reader.sample(layout.wanted, limit or 0):
        seen += len(batch.positions)
        tally.sampled = tally.sampled or reader.partial
        rows = replace(batch, sides=_sides_of(batch, layout, task))
        full, keep = _within_limits(rows.sides, source)
        tally.add(rows, full)
        rows = rows.only(keep & (np.cumsum(keep) <= most - kept))
        if task == "proteins":
            _refuse_other_letters(rows, files.key)
        kept += len(rows.texts)
        if len(rows.texts):
            yield rows
        if kept == most:
            break
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


def open_columns(path: Path, files: SourceFiles, task: RowKind) -> tuple[Reader, Layout]:
    """The opened file, and which of its columns are read how.

    Raises UsageError for a file that cannot be opened and for columns that it does not have.
    """
    source = files.source
    reader = open_reader(path, source)
    layout = find_layout(reader.columns, source, str(path), files.key, task, has_target(source, task))
    if layout.chat is not None:
        reader.may_lack = frozenset(reader.columns[layout.wanted[place]].name for place in layout.chat.parts.values())
    if task in CLASSIFIES:
        reader.labels = frozenset({reader.columns[layout.wanted[1]].name})
    return reader, layout


def _sides_of(batch: RowBatch, layout: Layout, task: RowKind) -> tuple[pa.Array, ...]:
    """The texts and perhaps targets of n rows, (n,) each; null where a row has none. Raises UsageError.

    Blanks at the ends of texts are taken away before they are measured; a chat is kept as it is.
    """
    if layout.chat is None and task != "token-classification":
        trim = trim_proteins if task == "proteins" else pc.utf8_trim_whitespace
        return tuple(trim(side) for side in batch.sides)
    rows = list[Sequence[str | None]]()
    for cells, position in zip(
        zip(*(side.to_pylist() for side in batch.sides), strict=True), batch.positions, strict=True
    ):
        try:
            rows.append(tagged_words(cells) if layout.chat is None else [layout.chat.chat(cells)])
        except ValueError as error:
            raise batch.reader.broken_at(int(position), str(error)) from None
    return tuple(pa.array(side, pa.large_string()) for side in zip(*rows, strict=True))


def _within_limits(sides: Sequence[pa.Array], source: DataSource) -> tuple[np.ndarray, ...]:
    """(which rows hold something, which rows are kept), (n,) bool each.

    A row is kept whose text, and target where there is one, is neither empty nor outside the length limits.
    """
    limited = source.min_characters is not None or source.max_characters is not None
    if source.layout == "chat" and limited:
        # What is said counts, and not how it is kept.
        said = [0 if chat is None else len(contents_of(chat)) for chat in sides[0].to_pylist()]
        lengths = np.array([said], np.int64)
    else:
        lengths = np.stack([pc.fill_null(pc.utf8_length(side), 0).to_numpy(zero_copy_only=False) for side in sides])
    shorter = lengths.min(axis=0)
    keep = full = shorter > 0
    if source.min_characters is not None:
        keep = keep & (shorter >= source.min_characters)
    if source.max_characters is not None:
        keep = keep & (lengths.max(axis=0) <= source.max_characters)
    return full, keep


SHOWN_LETTERS = 5


def _refuse_other_letters(rows: RowBatch, key: str) -> None:
    """UsageError for the first row with letters that the protein alphabet does not have: of another column or file."""
    outside = np.flatnonzero(pc.match_substring_regex(rows.texts, OUTSIDE))
    if not len(outside):
        return
    first = int(outside[0])
    letters = sorted(set(re.findall(OUTSIDE, rows.texts[first].as_py())))
    place = rows.place(first)
    message = tr(
        "{place}: characters outside the protein alphabet: {letters}; choose another column "
        "({key}.text_column) or a model for text, or clean the file.",
        place=place,
        letters=", ".join(map(repr, letters[:SHOWN_LETTERS])),
        key=key,
    )
    raise usage_error("not_protein", place, message)
