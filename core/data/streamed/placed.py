"""Rows of text files and tar shards, each read from its own place in the file."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from trainwiz.core.data.reader import Reader, unreadable
from trainwiz.core.data.streamed.part import Part, Row, Unit, changed
from trainwiz.core.errors import UsageError, os_reason
from trainwiz.core.language import tr

PLACE = np.dtype("<i8")


class OpenFile:
    """A file that each process opens for itself, when it first reads from it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: tuple[int, int] | None = None

    def read(self, start: int, count: int) -> bytes:
        """Bytes of the file. Raises OSError."""
        if self._opened is None or self._opened[0] != os.getpid():
            descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            weakref.finalize(self, os.close, descriptor)
            self._opened = os.getpid(), descriptor
        return os.pread(self._opened[1], count, start)


class PlacedPart(Part):
    """One file whose rows have places; they are kept in a file of their own, so that memory does not grow with the rows."""

    def __init__(
        self,
        open_reader: Callable[[], tuple[Reader, list[int]]],
        path: Path,
        trim: Callable[[pa.Array], pa.Array],
        units: tuple[Unit, ...],
        places: Path,
        pieces: int,
    ) -> None:
        """`open_reader` gives the reader of `path` and the wanted columns; `places` holds (rows, pieces, 2) int64."""
        self.units = units
        self._open = open_reader
        self._opened: tuple[Reader, list[int]] | None = None
        self._trim = trim
        self._data = OpenFile(path)
        self._places = OpenFile(places)
        self._pieces = pieces

    def row(self, number: int) -> Row:
        try:
            bytes_of_row = 2 * self._pieces * PLACE.itemsize
            stored = self._places.read(number * bytes_of_row, bytes_of_row)
            places = np.frombuffer(stored, PLACE).reshape(-1, 2).tolist()
            pieces = [self._data.read(start, end - start) for start, end in places]
        except OSError as error:
            raise unreadable(str(self._data.path), tr("cannot be read: {reason}.", reason=os_reason(error))) from None
        try:
            self._opened = self._opened or self._open()
            reader, wanted = self._opened
            cells = reader.cells(pieces, wanted)
        except (StopIteration, UsageError):
            raise changed(self._data.path) from None
        values = self._trim(pa.array(cells, pa.large_string())).to_pylist()
        if not all(values):
            raise changed(self._data.path)
        return values[0], values[1] if len(values) > 1 else None
