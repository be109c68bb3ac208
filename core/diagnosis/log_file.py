"""A log on disk or from a pipe as facts, and what the kernel counts."""

from __future__ import annotations

import codecs
import errno
import io
import math
import os
from collections import deque
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from trainwiz.core.diagnosis.cause import LogFacts
from trainwiz.core.diagnosis.scan import LogScan, lines_in
from trainwiz.core.files import open_file
from trainwiz.core.language import tr

# What the kernel says about memory: the counter of its control group, where it may be read.

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def killed_since(before: int | None) -> int | None:
    """Processes that the kernel has killed for memory since it had counted `before`; None where it does not tell."""
    now = kernel_oom_kills()
    return None if now is None or before is None else max(0, now - before)


def kernel_oom_kills() -> int | None:
    """Processes that the kernel has killed for memory in this control group so far; None where it does not tell.

    cgroup v2: memory.events, key oom_kill (https://docs.kernel.org/admin-guide/cgroup-v2.html).
    cgroup v1: memory.oom_control, the same key.
    """
    try:
        groups = OWN_CGROUP.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for group in groups:
        _, _, place = group.partition(":")
        controllers, _, path = place.partition(":")
        if not controllers:
            counted = _counted(CGROUPS / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            counted = _counted(CGROUPS / "memory" / path.lstrip("/") / "memory.oom_control")
        else:
            continue
        if counted is not None:
            return counted
    return None


def _counted(file: Path) -> int | None:
    try:
        lines = file.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    except (OSError, ValueError, IndexError, StopIteration, UnicodeDecodeError):
        return None


# A log on disk or from a pipe -> LogFacts: all of it is streamed, the end is read line by line.

BLOCK_BYTES = 1 << 18
END_BYTES = 1 << 21
"""Of the end, which has the last words: a failure before it was survived."""
SAMPLE_BYTES = 1 << 16
MOST_ODD = 0.05
"""Share of control characters in the sample above which a file is no text."""
_ODD = bytes(code for code in range(32) if code not in b"\t\n\r\f\b\x1b") + b"\x7f"


class NotALogError(OSError):
    """The file is no text."""


def read_log(path: Path, offset: int = 0, last_bytes: int | None = None) -> LogFacts:
    """The facts of the log from byte `offset` on, or of its last bytes, whose lines are then not counted from its
    beginning. Raises OSError with a reason, NotALogError for what is no text."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        first_line = 1
        if last_bytes is not None and size > last_bytes:
            offset = size - last_bytes
        elif offset > 0:
            first_line += sum(block.count(b"\n") for block in _blocks(file, min(offset, size)))
        file.seek(min(offset, size))
        return scan_stream(file, path.name, first_line=first_line)


def scan_stream(stream: BinaryIO, source: str, *, first_line: int = 1) -> LogFacts:
    """The facts of what can be read from `stream`, by its last END_BYTES or so. Raises NotALogError."""
    scan = LogScan(source)
    number, kept, size = first_line, deque[bytes](), 0
    for block in _as_utf8(stream):
        kept.append(block)
        size += len(block)
        while size - len(kept[0]) >= END_BYTES:
            size -= len(kept[0])
            number += kept.popleft().count(b"\n")
    for place, raw in enumerate(io.BytesIO(b"".join(kept))):
        for line in lines_in(_text(raw)):
            scan.feed(number + place, line)
    return scan.facts()


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        # Logs of Windows and of older Chinese systems; whatever it is, ASCII stays what it is.
        try:
            return raw.decode("gb18030")
        except UnicodeDecodeError:
            return raw.decode("utf-8", "replace")


def _blocks(stream: BinaryIO, most: float = math.inf) -> Iterator[bytes]:
    """The next `most` bytes."""
    while most > 0 and (block := stream.read(int(min(BLOCK_BYTES, most)))):
        most -= len(block)
        yield block


def _as_utf8(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks of bytes without NULs, UTF-16 turned into UTF-8. Raises NotALogError."""
    sample = _read_sample(stream)
    blocks = chain([sample], _blocks(stream))
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
        yield from (decoder.decode(block).replace("\ufeff", "").encode("utf-8", "replace") for block in blocks)
        return
    _refuse_binary(sample)
    # Where a log was cut while it was written, or the machine went down, there are NULs in it.
    yield from (block.replace(b"\0", b"") for block in blocks)


def _read_sample(stream: BinaryIO) -> bytes:
    """The first bytes; a pipe may bring them in pieces, and a hole at the front of a file is passed over."""
    sample = b""
    while len(sample) < SAMPLE_BYTES:
        piece = stream.read(SAMPLE_BYTES - len(sample))
        if not piece:
            break
        sample += piece.lstrip(b"\0") if not sample else piece
    return sample


def _refuse_binary(sample: bytes) -> None:
    text = sample.replace(b"\0", b"")
    odd = len(text) - len(text.translate(None, _ODD))
    known = sample.startswith((b"PK\x03\x04", b"\x1f\x8b", b"\x7fELF", b"\x89PNG", b"%PDF", b"SQLite format 3"))
    if known or odd > MOST_ODD * max(len(text), 1) or len(text) < len(sample) / 4:
        raise NotALogError(errno.EINVAL, tr("it is not text"))
