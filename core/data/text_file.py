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
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from trainwiz.core.data.reader import (
    BATCH_ROWS,
    SEED,
    Column,
    Reader,
    RowBatch,
    cannot_read,
    text_array,
    unreadable,
)
from trainwiz.core.errors import UsageError
from trainwiz.core.files import open_file
from trainwiz.core.language import mark, tr

# Text files, plain or gzip, and what the readers of text formats share.

GZIP_MAGIC = b"\x1f\x8b"
BATCH_CHARACTERS = 1 << 23
"""Rows of books end a batch early."""
LONGEST_LINE = 1 << 26
"""Characters; a longer one is a file without line ends, and would fill the memory."""

Rows = Iterator[tuple[int, Sequence[str | None]]]
"""(position, one cell for each wanted column) of each row."""
Lines = Iterable[tuple[int, str]]
"""(position, line with its end)."""


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
    def text(self, newline: str | None = None) -> Iterator[IO[str]]:
        """The open text. Failures of the file system and of gzip become UsageError."""
        try:
            with open_file(self.path) as raw:
                self._raw = raw
                zipped = raw.read(2) == GZIP_MAGIC
                raw.seek(0)
                source = io.BufferedReader(gzip.GzipFile(fileobj=raw), 1 << 20) if zipped else raw
                with io.TextIOWrapper(source, encoding="utf-8-sig", errors="surrogateescape", newline=newline) as text:
                    yield text
        except EOFError:
            problem = tr("the gzip data is truncated (incomplete download?); download or copy it again.")
            raise unreadable(str(self.path), problem) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            problem = tr("the gzip data is corrupt ({error}); download or copy it again.", error=error)
            raise unreadable(str(self.path), problem) from None
        except OSError as error:
            raise cannot_read(self.path, error) from None
        finally:
            self._raw = None

    def _lines(self, newline: str | None = None) -> Iterator[str]:
        """The lines of the text, with their ends. Raises UsageError, for endless lines too."""
        with self.text(newline) as text:
            number = 0
            while line := text.readline(LONGEST_LINE):
                number += 1
                if len(line) == LONGEST_LINE:
                    raise self._endless(number)
                if number == 1 and "\0" in line:
                    problem = tr(
                        "the text contains NUL bytes; it is UTF-16 without a BOM, or not text: convert it, for "
                        "example with `iconv -f UTF-16 -t UTF-8`, or specify its format."
                    )
                    raise self.broken_at(number, problem)
                yield line

    def _endless(self, position: int) -> UsageError:
        problem = tr(
            "the line has {most} or more characters; rows must be shorter, so split the text into lines.",
            most=f"{LONGEST_LINE:,}",
        )
        return self.broken_at(position, problem)

    @abstractmethod
    def _rows_in(self, lines: Lines, wanted: Sequence[int]) -> Rows:
        """The rows in whole `lines`. Raises UsageError where the file is broken."""

    def _all_rows(self, wanted: Sequence[int]) -> Rows:
        return self._rows_in(enumerate(self._lines(), 1), wanted)

    def batches(self, wanted: Sequence[int]) -> Iterator[RowBatch]:
        return self._in_batches(self._all_rows(wanted))

    def sample(self, wanted: Sequence[int], limit: int) -> Iterator[RowBatch]:
        if self.can_jump and self._is_plain():
            self.unit, self.partial = "byte", True
            some = False
            for batch in self._in_batches(self._from_blocks(wanted, limit)):
                some = True
                yield batch
            if some:
                return
            # Rows so long that none begins in a block: the first ones stand for all.
            self.unit, self.partial = type(self).unit, False
        yield from self.batches(wanted)

    def _is_plain(self) -> bool:
        try:
            with open_file(self.path) as raw:
                return raw.read(2) != GZIP_MAGIC
        except OSError as error:
            raise cannot_read(self.path, error) from None

    def _from_blocks(self, wanted: Sequence[int], limit: int) -> Rows:
        for start, text, share in self.blocks(limit):
            yield from self._rows_in(_lines_of(text, start), wanted)
            self._share = share

    def blocks(self, rows: int) -> Iterator[tuple[int, str, float]]:
        """(first byte from 1, whole rows, share of the file up to there): a block from a random place of each equal part of
        a plain file, the same at each call, enough for about `rows` rows. Sorted files are common.

        A row belongs to the block that its first byte lies in, so each is as likely as any other. Raises UsageError
        for a file that cannot be read, and for endless lines.
        """
        try:
            with open_file(self.path) as raw:
                size = os.fstat(raw.fileno()).st_size
                start = raw.read(LARGEST_BYTES)
                wanted = rows * len(start) / max(1, start.count(b"\n" + self.row_mark))
                each = int(min(LARGEST_BYTES, max(SMALLEST_BYTES, wanted / BLOCKS)))
                count = max(1, min(BLOCKS, size // each))
                places = np.random.Generator(np.random.Philox(SEED)).random(count) * max(0.0, size / count - each)
                for part in range(count):
                    at = int(part * size / count + places[part])
                    first, text = self._block(raw, at, at + each)
                    yield first + 1, text, min(1.0, (part + 1) * each / size)
        except OSError as error:
            raise cannot_read(self.path, error) from None

    def _block(self, raw: IO[bytes], start: int, end: int) -> tuple[int, str]:
        """(first byte from 0, text) of the rows that begin from byte `start` to before `end`."""
        raw.seek(max(0, start - 1))
        # Where no line begins in the block, the end of the one that fills it is not looked for.
        if start and not raw.readline(end - start).endswith(b"\n"):
            return end, ""
        first = raw.tell()
        whole = raw.read(max(0, end - first))
        if whole and not whole.endswith(b"\n"):
            whole += self._line(raw)
        while self.row_mark and 0 < len(whole) < LONGEST_LINE:
            line = self._line(raw)
            if not line or line.startswith(self.row_mark):
                break
            whole += line
        if self.row_mark and first and not whole.startswith(self.row_mark):
            # It begins in the middle of a row that belongs to the block before it.
            before = whole.find(b"\n" + self.row_mark) + 1
            first, whole = (first + before, whole[before:]) if before else (end, b"")
        return first, whole.decode("utf-8-sig" if first == 0 else "utf-8", "surrogateescape")

    def _line(self, raw: IO[bytes]) -> bytes:
        at = raw.tell()
        line = raw.readline(LONGEST_LINE)
        if len(line) == LONGEST_LINE:
            raise self._endless(at + 1)
        return line

    def _in_batches(self, rows: Rows) -> Iterator[RowBatch]:
        batch: list[tuple[int, Sequence[str | None]]] = []
        characters = 0
        for position, cells in rows:
            batch.append((position, cells))
            characters += sum(map(len, filter(None, cells)))
            if len(batch) >= BATCH_ROWS or characters >= BATCH_CHARACTERS:
                yield self._batch(batch)
                batch, characters = [], 0
        if batch:
            yield self._batch(batch)

    def _batch(self, rows: Sequence[tuple[int, Sequence[str | None]]]) -> RowBatch:
        """Raises UsageError for a text that is not UTF-8."""
        positions = [position for position, _ in rows]
        columns = zip(*(cells for _, cells in rows), strict=True)
        values = tuple(text_array(column, positions, self) for column in columns)
        return RowBatch(values, np.asarray(positions, dtype=np.int64), self)

    def share_read(self) -> float:
        if self._raw is not None:
            size = os.fstat(self._raw.fileno()).st_size
            self._share = os.lseek(self._raw.fileno(), 0, os.SEEK_CUR) / max(size, 1)
        return min(1.0, self._share)

    def head(self, count: int) -> Iterator[tuple[str | None, ...]]:
        for row in islice(self._all_rows(range(len(self.columns))), count):
            yield tuple(values[0].as_py() for values in self._batch([row]).sides)


SMALLEST_BYTES, LARGEST_BYTES, BLOCKS = 1 << 11, 1 << 15, 256
"""Many small ones: in a sorted file all rows of a block are alike."""


def _lines_of(text: str, start: int) -> Iterator[tuple[int, str]]:
    """(byte, line with its end) of a text that begins at byte `start`."""
    for line in io.StringIO(text, newline=""):
        yield start, line
        start += len(line) if line.isascii() else len(line.encode("utf-8", "surrogateescape"))


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

    def _rows_in(self, lines: Lines, wanted: Sequence[int]) -> Rows:
        for position, line in lines:
            if line.strip():
                yield position, (line.rstrip("\r\n"),) * len(wanted)


class JsonLinesReader(TextFileReader):
    """Each line is a JSON object. The columns are the keys of the first 100 rows; an inner key is named `outer.inner`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        samples: dict[str, list[Any]] = {}
        for row in self._first(ROWS_FOR_COLUMNS):
            for name, value in row.items():
                samples.setdefault(name, []).append(value)
        outer = {name.rsplit(".", depth)[0] for name in samples for depth in range(1, name.count(".") + 1)}
        # A value that is null here and an object there is one of the object's keys.
        self.columns = tuple(
            _column(name, values)
            for name, values in samples.items()
            if name not in outer or any(value is not None for value in values)
        )

    def _first(self, count: int) -> Iterator[dict[str, Any]]:
        """Column -> value of the first rows."""
        return (dict(_leaves(row)) for _, row in islice(self._objects(), count))

    def head(self, count: int) -> Iterator[tuple[str | None, ...]]:
        # What holds no text is shown too.
        for row in self._first(count):
            yield tuple(_shown(row.get(column.name)) for column in self.columns)

    def _rows_in(self, lines: Lines, wanted: Sequence[int]) -> Rows:
        return self._cells(self._parsed(lines), wanted)

    def _cells(self, objects: Iterable[tuple[int, dict[str, Any]]], wanted: Sequence[int]) -> Rows:
        columns = [self.columns[index] for index in wanted]
        for position, row in objects:
            yield position, [self._text(row, column, position) for column in columns]

    def _text(self, row: dict[str, Any], column: Column, number: int) -> str | None:
        """One cell; a list in a column of lists as JSON."""
        value: Any = row
        name = column.name
        # The common case is a key of the row itself, whatever dots it holds.
        for part in [name] if name in row else name.split("."):
            if value is None:
                return None
            if not isinstance(value, dict) or part not in value:
                if name in self.may_lack and isinstance(value, dict):
                    return None
                keys = ", ".join(row) or tr("none")
                raise self.broken_at(
                    number, tr("the row has no {name} (its keys: {keys}).", name=repr(name), keys=keys)
                )
            value = value[part]
        if (column.is_list and isinstance(value, list)) or (name in self.labels and isinstance(value, int | float)):
            return json.dumps(value, ensure_ascii=False)
        if value is not None and not isinstance(value, str):
            problem = tr("{name} contains {kind}, not text.", name=repr(name), kind=_kind_name(value))
            raise self.broken_at(number, problem)
        return value

    def _objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        return self._parsed(enumerate(self._lines(), 1))

    def _parsed(self, lines: Lines) -> Iterator[tuple[int, dict[str, Any]]]:
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
            problem = tr("contains {kind}, but must be a JSON object ({braces}).", kind=_kind_name(row), braces="{...}")
            raise self.broken_at(number, problem)
        return row


def json_detail(error: Exception) -> str:
    """What is wrong with a JSON text, in a few words."""
    if isinstance(error, json.JSONDecodeError):
        return error.msg.removesuffix(" at").removesuffix(" starting")
    return tr("nested too deeply") if isinstance(error, RecursionError) else tr("a number with too many digits")


def _leaves(value: dict[str, Any], before: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """(name, value) of what an object holds; the keys of the objects inside it are columns of their own."""
    for key, inner in value.items():
        if isinstance(inner, dict) and inner and depth < DEEPEST:
            yield from _leaves(inner, f"{before}{key}.", depth + 1)
        else:
            yield f"{before}{key}", inner


def _column(name: str, values: list[Any]) -> Column:
    kinds = sorted({_kind_name(value) for value in values if value is not None and not isinstance(value, str)})
    # A column with some texts is one of texts: the row that holds something else is then named.
    return Column(
        name,
        not kinds or any(isinstance(value, str) for value in values),
        tr(" or ").join(kinds) or "text",
        any(isinstance(value, list) for value in values),
    )


def _kind_name(value: Any) -> str:
    """What a sentence calls the kind of a JSON value."""
    return "null" if value is None else tr(KINDS.get(type(value), TEXT))


def _shown(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
