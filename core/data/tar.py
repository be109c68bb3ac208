"""WebDataset shards: the members of tar files, plain or gzip, as rows."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby, islice
from pathlib import Path
from tarfile import TarInfo
from typing import Any, cast

import numpy as np
from trainwiz.core.data.blocks import LONGEST_LINE
from trainwiz.core.data.reader import BATCH_ROWS, Column, ColumnBatch, Reader, cannot_read, unreadable
from trainwiz.core.data.text_file import GZIP_MAGIC, batch_of, leaves_of
from trainwiz.core.errors import UsageError
from trainwiz.core.files import open_file
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text

# The members of a tar file, plain or gzip: all of them, or a sentence. The library ends silently at what is broken.

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
        self.path = path
        self.share_read = 0.0
        """Of the file's bytes, in the pass that is under way."""
        self.packed = False
        """Gzip, as the pass has found."""

    def members(self, readable: Callable[[TarInfo], bool]) -> Iterator[tuple[TarInfo, bytes]]:
        """The members in order; with each that is `readable` its bytes, with others none.

        Raises UsageError where the file cannot be read, is broken, cut off, or changed by the way.
        """
        try:
            with ExitStack() as opened:
                raw = opened.enter_context(open_file(self.path))
                size, self.packed = os.fstat(raw.fileno()).st_size, raw.read(2) == GZIP_MAGIC
                raw.seek(0)
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
                    self.share_read = min(1.0, at / max(size, 1))
                    content = tar.extractfile(member) if readable(member) else None
                    yield member, b"" if content is None else content.read()
                while unpacked is not None and unpacked.read(REST):
                    pass
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            detail = str(error) or type(error).__name__
            raise unreadable(
                str(self.path), tr("is not a whole tar file ({detail}); get it again.", detail=detail)
            ) from None
        except OSError as error:
            raise cannot_read(self.path, error) from None


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
    start: int = 0
    """Its first byte in the archive."""
    data: bytes = b""

    @property
    def kind(self) -> str:
        """What its name ends with."""
        return _kind(self.name)

    def pieces(self) -> list[tuple[bytes, int]]:
        """All of it, or each line, with its first byte in the archive."""
        if self.kind not in LINES:
            return [(self.data, self.start)]
        lines = self.data.splitlines(keepends=True)
        starts = accumulate(map(len, lines), initial=self.start)
        return [(line, start) for line, start in zip(lines, starts, strict=False) if line.strip()]


class TarReader(Reader):
    """Samples of a tar file, plain or gzip. A column is a field such as `txt`, or `json.caption`, a key inside one."""

    unit = "row"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = TarFile(path)
        columns: dict[str, Column] = {}
        self._origins: dict[str, tuple[str, tuple[str, ...]]] = {}
        """Column -> its field, and the keys that lead to it inside the field."""
        for field in chain.from_iterable(sample.values() for sample in islice(self._samples(), SAMPLES_FOR_COLUMNS)):
            for column, keys in self._columns_of(field):
                known = columns.get(column.name)
                if known is None or (column.is_text and not known.is_text):
                    columns[column.name] = column
                    self._origins[column.name] = field.name, keys
        self.columns = tuple(columns.values())

    def batches(self, wanted: Sequence[int]) -> Iterator[ColumnBatch]:
        rows = enumerate(chain.from_iterable(self._rows_of(sample, wanted) for sample in self._samples()), 1)
        while some := list(islice(rows, BATCH_ROWS)):
            places = None if self._file.packed else np.array([places for _, (_, places) in some], np.int64)
            yield replace(batch_of([(number, cells) for number, (cells, _) in some], self), places=places)

    def cells(self, pieces: Sequence[bytes], wanted: Sequence[int]) -> Sequence[str | None]:
        names = [self.columns[index].name for index in wanted]
        fields = (_Field("", self._origins[name][0]) for name in names)
        return [self._cell(*row) for row in zip(pieces, names, fields, strict=True)]

    def share_read(self) -> float:
        return self._file.share_read

    def head(self, count: int) -> list[tuple[str | None, ...]]:
        return [
            tuple(self._first(sample, column) if column.is_text else None for column in self.columns)
            for sample in islice(self._samples(), count)
        ]

    def _first(self, sample: dict[str, _Field], column: Column) -> str | None:
        field = sample.get(self._origins[column.name][0])
        return next((self._cell(piece, column.name, field) for piece, _ in field.pieces()), None) if field else None

    def _rows_of(
        self, sample: dict[str, _Field], wanted: Sequence[int]
    ) -> Iterator[tuple[list[str | None], list[tuple[int, int]]]]:
        """(cells, places) of the rows of a sample: one, or as many as its field of lines has."""
        names = [self.columns[index].name for index in wanted]
        owners = [sample.get(self._origins[name][0]) for name in names]
        origins = {self._origins[name][0] for name in names}
        lines = {origin for origin in origins if _kind(origin) in LINES}
        if lines and len(origins) > 1:
            problem = tr("the columns {columns} are not of one field, and {field} has a row on each line.",
                         columns=", ".join(names), field=min(lines))  # fmt: skip
            raise unreadable(str(self.path), problem)
        each = [[(b"", 0)] if owner is None else owner.pieces() for owner in owners]
        for pieces in zip(*each, strict=True):
            cells = [
                None if owner is None else self._cell(piece, name, owner)
                for (piece, _), owner, name in zip(pieces, owners, names, strict=True)
            ]
            yield cells, [(start, start + len(piece)) for piece, start in pieces]

    def _cell(self, data: bytes, column: str, field: _Field) -> str | None:
        """The text of `column`, which is in `field` or in an object that it holds."""
        if field.kind in TEXT:
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
        if field.kind in TEXT:
            yield Column(field.name), ()
        elif field.kind in (*OBJECT, *LINES):
            for piece, _ in field.pieces()[:SAMPLES_FOR_COLUMNS]:
                for keys, leaf in leaves_of(self._object(piece, field)):
                    text = leaf is None or isinstance(leaf, str)
                    column = ".".join([field.name, *keys])
                    if keys:
                        yield Column(column, text, "text" if text else tr(NO_TEXT), isinstance(leaf, list)), keys
        else:
            yield Column(field.name, False, tr(NO_TEXT)), ()

    def _samples(self) -> Iterator[dict[str, _Field]]:
        """Name of a field -> the field, of each sample."""
        for _, members in groupby(self._fields(), key=lambda field: field.key):
            fields = list(members)
            sample = {field.name: field for field in fields}
            if len(sample) < len(fields):
                raise self._bad(fields[0], tr("a file of this sample is there twice; keep one of them."))
            yield sample

    def _fields(self) -> Iterator[_Field]:
        """The files of the archive whose names have a dot, in order."""
        for member, content in self._file.members(self._is_readable):
            field = _field(member)
            if field is not None:
                yield replace(field, data=content)

    def _is_readable(self, member: TarInfo) -> bool:
        """Raises UsageError for a text that is too long."""
        field = _field(member)
        if field is None or field.kind not in (*TEXT, *OBJECT, *LINES):
            return False
        if member.size >= LONGEST_LINE:
            raise self._bad(field, tr("the text has {most} bytes or more.", most=f"{LONGEST_LINE:,}"))
        return True

    def _bad(self, field: _Field, problem: str) -> UsageError:
        where = tr("{path}, file {name} in it", path=self.path, name=plain_text(f"{field.key}.{field.name}"))
        return unreadable(where, problem)


def _field(member: TarInfo) -> _Field | None:
    """None for what is no field of a sample: a folder, a link, a name without a dot."""
    name = NAME.fullmatch(member.name)
    if name is None or not member.isreg() or member.issparse():
        return None
    return _Field(name[1], name[2].lower(), member.offset_data)


def _text(data: bytes) -> str:
    """What is not UTF-8 becomes lone surrogates, which `text_array` names."""
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")


def _kind(field: str) -> str:
    return field.rsplit(".", 1)[-1]
