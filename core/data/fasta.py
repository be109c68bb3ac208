"""FASTA files, plain or gzip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from trainwiz.core.data.reader import (
    BATCH_ROWS,
    Column,
    ColumnBatch,
    Reader,
    TextFile,
    head_of,
    text_array,
    unreadable,
)


class FastaReader(Reader):
    """Records of a FASTA file; a position is the line of the record's header, and `line_of` finds a letter's own."""

    unit = "line"
    columns = (Column("id"), Column("description"), Column("sequence"))

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = TextFile(path)

    def batches(self, wanted: Sequence[int]) -> Iterator[ColumnBatch]:
        rows: list[tuple[str, str, str]] = []
        positions: list[int] = []
        for position, header, sequence in self._records():
            identifier, _, description = header.partition(" ")
            rows.append((identifier, description, sequence))
            positions.append(position)
            if len(rows) >= BATCH_ROWS:
                yield self._batch(rows, positions, wanted)
                rows, positions = [], []
        if rows:
            yield self._batch(rows, positions, wanted)

    def share_read(self) -> float:
        return self._file.share_read()

    def head(self, count: int) -> list[tuple[str, ...]]:
        return head_of(self.batches(range(len(self.columns))), count)

    def line_of(self, position: int, letter: int) -> int:
        """The line of the letter with this index in the sequence whose header is on line `position`."""
        before = 0
        with self._file.lines() as lines:
            for number, line in enumerate(lines, 1):
                if number <= position or line.startswith(";"):
                    continue
                before += len(line.strip())
                if before > letter or line.startswith(">"):
                    return number
        return position

    def _batch(self, rows: list[tuple[str, str, str]], positions: list[int], wanted: Sequence[int]) -> ColumnBatch:
        values = tuple(text_array([row[index] for row in rows], positions, self.path, self.unit) for index in wanted)
        return ColumnBatch(values, np.asarray(positions, dtype=np.int64))

    def _records(self) -> Iterator[tuple[int, str, str]]:
        header: str | None = None
        start = 0
        parts: list[str] = []
        with self._file.lines() as lines:
            for number, line in enumerate(lines, 1):
                if not line.isascii():
                    # A record has many lines; the one that is not UTF-8 is known here alone.
                    text_array([line], [number], self.path, self.unit)
                if line.startswith(">"):
                    if header is not None:
                        yield start, header, "".join(parts)
                    header, start, parts = line[1:].strip(), number, []
                elif line.startswith(";") or not line.strip():
                    continue
                elif header is None:
                    raise unreadable(
                        f"{self.path}, line {number}",
                        "text stands before the first '>' header, so this is not FASTA; name the format "
                        "(data.sources.0.format, for example txt).",
                    )
                else:
                    parts.append(line.strip())
        if header is not None:
            yield start, header, "".join(parts)
