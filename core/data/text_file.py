"""Text files, plain or gzip: one row a line, plain text and JSON lines."""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from trainwiz.core.data.blocks import LONGEST_LINE, Block, endless, sample_blocks, whole_blocks
from trainwiz.core.data.reader import (
    BATCH_ROWS,
    Column,
    ColumnBatch,
    Reader,
    cannot_read,
    opened,
    place_of,
    text_array,
    unreadable,
)
from trainwiz.core.files import open_file
from trainwiz.core.language import mark, tr

# Text files, plain or gzip, and what the readers of text formats share.

GZIP_MAGIC = b"\x1f\x8b"
BATCH_CHARACTERS = 1 << 23
"""Rows of books end a batch early."""


Rows = Iterator[tuple[int, Sequence[str | None]]]
"""(position, one cell for each wanted column) of each row."""


class TextFileReader(Reader):
    """A reader of a text format, plain or gzip by content: it names the wanted cells of each row, the batches follow."""

    unit = "line"
    row_mark = b""
    """What the first line of a row of several lines begins with."""
    can_jump = True
    """Whether a row can be told in the middle of the file from the line that it begins with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._raw: IO[bytes] | None = None
        self._share = 0.0

    @contextmanager
    def _lines(self, newline: str | None = None) -> Iterator[Iterable[str]]:
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
                tr("the gzip data is truncated (incomplete download?); download or copy it again."),
            ) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise unreadable(
                str(self.path), tr("the gzip data is corrupt ({error}); download or copy it again.", error=error)
            ) from None
        except OSError as error:
            raise cannot_read(self.path, error) from None
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
                        "the text contains NUL bytes; it is UTF-16 without a BOM, or not text: convert it, for "
                        "example with `iconv -f UTF-16 -t UTF-8`, or specify its format."
                    ),
                )
            yield line

    def _is_plain(self) -> bool:
        """Not gzip. Raises UsageError for a file that cannot be read."""
        with opened(self.path) as raw:
            return raw.read(2) != GZIP_MAGIC

    def _holds(self, letter: bytes) -> bool:
        """Whether the byte is anywhere in the file. Raises UsageError for a file that cannot be read."""
        with opened(self.path) as raw:
            return any(letter in piece for piece in iter(lambda: raw.read(1 << 20), b""))

    @abstractmethod
    def _rows_in(self, lines: Iterable[tuple[int, str]], wanted: Sequence[int]) -> Rows:
        """The rows in whole `lines`, (position, text) each. Raises UsageError where the file is broken."""

    def _all_rows(self, wanted: Sequence[int]) -> Rows:
        with self._lines() as lines:
            yield from self._rows_in(enumerate(lines, 1), wanted)

    def batches(self, wanted: Sequence[int]) -> Iterator[ColumnBatch]:
        yield from self._in_batches(self._all_rows(wanted))

    def has_places(self) -> bool:
        """Whether each row of this file can be read alone."""
        return self.can_jump and self._is_plain()

    def placed(self, wanted: Sequence[int]) -> Iterator[ColumnBatch]:
        if not self.has_places():
            yield from self.batches(wanted)
            return
        # What is no text shows in the first line.
        self.head(1)
        number = 1
        for block, end in whole_blocks(self.path, self.row_mark):
            starts, lines = zip(*block.lines(), strict=True)
            rows = list(self._rows_in(enumerate(lines, number), wanted))
            # A row goes on to where the next one begins.
            edges = np.array([*(starts[position - number] - 1 for position, _ in rows), end], np.int64)
            places = np.stack([edges[:-1], edges[1:]], axis=1)
            done = 0
            for batch in self._in_batches(iter(rows)):
                yield replace(batch, places=places[done : done + len(batch.positions)])
                done += len(batch.positions)
            number += len(lines)

    def cells(self, piece: bytes, wanted: Sequence[int]) -> Sequence[str | None]:
        # Any line but the first, which may be a header.
        lines = Block(2, piece.decode("utf-8", "surrogateescape"), 0.0).lines()
        return next(self._rows_in(lines, wanted))[1]

    def sample(self, wanted: Sequence[int], limit: int) -> Iterator[ColumnBatch]:
        if not self._is_plain() or not self.can_jump:
            yield from self.batches(wanted)
            return
        self.unit, self.partial = "byte", True
        batches = self._in_batches(self._from_blocks(wanted, limit))
        first = next(batches, None)
        if first is not None:
            yield first
            yield from batches
            return
        # Rows so long that none begins in a block: the first ones stand for all.
        self.unit, self.partial = type(self).unit, False
        yield from self.batches(wanted)

    def _from_blocks(self, wanted: Sequence[int], limit: int) -> Rows:
        for block in sample_blocks(self.path, limit, self.row_mark):
            yield from self._rows_in(block.lines(), wanted)
            self._share = block.share

    def _in_batches(self, rows: Rows) -> Iterator[ColumnBatch]:
        batch: list[tuple[int, Sequence[str | None]]] = []
        characters = 0
        for position, cells in rows:
            batch.append((position, cells))
            characters += sum(map(len, filter(None, cells)))
            if len(batch) >= BATCH_ROWS or characters >= BATCH_CHARACTERS:
                yield batch_of(batch, self)
                batch, characters = [], 0
        if batch:
            yield batch_of(batch, self)

    def share_read(self) -> float:
        if self._raw is not None:
            size = os.fstat(self._raw.fileno()).st_size
            self._share = os.lseek(self._raw.fileno(), 0, os.SEEK_CUR) / max(size, 1)
        return min(1.0, self._share)

    def head(self, count: int) -> list[tuple[str | None, ...]]:
        batch = next(self.batches(range(len(self.columns))), None)
        if batch is None:
            return []
        return list(zip(*(values.slice(0, count).to_pylist() for values in batch.values), strict=True))


def batch_of(rows: Sequence[tuple[int, Sequence[str | None]]], reader: Reader) -> ColumnBatch:
    """Some rows, (position, cells) each. Raises UsageError for a text that is not UTF-8."""
    positions = [position for position, _ in rows]
    columns = zip(*(cells for _, cells in rows), strict=True)
    values = tuple(text_array(column, positions, reader.path, reader.unit) for column in columns)
    return ColumnBatch(values, np.asarray(positions, dtype=np.int64))


# Files with one row a line: plain text and JSON lines, plain or gzip.

ROWS_FOR_COLUMNS = 100
DEEPEST = 4
"""Objects inside objects that still count as columns, like translation.en."""
TEXT = mark("text")
KINDS = {
    bool: mark("a boolean"),
    int: mark("a number"),
    float: mark("a number"),
    list: mark("a list"),
    dict: mark("an object"),
}
"""What a value of JSON is called in a sentence."""


class TextReader(TextFileReader):
    """Each line that is not blank is a row with the one column `text`."""

    columns = (Column("text"),)

    def _rows_in(self, lines: Iterable[tuple[int, str]], wanted: Sequence[int]) -> Rows:
        for position, line in lines:
            if line.strip():
                yield position, (line.rstrip("\r\n"),) * len(wanted)


class JsonLinesReader(TextFileReader):
    """Each line is a JSON object. The columns are the keys of the first 100 rows; an inner key is named `outer.inner`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        samples: dict[str, list[Any]] = {}
        for _, row in islice(self._objects(), ROWS_FOR_COLUMNS):
            for key, value in leaves_of(row):
                samples.setdefault(".".join(key), []).append(value)
        outer = {name.rsplit(".", depth)[0] for name in samples for depth in range(1, name.count(".") + 1)}
        # A value that is null here and an object there is one of the object's keys.
        self.columns = tuple(
            _column(key, values)
            for key, values in samples.items()
            if key not in outer or any(value is not None for value in values)
        )

    def _rows_in(self, lines: Iterable[tuple[int, str]], wanted: Sequence[int]) -> Rows:
        yield from self._cells(self._parsed(lines), wanted)

    def _cells(self, objects: Iterable[tuple[int, dict[str, Any]]], wanted: Sequence[int]) -> Rows:
        columns = [self.columns[index] for index in wanted]
        for position, row in objects:
            yield position, [self._text(row, column, position) for column in columns]

    def head(self, count: int) -> list[tuple[str | None, ...]]:
        # What holds no text is shown too.
        rows = [{".".join(key): value for key, value in leaves_of(row)} for _, row in islice(self._objects(), count)]
        return [tuple(_shown(row.get(column.name)) for column in self.columns) for row in rows]

    def _text(self, row: dict[str, Any], column: Column, number: int) -> str | None:
        """One cell; a list in a column of lists as JSON."""
        value: Any = row
        name = column.name
        # The common case is a key of the row itself, whatever dots it holds.
        for part in [name] if name in row else name.split("."):
            if value is None:
                return None
            if name in self.may_lack and isinstance(value, dict) and part not in value:
                return None
            if not isinstance(value, dict) or part not in value:
                problem = tr(
                    "the row has no {name} (its keys: {keys}).", name=repr(name), keys=", ".join(row) or tr("none")
                )
                raise self.broken_at(number, problem)
            value = value[part]
        if column.is_list and isinstance(value, list):
            return json.dumps(value, ensure_ascii=False)
        if name in self.labels and isinstance(value, int | float):
            return json.dumps(value)
        if value is not None and not isinstance(value, str):
            problem = tr("{name} contains {kind}, not text.", name=repr(name), kind=kind_name(value))
            raise self.broken_at(number, problem)
        return value

    def _objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        with self._lines() as lines:
            yield from self._parsed(enumerate(lines, 1))

    def _parsed(self, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in lines:
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                problem = tr(
                    "is not a JSON object on one line ({detail}); JSON Lines are expected.", detail=json_detail(error)
                )
                raise self.broken_at(number, problem) from None
            yield number, self._object(row, number)

    def _object(self, row: Any, number: int) -> dict[str, Any]:
        if not isinstance(row, dict):
            problem = tr("contains {kind}, but must be a JSON object ({braces}).", kind=kind_name(row), braces="{...}")
            raise self.broken_at(number, problem)
        return row


def json_detail(error: Exception) -> str:
    """What is wrong with a JSON text, in a few words."""
    if isinstance(error, json.JSONDecodeError):
        return error.msg.removesuffix(" at").removesuffix(" starting")
    return tr("nested too deeply") if isinstance(error, RecursionError) else tr("a number with too many digits")


def leaves_of(value: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(keys, value) of what an object holds; the keys of the objects inside it are columns of their own."""
    if isinstance(value, dict) and (value or not before) and len(before) < DEEPEST:
        for key, inner in value.items():
            yield from leaves_of(inner, (*before, key))
    else:
        yield before, value


def _column(name: str, values: list[Any]) -> Column:
    kinds = sorted({kind_name(value) for value in values if value is not None and not isinstance(value, str)})
    # A column with some texts is one of texts: the row that holds something else is then named.
    return Column(
        name,
        not kinds or any(isinstance(value, str) for value in values),
        tr(" or ").join(kinds) or "text",
        any(isinstance(value, list) for value in values),
    )


def kind_name(value: Any) -> str:
    """What a sentence calls the kind of a JSON value."""
    return "null" if value is None else tr(KINDS.get(type(value), TEXT))


def _shown(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
