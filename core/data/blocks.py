"""A large text file in blocks of whole rows: all of it, or pieces from all over it."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
from trainwiz.core.data.reader import place_of, unreadable
from trainwiz.core.errors import os_reason
from trainwiz.core.files import open_file
from trainwiz.core.language import tr

# Pieces of a large plain text file, from all over it: sorted files are common, and their first rows stand for nothing.

LONGEST_LINE = 1 << 26
"""Characters; a longer one is a file without line ends, and would fill the memory."""


def endless() -> str:
    """What is wrong with a line of LONGEST_LINE characters."""
    return tr(
        "the line has {most} characters or more; a row must be shorter, so break the text into lines.",
        most=f"{LONGEST_LINE:,}",
    )


SMALLEST_BYTES, LARGEST_BYTES, BLOCKS = 1 << 11, 1 << 15, 256
"""Many small ones: in a sorted file all rows of a block are alike."""
SEED = 0x7EAD


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines from the middle of a file."""

    start: int
    """The byte, from 1, with which the first line begins."""
    text: str
    share: float
    """Share of the file's bytes in this block and those before it."""

    @property
    def begins_file(self) -> bool:
        return self.start == 1

    def lines(self) -> Iterator[tuple[int, str]]:
        """(byte from 1, line with its end); lines end with \\n, \\r\\n or \\r."""
        at = self.start
        for line in io.StringIO(self.text, newline=""):
            yield at, line
            at += len(line) if line.isascii() else len(line.encode("utf-8", "surrogateescape"))


def sample_blocks(path: Path, rows: int, mark: bytes = b"") -> Iterator[Block]:
    """A block from a random place of each equal part of the file, the same at each call; enough for about `rows` rows.

    A line belongs to the block that its first byte lies in, so each row is as likely as any other. With a
    `mark`, rows begin with a line that begins with it: a block goes on to the end of its last row. Raises
    UsageError for a file that cannot be read, and for endless lines.
    """
    try:
        size = path.stat().st_size
        with open_file(path) as raw:
            each, count = _blocks(raw, size, rows, mark)
            places = np.random.Generator(np.random.Philox(SEED)).random(count) * max(0.0, size / count - each)
            for part in range(count):
                start = int(part * size / count + places[part])
                first, text = _lines_from(raw, path, start, start + each, mark)
                yield Block(first + 1, text, min(1.0, (part + 1) * each / size))
    except OSError as error:
        raise unreadable(str(path), tr("cannot be read: {reason}.", reason=os_reason(error))) from None


def _blocks(raw: IO[bytes], size: int, rows: int, mark: bytes) -> tuple[int, int]:
    """(bytes of a block, blocks), by the rows with which the file begins: small blocks for short rows."""
    start = raw.read(LARGEST_BYTES)
    wanted = rows * len(start) / max(1, start.count(b"\n" + mark))
    each = int(min(LARGEST_BYTES, max(SMALLEST_BYTES, wanted / BLOCKS)))
    return each, max(1, min(BLOCKS, size // each))


def _lines_from(raw: IO[bytes], path: Path, start: int, end: int, mark: bytes) -> tuple[int, str]:
    """(first byte from 0, text) of the lines that begin from byte `start` to before `end`."""
    raw.seek(max(0, start - 1))
    # Where no line begins in the block, the end of the one that fills it is not looked for.
    if start and not raw.readline(end - start).endswith(b"\n"):
        return end, ""
    first = raw.tell()
    parts = [raw.read(end - first)] if first < end else []
    if parts and not parts[0].endswith(b"\n"):
        parts.append(read_line(raw, path))
    size = sum(map(len, parts))
    while mark and parts and size < LONGEST_LINE and (line := read_line(raw, path)) and not line.startswith(mark):
        parts.append(line)
        size += len(line)
    return first, b"".join(parts).decode("utf-8-sig" if first == 0 else "utf-8", "surrogateescape")


def read_line(raw: IO[bytes], path: Path) -> bytes:
    """One line with its end. Raises UsageError for an endless one."""
    at = raw.tell()
    line = raw.readline(LONGEST_LINE)
    if len(line) == LONGEST_LINE:
        raise unreadable(place_of(path, "byte", at + 1), endless())
    return line


def spread(count: int, most: int) -> list[int]:
    """Numbers below `count`, ascending: all, or a random one of each of `most` equal parts; the same at each call."""
    if count <= most:
        return list(range(count))
    edges = np.linspace(0, count, most + 1).astype(np.int64)
    chosen = np.random.Generator(np.random.Philox(SEED)).integers(edges[:-1], edges[1:])
    return [int(number) for number in chosen]


# A plain text file from its beginning to its end, in blocks of whole rows that know their lines and their bytes.

BLOCK_BYTES = 4 << 20


def _too_long() -> str:
    return tr(
        "the record that begins here has {most} bytes or more; cut it into shorter ones, or read the data into "
        "memory with data.streaming: false.",
        most=f"{LONGEST_LINE:,}",
    )


@dataclass(frozen=True, slots=True)
class WholeBlock(Block):
    """Its positions are line numbers of the file, as where a file is read through; `starts` gives their bytes."""

    end: int
    """The byte, from 0, after the last."""
    line: int
    """Number, from 1, of the first line."""
    bytes: list[int] = field(default_factory=list)
    """The first byte, from 0, of each line that was read."""

    @property
    def begins_file(self) -> bool:
        return self.line == 1

    def lines(self) -> Iterator[tuple[int, str]]:
        for number, (at, line) in enumerate(Block.lines(self), self.line):
            self.bytes.append(at - 1)
            yield number, line

    def starts(self, positions: Iterable[int]) -> np.ndarray:
        """(n,) int64: the first byte, from 0, of the rows at these positions; once all lines were read."""
        return np.fromiter((self.bytes[position - self.line] for position in positions), np.int64)


def whole_blocks(path: Path, mark: bytes = b"") -> Iterator[WholeBlock]:
    """All of the file, in order; with a `mark`, a block ends before a line that begins with it.

    Each block must be read through before the next is asked for. Raises UsageError for a file that
    cannot be read, and for endless lines.
    """
    try:
        with open_file(path) as raw:
            if raw.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
                raw.seek(0)
            start, line, ahead = raw.tell(), 1, b""
            while piece := ahead + raw.read(BLOCK_BYTES):
                parts, ahead = [piece], b""
                if not piece.endswith(b"\n"):
                    parts.append(read_line(raw, path))
                size = len(piece)
                while mark and (more := read_line(raw, path)):
                    if more.startswith(mark):
                        ahead = more
                        break
                    parts.append(more)
                    size += len(more)
                    if size >= BLOCK_BYTES + LONGEST_LINE:
                        record = start + b"".join(parts).rfind(b"\n" + mark) + 1
                        raise unreadable(place_of(path, "byte", record + 1), _too_long())
                whole = b"".join(parts)
                end = start + len(whole)
                block = WholeBlock(start + 1, whole.decode("utf-8", "surrogateescape"), 0.0, end, line)
                yield block
                start, line = end, line + len(block.bytes)
    except OSError as error:
        raise unreadable(str(path), tr("cannot be read: {reason}.", reason=os_reason(error))) from None
