"""CSV and TSV files, with or without a header line, plain or gzip."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from trainwiz.core.data.reader import Column, unreadable
from trainwiz.core.data.text_file import TextFileReader

HEADER_CELL = re.compile(r"[^\W\d](?:[\w ./()-]{0,38}[\w)])?")
LONGEST_CELL = 2**31 - 1


class DelimitedReader(TextFileReader):
    """Rows of a CSV or TSV file; a position is the line on which the row ends.

    Columns are named by the first line. A column chosen by position may belong to a file without
    a header: then the first line counts as a header only when all its cells look like names and
    differ from each other.
    """

    def __init__(self, path: Path, delimiter: str, by_position: bool) -> None:
        super().__init__(path)
        csv.field_size_limit(LONGEST_CELL)
        self._delimiter = delimiter
        first = next((cells for _, cells in self._rows()), [])
        names_it = len(set(first)) == len(first) and all(HEADER_CELL.fullmatch(cell) for cell in first)
        self.has_header = names_it or not by_position
        names = first if self.has_header else [str(index) for index in range(len(first))]
        self.columns = tuple(Column(name) for name in names)

    def _rows_of(self, wanted: Sequence[int]) -> Iterator[tuple[int, list[str]]]:
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
            yield line, [cells[index] for index in wanted]

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
