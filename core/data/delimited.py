"""CSV and TSV files, with or without a header line, plain or gzip."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from trainwiz.core.data.blocks import LONGEST_LINE, Block, sample_blocks
from trainwiz.core.data.place import place_of
from trainwiz.core.data.reader import Column, unreadable
from trainwiz.core.data.text_file import TextFileReader
from trainwiz.core.language import tr

HEADER_CELL = re.compile(r"[^\W\d](?:[\w ./()-]{0,38}[\w)])?")
END = "\udfff"
"""A line of its own after the last one, unless a quote is still open there. No text that was read holds this character."""
OTHER_DELIMITERS = (";", "\t")
"""Of a .csv file whose first line has no comma."""


class DelimitedReader(TextFileReader):
    """Rows of a CSV or TSV file; a position is the line on which the row ends.

    Columns are named by the first line. A column chosen by position may belong to a file without
    a header: then the first line counts as a header only when all its cells look like names and
    differ from each other. A row may lack cells at its end that nobody asked for; one with more
    cells than there are columns is refused, for then no cell is sure to be in its place.
    """

    def __init__(self, path: Path, delimiter: str, by_position: bool) -> None:
        super().__init__(path)
        csv.field_size_limit(LONGEST_LINE)
        self._is_tsv = delimiter == "\t"
        self._delimiter = delimiter if self._is_tsv else self._delimiter_of_csv()
        first = next((cells for _, cells in self._rows()), [])
        names_it = len(set(first)) == len(first) and all(HEADER_CELL.fullmatch(cell) for cell in first)
        self.has_header = names_it or not by_position
        names = first if self.has_header else [str(index) for index in range(len(first))]
        self.columns = tuple(Column(name) for name in names)

    def _rows_of(self, wanted: Sequence[int]) -> Iterator[tuple[int, list[str]]]:
        for number, (line, cells) in enumerate(self._rows()):
            if number or not self.has_header:
                yield line, self._wanted(cells, wanted, line)

    def _can_jump(self, rows: int) -> bool:
        """A quoted cell may hold line ends, so that no line tells where a row begins."""
        return self._is_tsv or not any('"' in block.text for block in sample_blocks(self.path, rows))

    def has_places(self) -> bool:
        return super().has_places() and (self._is_tsv or not self._file.holds(b'"'))

    def _rows_in(self, block: Block, wanted: Sequence[int]) -> Iterator[tuple[int, list[str]]]:
        for position, line in block.lines():
            header = position == 1 and self.has_header
            if line.strip("\r\n") and not header:
                yield position, self._wanted(next(self._csv([line])), wanted, position)

    def _wanted(self, cells: Sequence[str], wanted: Sequence[int], position: int) -> list[str]:
        widest, count = max(wanted, default=0), len(self.columns)
        if len(cells) <= widest:
            problem = tr(
                "the row has {cells} of {count} columns; column {column} is missing there.",
                cells=len(cells),
                count=count,
                column=repr(self.columns[widest].name),
            )
            raise unreadable(place_of(self.path, self.unit, position), problem)
        if len(cells) > count and any(cells[count:]):
            raise unreadable(place_of(self.path, self.unit, position), self._too_wide(len(cells)))
        return [cells[index] for index in wanted]

    def head(self, count: int) -> list[tuple[str | None, ...]]:
        # A row may be shorter than the header; one that is not UTF-8 is refused when its column is read.
        rows = (cells for number, (_, cells) in enumerate(self._rows()) if number or not self.has_header)
        empty = [""] * len(self.columns)
        return [
            tuple(cell.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for cell in row)
            for row in ([*cells, *empty][: len(empty)] for cells in islice(rows, count))
        ]

    def _too_wide(self, cells: int) -> str:
        remedy = (
            tr("a tab inside a text must be replaced")
            if self._is_tsv
            else tr("put a text that holds {delimiter} in double quotes", delimiter=repr(self._delimiter))
        )
        columns = len(self.columns)
        if self.has_header:
            return tr(
                "the row has {cells} cells where the first line has {columns}; {remedy}.",
                cells=cells,
                columns=columns,
                remedy=remedy,
            )
        return tr(
            "the row has {cells} cells where the first row has {columns}; {remedy}.",
            cells=cells,
            columns=columns,
            remedy=remedy,
        )

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """(line, cells) of every row that is not blank."""
        with self._file.lines(newline="") as lines:
            reader = self._csv(chain(lines, [END]))
            line = 0
            try:
                for cells in reader:
                    before, line = line, reader.line_num
                    if cells == [END]:
                        return
                    if cells and cells[-1].endswith(END):
                        raise unreadable(
                            place_of(self.path, "line", before + 1),
                            tr(
                                "a double quote is opened in this row and never closed; "
                                'double it ("") where it is a letter.'
                            ),
                        )
                    if cells:
                        yield line, cells
            except csv.Error as error:
                detail = str(error)
                if "field larger" in detail:
                    detail = tr("a cell has {most} characters or more", most=f"{LONGEST_LINE:,}")
                problem = tr("{detail}; is a double quote opened and never closed?", detail=detail)
                raise unreadable(place_of(self.path, "line", line + 1), problem) from None

    def _delimiter_of_csv(self) -> str:
        with self._file.lines(newline="") as lines:
            first = next(iter(lines), "")
        return "," if "," in first else next((mark for mark in OTHER_DELIMITERS if mark in first), ",")

    def _csv(self, lines: Iterable[str]) -> csv._reader:  # type: ignore[name-defined]
        # A quote in a TSV is nearly always a letter of the text.
        if self._is_tsv:
            return csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return csv.reader(lines, delimiter=self._delimiter)
