"""A large plain text file in blocks of whole lines: all of it, or pieces from all over it."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from trainwiz.core.data.reader import SEED, opened, place_of, unreadable
from trainwiz.core.language import tr

# Pieces of a large plain text file, from all over it: sorted files are common, and their first rows stand for nothing.

LONGEST_LINE = 1 << 26
"""Characters; a longer one is a file without line ends, and would fill the memory."""
SMALLEST_BYTES, LARGEST_BYTES, BLOCKS = 1 << 11, 1 << 15, 256
"""Many small ones: in a sorted file all rows of a block are alike."""


def endless() -> str:
    """What is wrong with a line of LONGEST_LINE characters."""
    return tr(
        "the line has {most} or more characters; rows must be shorter, so split the text into lines.",
        most=f"{LONGEST_LINE:,}",
    )


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines from the middle of a file."""

    start: int
    """The byte, from 1, with which the first line begins."""
    text: str
    share: float
    """Share of the file's bytes in this block and those before it."""

    def lines(self) -> Iterator[tuple[int, str]]:
        """(byte from 1, line with its end); lines end with \n, \r\n or \r."""
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
    with opened(path) as raw:
        size = os.fstat(raw.fileno()).st_size
        each, count = _blocks(raw, size, rows, mark)
        places = np.random.Generator(np.random.Philox(SEED)).random(count) * max(0.0, size / count - each)
        for part in range(count):
            start = int(part * size / count + places[part])
            first, text = _lines_from(raw, path, start, start + each, mark)
            yield Block(first + 1, text, min(1.0, (part + 1) * each / size))


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
        parts.append(_read_line(raw, path))
    size = sum(map(len, parts))
    while mark and parts and size < LONGEST_LINE and (line := _read_line(raw, path)) and not line.startswith(mark):
        parts.append(line)
        size += len(line)
    whole = b"".join(parts)
    if mark and first and not whole.startswith(mark):
        # It begins in the middle of a row that belongs to the block before it.
        before = whole.find(b"\n" + mark) + 1
        first, whole = (first + before, whole[before:]) if before else (end, b"")
    return first, whole.decode("utf-8-sig" if first == 0 else "utf-8", "surrogateescape")


def _read_line(raw: IO[bytes], path: Path) -> bytes:
    """One line with its end. Raises UsageError for an endless one."""
    at = raw.tell()
    line = raw.readline(LONGEST_LINE)
    if len(line) == LONGEST_LINE:
        raise unreadable(place_of(path, "byte", at + 1), endless())
    return line


# A plain text file from its beginning to its end.

BLOCK_BYTES = 4 << 20
"""Where a batch of rows ends, and so the order of streamed rows, depends on it: a constant."""


def whole_blocks(path: Path, mark: bytes = b"") -> Iterator[tuple[Block, int]]:
    """All lines of the file, in order, each block with the byte, from 0, that follows it.

    With a `mark`, rows begin with a line that begins with it, and a block ends before one. Raises UsageError for
    a file that cannot be read, and for endless lines and rows.
    """
    with opened(path) as raw:
        if raw.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            raw.seek(0)
        start, ahead = raw.tell(), b""
        while piece := ahead + raw.read(BLOCK_BYTES):
            parts, ahead, size = [piece], b"", len(piece)
            if not piece.endswith(b"\n"):
                parts.append(_read_line(raw, path))
            while mark and (line := _read_line(raw, path)):
                if line.startswith(mark):
                    ahead = line
                    break
                parts.append(line)
                size += len(line)
                if size >= BLOCK_BYTES + LONGEST_LINE:
                    row = start + b"".join(parts).rfind(b"\n" + mark) + 1
                    problem = tr("the text has {most} or more bytes.", most=f"{LONGEST_LINE:,}")
                    raise unreadable(place_of(path, "byte", row + 1), problem)
            whole = b"".join(parts)
            yield Block(start + 1, whole.decode("utf-8", "surrogateescape"), 0.0), start + len(whole)
            start += len(whole)
