"""CSV and TSV files, with or without a header line, plain or gzip."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

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

HEADER_CELL = re.compile(r"[^\W\d](?:[\w ./()-]{0,38}[\w)])?")
LONGEST_CELL = 2**31 - 1


class DelimitedReader(Reader):
    """Rows of a CSV or TSV file; a position is the line on which the row ends.

    Columns are named by the first line. A column chosen by position may belong to a file without
    a header: then the first line counts as a header only when all its cells look like names and
    differ from each other.
    """

    unit = "line"

    def __init__(self, path: Path, delimiter: str, by_position: bool) -> None:
        csv.field_size_limit(LONGEST_CELL)
        self.path = path
        self._delimiter = delimiter
        self._file = TextFile(path)
        first = next((cells for _, cells in self._rows()), [])
        names_it = len(set(first)) == len(first) and all(HEADER_CELL.fullmatch(cell) for cell in first)
        self.has_header = names_it or not by_position
        names = first if self.has_header else [str(index) for index in range(len(first))]
        self.columns = tuple(Column(name) for name in names)

    def batches(self, wanted: Sequence[int]) -> Iterator[ColumnBatch]:
        rows: list[list[str]] = []
        positions: list[int] = []
        widest = max(wanted, default=0)
        for number, (line, cells) in enumerate(self._rows()):
            if number == 0 and self.has_header:
                continue
            if len(cells) <= widest:
                raise unreadable(
                    f"{self.path}, line {line}",
                    f"the row has {len(cells)} of {len(self.columns)} columns; "
                    f"column {self.columns[widest].name!r} is missing there.",
                )
            rows.append(cells)
            positions.append(line)
            if len(rows) >= BATCH_ROWS:
                yield self._batch(rows, positions, wanted)
                rows, positions = [], []
        if rows:
            yield self._batch(rows, positions, wanted)

    def share_read(self) -> float:
        return self._file.share_read()

    def head(self, count: int) -> list[tuple[str, ...]]:
        return head_of(self.batches(range(len(self.columns))), count)

    def _batch(self, rows: list[list[str]], positions: list[int], wanted: Sequence[int]) -> ColumnBatch:
        values = tuple(text_array([row[index] for row in rows], positions, self.path, self.unit) for index in wanted)
        return ColumnBatch(values, np.asarray(positions, dtype=np.int64))

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """(line, cells) of every row that is not blank."""
        with self._file.lines(newline="") as lines:
            reader = self._csv(lines)
            try:
                for cells in reader:
                    if cells:
                        yield reader.line_num, cells
            except csv.Error as error:
                raise unreadable(f"{self.path}, line {reader.line_num}", f"{error}.") from None

    def _csv(self, lines: IO[str]) -> csv._reader:  # type: ignore[name-defined]
        # A quote in a TSV is nearly always a letter of the text.
        if self._delimiter == "\t":
            return csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return csv.reader(lines, delimiter=self._delimiter)
