"""WebDataset shards: the members of tar files, plain or gzip, as rows."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from tarfile import TarInfo
from typing import Any, cast

import numpy as np
from trainwiz.core.data.blocks import LONGEST_LINE
from trainwiz.core.data.reader import BATCH_ROWS, Column, ColumnBatch, PlacedReader, text_array, unreadable
from trainwiz.core.data.text_file import DEEPEST
from trainwiz.core.errors import UsageError, os_reason
from trainwiz.core.files import open_file
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text

# The members of a tar file, plain or gzip: all of them, or a sentence. The library ends silently at what is broken.

GZIP_MAGIC = b"\x1f\x8b"
REST = 1 << 20
"""Read at once of what follows the last member, so that gzip can compare its checksum."""


class _Archive(tarfile.TarFile):
    ended = False
    """The last block was the zeros that end an archive. Another archive may follow, as after `cat a.tar b.tar`."""


class _Member(tarfile.TarInfo):
    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> _Member:
        archive = cast(_Archive, tarfile)
        try:
            found = super().fromtarfile(archive)
        except EndOfArchive:
            archive.ended = True
            raise
        except BrokenHeader as error:
            if archive.ended and isinstance(error, NoHeader):
                raise
            raise NotWhole(str(error)) from None
        archive.ended = False
        return found


EndOfArchive, NoHeader = tarfile.EOFHeaderError, tarfile.EmptyHeaderError  # type: ignore[attr-defined]
BrokenHeader, NotWhole = tarfile.HeaderError, tarfile.ReadError


class TarFile:
    """One tar file, read from its beginning to its end each time."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError for a file that cannot be read."""
        self.path = path
        self.share_read = 0.0
        """Of the file's bytes, in the pass that is under way."""
        self._size = path.stat().st_size
        try:
            with open_file(path) as raw:
                self.packed = raw.read(2) == GZIP_MAGIC
        except OSError as error:
            raise self._unreadable(error) from None

    def members(self, readable: Callable[[tarfile.TarInfo], bool]) -> Iterator[tuple[tarfile.TarInfo, bytes | None]]:
        """The members in order; with each that is `readable` its bytes, where the file is packed and has no places.

        Raises UsageError where the file is broken, cut off, or changed by the way.
        """
        try:
            with ExitStack() as opened:
                raw = opened.enter_context(open_file(self.path))
                unpacked = opened.enter_context(gzip.GzipFile(fileobj=raw)) if self.packed else None
                tar = opened.enter_context(
                    _Archive.open(
                        fileobj=unpacked or raw,
                        mode="r|" if self.packed else "r:",
                        tarinfo=_Member,
                        # Zeros alone: what is no header is an error of _Member.
                        ignore_zeros=True,
                    )
                )
                for member in tar:
                    # The library keeps every member that it has seen.
                    tar.members = []  # type: ignore[attr-defined]
                    at = os.lseek(raw.fileno(), 0, os.SEEK_CUR) if self.packed else member.offset_data + member.size
                    self.share_read = min(1.0, at / max(self._size, 1))
                    found = tar.extractfile(member) if readable(member) and self.packed else None
                    yield member, None if found is None else found.read()
                while unpacked is not None and unpacked.read(REST):
                    pass
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            detail = str(error) or type(error).__name__
            raise unreadable(
                str(self.path), tr("is not a whole tar file ({detail}); get it again.", detail=detail)
            ) from None
        except OSError as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: OSError) -> Exception:
        return unreadable(str(self.path), tr("cannot be read: {reason}.", reason=os_reason(error)))


# WebDataset shards: tar files whose members with one name before the first dot are one sample.

SAMPLES_FOR_COLUMNS = 100
TEXT, OBJECT, LINES = ("txt", "text", "transcript"), ("json",), ("jsonl", "ndjson")
"""What a field's name ends with: a text, a JSON object, or JSON objects of which each line is a row."""
NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)")
NO_TEXT = mark("no text")


@dataclass(frozen=True, slots=True)
class _Field:
    """One member of a sample. Its name stays here: it is never a path on this machine."""

    key: str
    name: str
    """After the first dot, in lower case, as the webdataset library has it."""
    start: int
    end: int
    data: bytes | None
    """None where the file is not packed: the bytes are read from their place when they are wanted."""


class TarReader(PlacedReader):
    """Samples of a tar file, plain or gzip. A column is a field such as `txt`, or `json.caption`, a key inside one."""

    unit = "row"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = TarFile(path)
        found: dict[str, Column] = {}
        self._origins: dict[str, tuple[str, tuple[str, ...]]] = {}
        for sample in islice(self._samples(), SAMPLES_FOR_COLUMNS):
            for field in sample:
                for column, keys in self._columns_of(field):
                    known = found.get(column.name)
                    if known is None or (column.is_text and not known.is_text):
                        found[column.name] = column
                        self._origins[column.name] = field.name, keys
        self.columns = tuple(found.values())

    def batches(self, wanted: Sequence[int]) -> Iterator[ColumnBatch]:
        rows = ((cells, None) for sample in self._samples() for cells, _ in self._rows_of(sample, wanted))
        yield from self._in_batches(rows, len(wanted))

    def has_places(self) -> bool:
        return not self._file.packed

    def placed(self, wanted: Sequence[int]) -> Iterator[ColumnBatch]:
        rows = (row for sample in self._samples() for row in self._rows_of(sample, wanted))
        yield from self._in_batches(rows, len(wanted))

    def cells(self, pieces: Sequence[bytes], wanted: Sequence[int]) -> Sequence[str | None]:
        names = [self.columns[index].name for index in wanted]
        return [
            self._cell(piece, name, _Field("", self._origins[name][0], 0, 0, None))
            for piece, name in zip(pieces, names, strict=True)
        ]

    def share_read(self) -> float:
        return self._file.share_read

    def head(self, count: int) -> list[tuple[str | None, ...]]:
        texts = [index for index, column in enumerate(self.columns) if column.is_text]
        rows = []
        for sample in islice(self._samples(), count):
            fields = {field.name: field for field in sample}
            cells = dict(zip(texts, (self._first(fields, self.columns[index].name) for index in texts), strict=True))
            rows.append(tuple(cells.get(index) for index in range(len(self.columns))))
        return rows

    def _first(self, fields: dict[str, _Field], column: str) -> str | None:
        field = fields.get(self._origins[column][0])
        if field is None:
            return None
        return next((self._cell(data, column, field) for data, _, _ in self._pieces(field)), None)

    def _rows_of(
        self, sample: list[_Field], wanted: Sequence[int]
    ) -> Iterator[tuple[list[str | None], list[tuple[int, int]]]]:
        """(cells, places) of the rows of a sample: one, or as many as its field of lines has."""
        fields = {field.name: field for field in sample}
        names = [self.columns[index].name for index in wanted]
        owners = [fields.get(self._origins[name][0]) for name in names]
        origins = {self._origins[name][0] for name in names}
        lines = {origin for origin in origins if _kind(origin) in LINES}
        if lines and len(origins) > 1:
            problem = tr("the columns {columns} are not of one field, and {field} has a row on each line.",
                         columns=", ".join(names), field=min(lines))  # fmt: skip
            raise unreadable(str(self.path), problem)
        each = [[(b"", 0, 0)] if owner is None else list(self._pieces(owner)) for owner in owners]
        for pieces in zip(*each, strict=True):
            cells = [
                None if owner is None else self._cell(data, name, owner)
                for (data, _, _), owner, name in zip(pieces, owners, names, strict=True)
            ]
            yield cells, [(start, end) for _, start, end in pieces]

    def _pieces(self, field: _Field) -> Iterator[tuple[bytes, int, int]]:
        """(bytes, first byte in the file, end) of a field, or of each line in it."""
        data = field.data if field.data is not None else self._read(field.start, field.end - field.start)
        if _kind(field.name) not in LINES:
            yield data, field.start, field.end
            return
        at = field.start
        for line in data.splitlines(keepends=True):
            if line.strip():
                yield line, at, at + len(line)
            at += len(line)

    def _cell(self, data: bytes, column: str, field: _Field) -> str | None:
        """The text of `column`, which is in `field` or in an object that it holds."""
        if _kind(field.name) in TEXT:
            return _text(data)
        value = self._object(data, field)
        for key in self._origins[column][1]:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None and not isinstance(value, str):
            raise self._bad(field, tr("{name} does not hold text in every row.", name=repr(column)))
        return value

    def _object(self, data: bytes, field: _Field) -> Any:
        try:
            return json.loads(_text(data))
        except (ValueError, RecursionError):
            raise self._bad(field, tr("is not JSON.")) from None

    def _columns_of(self, field: _Field) -> Iterator[tuple[Column, tuple[str, ...]]]:
        """(column, the keys that lead to it inside the field)."""
        kind = _kind(field.name)
        if kind in TEXT:
            yield Column(field.name), ()
        elif kind in OBJECT or kind in LINES:
            for data, _, _ in islice(self._pieces(field), SAMPLES_FOR_COLUMNS):
                value = self._object(data, field)
                for keys, leaf in _leaves(value, ()):
                    text = leaf is None or isinstance(leaf, str)
                    column = ".".join([field.name, *keys])
                    yield Column(column, text, "text" if text else tr(NO_TEXT), isinstance(leaf, list)), keys
        else:
            yield Column(field.name, False, tr(NO_TEXT)), ()

    def _in_batches(self, rows: Iterable[tuple[list[str | None], Any]], columns: int) -> Iterator[ColumnBatch]:
        found = iter(rows)
        done = 0
        while some := list(islice(found, BATCH_ROWS)):
            positions = np.arange(done + 1, done + 1 + len(some), dtype=np.int64)
            sides = zip(*(cells for cells, _ in some), strict=True) if columns else ()
            values = tuple(text_array(side, positions.tolist(), self.path, self.unit) for side in sides)
            batch = ColumnBatch(values, positions)
            done += len(some)
            yield batch if some[0][1] is None else replace(batch, places=np.array([p for _, p in some], np.int64))

    def _samples(self) -> Iterator[list[_Field]]:
        for _, members in groupby(self._fields(), key=lambda field: field.key):
            sample = list(members)
            if len({field.name for field in sample}) < len(sample):
                raise self._bad(sample[0], tr("a file of this sample is there twice; keep one of them."))
            yield sample

    def _fields(self) -> Iterator[_Field]:
        """The files of the archive whose names have a dot, in order."""
        for member, packed in self._file.members(self._is_readable):
            field = _field(member)
            if field is not None:
                yield replace(field, data=packed)

    def _is_readable(self, member: TarInfo) -> bool:
        """Raises UsageError for a text that is too long."""
        field = _field(member)
        if field is None or _kind(field.name) not in (*TEXT, *OBJECT, *LINES):
            return False
        if member.size >= LONGEST_LINE:
            raise self._bad(field, tr("the text has {most} bytes or more.", most=f"{LONGEST_LINE:,}"))
        return True

    def _bad(self, field: _Field, problem: str) -> UsageError:
        where = tr("{path}, file {name} in it", path=self.path, name=plain_text(f"{field.key}.{field.name}"))
        return unreadable(where, problem)

    def _read(self, start: int, count: int) -> bytes:
        with open_file(self.path) as raw:
            raw.seek(start)
            return raw.read(count)


def _field(member: TarInfo) -> _Field | None:
    """None for what is no field of a sample: a folder, a link, a name without a dot."""
    name = NAME.fullmatch(member.name)
    if name is None or not member.isreg() or member.issparse():
        return None
    return _Field(name[1], name[2].lower(), member.offset_data, member.offset_data + member.size, None)


def _text(data: bytes) -> str:
    """What is not UTF-8 becomes lone surrogates, which `text_array` names."""
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")


def _kind(field: str) -> str:
    """What a field's name ends with."""
    return field.rsplit(".", 1)[-1]


def _leaves(value: Any, before: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(keys, value) of what an object holds, with what the objects inside it hold."""
    if isinstance(value, dict) and value and len(before) < DEEPEST:
        for key, inner in value.items():
            yield from _leaves(inner, (*before, key))
    elif before:
        yield before, value
