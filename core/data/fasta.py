"""FASTA files, plain or gzip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile

from trainwiz.core.data.blocks import Block
from trainwiz.core.data.place import place_of
from trainwiz.core.data.reader import Column, text_array, unreadable
from trainwiz.core.data.text_file import TextFileReader
from trainwiz.core.language import tr


class FastaReader(TextFileReader):
    """Records of a FASTA file; a position is the line of the record's header, and `line_of` finds a letter's own."""

    row_mark = b">"
    columns = (Column("id"), Column("description"), Column("sequence"))

    def _rows_of(self, wanted: Sequence[int]) -> Iterator[tuple[int, list[str]]]:
        with self._file.lines() as lines:
            yield from self._cells(enumerate(lines, 1), wanted)

    def _can_jump(self, rows: int) -> bool:
        return True

    def _rows_in(self, block: Block, wanted: Sequence[int]) -> Iterator[tuple[int, list[str]]]:
        # A later block begins in the middle of a record that belongs to the block before it.
        lines = dropwhile(lambda one: not block.begins_file and not one[1].startswith(">"), block.lines())
        yield from self._cells(lines, wanted)

    def _cells(self, lines: Iterable[tuple[int, str]], wanted: Sequence[int]) -> Iterator[tuple[int, list[str]]]:
        for position, header, sequence in self._records(lines):
            identifier, _, description = header.partition(" ")
            cells = (identifier, description, sequence)
            yield position, [cells[index] for index in wanted]

    def line_of(self, position: int, letter: int) -> int:
        """The line of the letter with this index in the sequence whose header is on line `position`; that itself, where it is a byte."""
        if self.unit == "byte":
            return position
        before = 0
        with self._file.lines() as lines:
            for number, line in enumerate(lines, 1):
                if number <= position or line.startswith(";"):
                    continue
                before += len(line.strip())
                if before > letter or line.startswith(">"):
                    return number
        return position

    def _records(self, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
        header: str | None = None
        start = 0
        parts: list[str] = []
        for number, line in lines:
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
                    place_of(self.path, self.unit, number),
                    tr(
                        "text stands before the first '>' header, so this is not FASTA; name the format "
                        "(data.sources.0.format, for example txt)."
                    ),
                )
            else:
                parts.append(line.strip())
        if header is not None:
            yield start, header, "".join(parts)
