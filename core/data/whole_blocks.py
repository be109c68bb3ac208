"""A plain text file from its beginning to its end, in blocks of whole rows that know their lines and their bytes."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from trainwiz.core.data.blocks import LONGEST_LINE, Block, read_line
from trainwiz.core.data.place import place_of
from trainwiz.core.data.reader import unreadable
from trainwiz.core.errors import os_reason
from trainwiz.core.language import tr
from trainwiz.core.small_file import open_file

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
