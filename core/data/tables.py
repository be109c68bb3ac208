"""CSV, TSV, JSON arrays, FASTA and CoNLL files, plain or gzip."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from trainwiz.core.data.reader import Column, RowBatch, unreadable
from trainwiz.core.data.text_file import LONGEST_LINE, JsonLinesReader, Lines, Rows, TextFileReader, json_detail
from trainwiz.core.language import tr

# CSV and TSV files, with or without a header line, plain or gzip.

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

    def _all_rows(self, wanted: Sequence[int]) -> Rows:
        for line, cells in islice(self._rows(), int(self.has_header), None):
            yield line, self._wanted(cells, wanted, line)

    def sample(self, wanted: Sequence[int], limit: int) -> Iterator[RowBatch]:
        # A quoted cell may hold line ends, so that no line tells where a row begins.
        quoted = not self._is_tsv and self._is_plain() and any('"' in text for _, text, _ in self.blocks(limit))
        self.can_jump = not quoted
        return super().sample(wanted, limit)

    def _rows_in(self, lines: Lines, wanted: Sequence[int]) -> Rows:
        header = False
        for position, line in lines:
            header = header or (position == 1 and self.has_header)
            if line.strip("\r\n"):
                if not header:
                    yield position, self._wanted(next(self._csv([line])), wanted, position)
                header = False

    def _wanted(self, cells: Sequence[str], wanted: Sequence[int], position: int) -> list[str]:
        widest, count = max(wanted, default=0), len(self.columns)
        if len(cells) <= widest:
            problem = tr(
                "the row has {cells} of {count} columns; column {column} is missing.",
                cells=len(cells),
                count=count,
                column=repr(self.columns[widest].name),
            )
            raise self.broken_at(position, problem)
        if len(cells) > count and any(cells[count:]):
            quote = tr("put text that contains {delimiter} in double quotes", delimiter=repr(self._delimiter))
            problem = tr(
                "the row has {cells} cells, but the first line has {columns}; {remedy}.",
                cells=len(cells),
                columns=count,
                remedy=tr("replace tabs inside a text") if self._is_tsv else quote,
            )
            raise self.broken_at(position, problem)
        return [cells[index] for index in wanted]

    def head(self, count: int) -> Iterator[tuple[str | None, ...]]:
        # A row may be shorter than the header; one that is not UTF-8 is refused when its column is read.
        first, width = int(self.has_header), len(self.columns)
        for _, cells in islice(self._rows(), first, first + count):
            row = [*cells, *[""] * width][:width]
            yield tuple(cell.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for cell in row)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """(line, cells) of every row that is not blank."""
        reader = self._csv(chain(self._lines(newline=""), [END]))
        line = 0
        try:
            for cells in reader:
                before, line = line, reader.line_num
                if cells == [END]:
                    return
                if cells and cells[-1].endswith(END):
                    problem = tr(
                        'a double quote in this row is never closed; double it ("") if it is part of the text.'
                    )
                    raise self.broken_at(before + 1, problem)
                if cells:
                    yield line, cells
        except csv.Error as error:
            detail = str(error)
            if "field larger" in detail:
                detail = tr("a cell has {most} or more characters", most=f"{LONGEST_LINE:,}")
            problem = tr("{detail}; is a double quote never closed?", detail=detail)
            raise self.broken_at(line + 1, problem) from None

    def _delimiter_of_csv(self) -> str:
        first = next(self._lines(newline=""), "")
        return "," if "," in first else next((mark for mark in OTHER_DELIMITERS if mark in first), ",")

    def _csv(self, lines: Iterable[str]) -> csv._reader:  # type: ignore[name-defined]
        # A quote in a TSV is nearly always a letter of the text.
        if self._is_tsv:
            return csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return csv.reader(lines, delimiter=self._delimiter)


# Files that are one JSON array of rows, plain or gzip: parsed row by row, for the whole may be larger than RAM.

CHUNK = 1 << 20
"""Characters read at once."""
DECODER = json.JSONDecoder()
BETWEEN = re.compile(r"\s*,?\s*")


class JsonArrayReader(JsonLinesReader):
    """A JSON array of objects, however it is laid out in lines; a position is the number of the object."""

    unit = "row"
    can_jump = False

    def _all_rows(self, wanted: Sequence[int]) -> Rows:
        return self._cells(self._objects(), wanted)

    def _objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        with self.text() as text:
            window = text.read(CHUNK)
            at, number = window.index("[") + 1, 1
            while True:
                start = BETWEEN.match(window, at).end()  # type: ignore[union-attr]
                if window.startswith("]", start):
                    break
                problem = ""
                try:
                    value, end = DECODER.raw_decode(window, start)
                    if number > 1 and "," not in window[at:start]:
                        problem = tr("is not valid JSON (no comma before it); is the file truncated?")
                except (ValueError, RecursionError) as error:
                    end = len(window)
                    more = "" if isinstance(error, RecursionError) else text.read(max(CHUNK, end - at))
                    problem = tr("is not valid JSON ({detail}); is the file truncated?", detail=json_detail(error))
                    if more and end - start < LONGEST_LINE:
                        window, at = window[at:] + more, 0
                        continue
                if end - start >= LONGEST_LINE:
                    problem = tr(
                        "the row has {most} or more characters, or is not valid JSON.", most=f"{LONGEST_LINE:,}"
                    )
                if problem:
                    raise self.broken_at(number, problem)
                yield number, self._object(value, number)
                at, number = end, number + 1
            if (window[start + 1 :] + text.read(CHUNK)).strip():
                # Lines that are lists each: only the first would be read.
                problem = tr(
                    "has more after the end of its list; write one list of all rows, or one JSON object per line."
                )
                raise unreadable(str(self.path), problem)


# FASTA files, plain or gzip.


class FastaReader(TextFileReader):
    """Records of a FASTA file; a position is the line of the record's header."""

    row_mark = b">"
    columns = (Column("id"), Column("description"), Column("sequence"))

    def _rows_in(self, lines: Lines, wanted: Sequence[int]) -> Rows:
        header: str | None = None
        start = 0
        parts: list[str] = []
        for number, line in chain(lines, [(0, ">")]):
            if line.startswith(">"):
                if header is not None:
                    identifier, _, description = header.partition(" ")
                    cells = (identifier, description, "".join(parts))
                    yield start, [cells[index] for index in wanted]
                header, start, parts = line[1:].strip(), number, []
            elif line.startswith(";") or not line.strip():
                continue
            elif header is None:
                problem = tr(
                    "there is text before the first '>' header, so this is not FASTA; set the format "
                    "(data.sources.0.format, for example txt)."
                )
                raise self.broken_at(number, problem)
            else:
                parts.append(line.strip())


# CoNLL files, plain or gzip: a word and its tags on a line, an empty line after each sentence.


class ConllReader(TextFileReader):
    """Sentences with the columns `tokens` (the first of a line) and `tags` (the last), as JSON lists; a position is the
    line of a sentence's first word."""

    can_jump = False
    columns = (Column("tokens", is_text=False, type_name="list", is_list=True),
               Column("tags", is_text=False, type_name="list", is_list=True))  # fmt: skip

    def _rows_in(self, lines: Lines, wanted: Sequence[int]) -> Rows:
        start, words = 0, list[tuple[str, str]]()
        for number, line in chain(lines, [(0, "")]):
            # A tab keeps blanks inside a word.
            cells = [cell.strip() for cell in line.strip().split("\t")] if "\t" in line else line.split()
            if cells and cells[0] != "-DOCSTART-" and not (line.startswith("# ") and "\t" not in line):
                if len(cells) < 2:
                    problem = tr(
                        "the line has one word and no tag; each line must have a word and its tag, and nothing more."
                    )
                    raise self.broken_at(number, problem)
                start = start if words else number
                words.append((cells[0], cells[-1]))
            elif not cells and words:
                sides = [json.dumps(side, ensure_ascii=False) for side in zip(*words, strict=True)]
                yield start, [sides[index] for index in wanted]
                words = []
