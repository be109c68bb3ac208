"""Text files, plain or gzip, and what the readers of text formats share."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np
from trainwiz.core.data.blocks import LONGEST_LINE, Block, endless, sample_blocks
from trainwiz.core.data.place import place_of
from trainwiz.core.data.reader import BATCH_ROWS, ColumnBatch, PlacedReader, text_array, unreadable
from trainwiz.core.data.whole_blocks import whole_blocks
from trainwiz.core.errors import os_reason
from trainwiz.core.language import tr
from trainwiz.core.small_file import open_file

GZIP_MAGIC = b"\x1f\x8b"
BATCH_CHARACTERS = 1 << 23
"""Rows of books end a batch early."""


class TextFile:
    """A text file, plain or gzip by content, that knows how far it was read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._raw: IO[bytes] | None = None
        self._share = 0.0

    @contextmanager
    def lines(self, newline: str | None = None) -> Iterator[Iterable[str]]:
        """The lines of the text, with their ends. Failures of the file system, of gzip, and endless lines become UsageError."""
        with self.text(newline) as text:
            yield self._bounded(text)

    @contextmanager
    def text(self, newline: str | None = None) -> Iterator[IO[str]]:
        """The open text. Failures of the file system and of gzip become UsageError."""
        try:
            with open_file(self.path) as raw:
                self._raw = raw
                zipped = raw.read(2) == GZIP_MAGIC
                raw.seek(0)
                source = gzip.GzipFile(fileobj=raw) if zipped else raw
                with io.TextIOWrapper(
                    io.BufferedReader(source, 1 << 20) if zipped else source,
                    encoding="utf-8-sig",
                    errors="surrogateescape",
                    newline=newline,
                ) as text:
                    yield text
        except EOFError:
            raise unreadable(
                str(self.path),
                tr("the gzip data ends in the middle (a download that was cut short?); get it again."),
            ) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise unreadable(
                str(self.path), tr("the gzip data is damaged ({error}); get it again.", error=error)
            ) from None
        except OSError as error:
            raise unreadable(str(self.path), tr("cannot be read: {reason}.", reason=os_reason(error))) from None
        finally:
            self._raw = None

    def _bounded(self, text: IO[str]) -> Iterator[str]:
        number = 0
        while line := text.readline(LONGEST_LINE):
            number += 1
            if len(line) == LONGEST_LINE:
                raise unreadable(place_of(self.path, "line", number), endless())
            if number == 1 and "\0" in line:
                raise unreadable(
                    place_of(self.path, "line", number),
                    tr(
                        "the text holds zero bytes; it is UTF-16 without its mark, or no text at all: convert it, "
                        "for example with `iconv -f UTF-16 -t UTF-8`, or name its format."
                    ),
                )
            yield line

    def is_plain(self) -> bool:
        """Not gzip. Raises UsageError for a file that cannot be read."""
        try:
            with open_file(self.path) as raw:
                return raw.read(2) != GZIP_MAGIC
        except OSError as error:
            raise unreadable(str(self.path), tr("cannot be read: {reason}.", reason=os_reason(error))) from None

    def holds(self, letter: bytes) -> bool:
        """Whether the byte is anywhere in the file. Raises UsageError for a file that cannot be read."""
        try:
            with open_file(self.path) as raw:
                return any(letter in piece for piece in iter(lambda: raw.read(1 << 20), b""))
        except OSError as error:
            raise unreadable(str(self.path), tr("cannot be read: {reason}.", reason=os_reason(error))) from None

    def share_read(self) -> float:
        if self._raw is not None:
            self._share = os.lseek(self._raw.fileno(), 0, os.SEEK_CUR) / max(self.size, 1)
        return min(1.0, self._share)


class TextFileReader(PlacedReader):
    """A reader of a text format: it names the wanted cells of each row, the batches follow."""

    unit = "line"
    row_mark = b""
    """What the first line of a row of several lines begins with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = TextFile(path)
        self._share: float | None = None

    @abstractmethod
    def _rows_of(self, wanted: Sequence[int]) -> Iterator[tuple[int, Sequence[str | None]]]:
        """(position, one cell for each wanted column) of every row. Raises UsageError where the file is broken."""

    def _rows_in(self, block: Block, wanted: Sequence[int]) -> Iterator[tuple[int, Sequence[str | None]]]:
        """Like `_rows_of`, for the rows that begin in a block; positions are bytes. None for a format that cannot jump."""
        return iter(())

    def _can_jump(self, rows: int) -> bool:
        """Whether a row can be told in the middle of the file from the line that it begins with."""
        return False

    def batches(self, wanted: Sequence[int]) -> Iterator[ColumnBatch]:
        yield from self._in_batches(self._rows_of(wanted))

    def sample(self, wanted: Sequence[int], limit: int) -> Iterator[ColumnBatch]:
        if self._file.is_plain() and self._can_jump(limit):
            self.unit, self.partial = "byte", True
            found = self._in_batches(self._from_blocks(wanted, limit))
            first = next(found, None)
            if first is not None:
                yield first
                yield from found
                return
            # Rows so long that none begins in a block: the first ones stand for all.
            self.unit = type(self).unit
            rows = self.batches(wanted)
            first_ones = list(islice(rows, 2))
            self.partial = len(first_ones) == 2
            self._share = self._file.share_read() if self.partial else 1.0
            yield from first_ones
        else:
            yield from self.batches(wanted)

    def has_places(self) -> bool:
        return self._file.is_plain()

    def placed(self, wanted: Sequence[int]) -> Iterator[ColumnBatch]:
        # What is no text shows in the first line.
        self.head(1)
        for block in whole_blocks(self.path, self.row_mark):
            rows = list(self._rows_in(block, wanted))
            starts = block.starts(position for position, _ in rows)
            places = np.stack([starts, np.append(starts[1:], block.end)[: len(rows)]], axis=1)[:, None]
            done = 0
            for batch in self._in_batches(iter(rows)):
                yield replace(batch, places=places[done : done + len(batch.positions)])
                done += len(batch.positions)

    def cells(self, pieces: Sequence[bytes], wanted: Sequence[int]) -> Sequence[str | None]:
        text = pieces[0].decode("utf-8", "surrogateescape")
        return next(self._rows_in(Block(2, text, 0.0), wanted))[1]

    def _from_blocks(self, wanted: Sequence[int], limit: int) -> Iterator[tuple[int, Sequence[str | None]]]:
        for block in sample_blocks(self.path, limit, self.row_mark):
            yield from self._rows_in(block, wanted)
            self._share = block.share

    def _in_batches(self, found: Iterator[tuple[int, Sequence[str | None]]]) -> Iterator[ColumnBatch]:
        rows: list[Sequence[str | None]] = []
        positions: list[int] = []
        characters = 0
        for position, cells in found:
            rows.append(cells)
            positions.append(position)
            characters += sum(map(len, filter(None, cells)))
            if len(rows) >= BATCH_ROWS or characters >= BATCH_CHARACTERS:
                yield self._batch(rows, positions)
                rows, positions, characters = [], [], 0
        if rows:
            yield self._batch(rows, positions)

    def share_read(self) -> float:
        return self._file.share_read() if self._share is None else self._share

    def head(self, count: int) -> list[tuple[str | None, ...]]:
        batch = next(self.batches(range(len(self.columns))), None)
        if batch is None:
            return []
        columns = [values.slice(0, count).to_pylist() for values in batch.values]
        return list(zip(*columns, strict=True))

    def _batch(self, rows: list[Sequence[str | None]], positions: list[int]) -> ColumnBatch:
        columns = zip(*rows, strict=True)
        values = tuple(text_array(column, positions, self.path, self.unit) for column in columns)
        return ColumnBatch(values, np.asarray(positions, dtype=np.int64))
