"""What every reader offers, and the sentences that they share."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from trainwiz.core.errors import UsageError, usage_error

BATCH_ROWS = 4096
GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a file. `type_name` is what to call a column that holds no text."""

    name: str
    is_text: bool = True
    type_name: str = "text"


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Some rows of the wanted columns."""

    values: tuple[pa.Array, ...]
    """One LargeStringArray of n texts for each wanted column; a missing value is null."""
    positions: np.ndarray
    """(n,) int64: the row or line number (from 1) of each row in its file."""


class Reader(ABC):
    """One opened data file. The constructors raise UsageError for a file that they cannot open."""

    path: Path
    unit: str
    """What a position counts: "row" or "line"."""
    columns: tuple[Column, ...]
    rows: int | None = None
    """Exact number of rows where the format says so at once, else None."""

    @abstractmethod
    def batches(self, wanted: Sequence[int]) -> Iterator[ColumnBatch]:
        """All rows, in the order of the file. Raises UsageError where the file is broken."""

    def sample(self, wanted: Sequence[int], limit: int) -> Iterator[ColumnBatch]:
        """About `limit` rows that stand for the whole file, where the format can jump to them; else all rows."""
        return self.batches(wanted)

    def line_of(self, position: int, letter: int) -> int:
        """Where the letter with this index in the row's text stands, for formats whose rows have many lines."""
        return position

    @abstractmethod
    def share_read(self) -> float:
        """Share of the file's bytes consumed so far, 0 to 1."""

    @abstractmethod
    def head(self, count: int) -> list[tuple[str, ...]]:
        """The first rows with all their columns, as text."""


def unreadable(where: str, problem: str) -> UsageError:
    """A file, or a place in it, that cannot be read: the place and what is wrong there."""
    verb = problem.startswith(("is ", "cannot ", "holds ", "has "))
    return usage_error("unreadable_data", where, f"{where}{'' if verb else ':'} {problem}")


def text_array(values: Sequence[Any], positions: Sequence[int], path: Path, unit: str) -> pa.Array:
    """Texts as an Arrow array; UsageError names the line of one that is not UTF-8.

    Files are opened with `errors="surrogateescape"`: an undecodable byte arrives as a lone
    surrogate, which Arrow cannot encode.
    """
    try:
        return pa.array(values, pa.large_string())
    except UnicodeEncodeError:
        for value, position in zip(values, positions, strict=True):
            broken = next((ch for ch in value or "" if "\ud800" <= ch <= "\udfff"), None)
            if broken is not None:
                raise not_utf8(path, unit, position, ord(broken) - 0xDC00) from None
        raise


def not_utf8(path: Path, unit: str, position: int, byte: int | None = None) -> UsageError:
    shown = f" (byte 0x{byte:02x})" if byte is not None and 0 <= byte <= 255 else ""
    return unreadable(
        f"{path}, {unit} {position}",
        f"the text is not UTF-8{shown}; convert the file, for example with `iconv -t UTF-8`.",
    )


class TextFile:
    """A text file, plain or gzip by content, that knows how far it was read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._raw: IO[bytes] | None = None
        self._share = 0.0

    @contextmanager
    def lines(self, newline: str | None = None) -> Iterator[IO[str]]:
        """The open text. Failures of the file system and of gzip become UsageError."""
        try:
            with self.path.open("rb") as raw:
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
                "the gzip data ends in the middle (a download that was cut short?); get it again.",
            ) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise unreadable(str(self.path), f"the gzip data is damaged ({error}); get it again.") from None
        except OSError as error:
            raise unreadable(str(self.path), f"cannot be read: {error.strerror or error}.") from None
        finally:
            self._raw = None

    def share_read(self) -> float:
        if self._raw is not None:
            self._share = os.lseek(self._raw.fileno(), 0, os.SEEK_CUR) / max(self.size, 1)
        return min(1.0, self._share)


def head_of(batches: Iterator[ColumnBatch], count: int) -> list[tuple[str, ...]]:
    """The first `count` rows of `batches` as tuples of text."""
    batch = next(batches, None)
    if batch is None:
        return []
    columns = [values.slice(0, count).to_pylist() for values in batch.values]
    return [tuple("" if cell is None else cell for cell in row) for row in zip(*columns, strict=True)]
