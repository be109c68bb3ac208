"""A log on disk or from a pipe, and the kernel's, as facts."""

from __future__ import annotations

import codecs
import errno
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from trainwiz.core.diagnosis.cause import KernelFacts, LogFacts
from trainwiz.core.diagnosis.scan import LONGEST, LogScan, lines_in
from trainwiz.core.files import open_file
from trainwiz.core.language import tr
from trainwiz.core.run.lost import boot_time_s

# What the kernel says about memory and cards: its control group's counter and its log, where they may be read.

KMSG = Path("/dev/kmsg")
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
MOST_RECORDS = 100_000
MOST_LINES = 5
AFTER_THE_END_S = 10.0
"""The launcher ends a little after the process that the kernel killed, or before its line is written."""

_RECORD = re.compile(r"^\d+,\d+,(\d+),[^;]*;(.*)$")
_MEMORY = re.compile(r"out of memory: killed process \d+ \((?:python|pt_|torch|train|ray)", re.IGNORECASE)
_CARD = re.compile(r"NVRM: Xid.{0,60}: (?:79|48|94|95|119|120)\b|GPU has fallen off the bus", re.IGNORECASE)


def kernel_facts(since_s: float | None, until_s: float | None, oom_kills: int | None = None) -> KernelFacts:
    """What happened between two Unix times. `oom_kills` is what the control group counted in between, where known."""
    lines = read_kmsg() if since_s is not None else None
    end_s = None if until_s is None else until_s + AFTER_THE_END_S
    inside = [text for when_s, text in lines or () if when_s >= (since_s or 0.0) and (end_s is None or when_s <= end_s)]
    return KernelFacts(
        told=oom_kills is not None or lines is not None,
        oom_kills=max(oom_kills or 0, 0),
        lines=tuple(text for text in inside if _MEMORY.search(text))[-MOST_LINES:],
        card_lines=tuple(text for text in inside if _CARD.search(text))[:MOST_LINES],
    )


def read_kmsg(path: Path = KMSG) -> list[tuple[float, str]] | None:
    """(Unix time, text) of the records of the kernel's log; None where it may not be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    records: list[str] = []
    try:
        for _ in range(MOST_RECORDS):
            try:
                # One call is one record; the next one would block where there is none.
                record = os.read(descriptor, 8192)
            except BrokenPipeError:
                continue
            except OSError:
                break
            if not record:
                break
            records += record.decode("utf-8", "replace").splitlines()
    finally:
        os.close(descriptor)
    return parse_kmsg(records, boot_time_s())


def parse_kmsg(records: Iterable[str], booted_s: float) -> list[tuple[float, str]]:
    """Records as /dev/kmsg has them: "priority,sequence,microseconds since the start,flags;text"."""
    found = [_RECORD.match(record) for record in records]
    return [(booted_s + int(one[1]) / 1e6, one[2]) for one in found if one]


def kernel_oom_kills() -> int:
    """Processes that the kernel has killed for memory in this control group so far; 0 where it does not tell."""
    return counted_oom_kills() or 0


def counted_oom_kills() -> int | None:
    """The same; None where it does not tell.

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


# A log on disk or from a pipe -> LogFacts: streamed in blocks, so that gigabytes cost seconds and no memory.

BLOCK_BYTES = 1 << 18
LONGEST_LINE_BYTES = 1 << 22
"""A longer one is a bar without line feeds, or no text; it is cut at a carriage return."""
TAIL_BYTES = 1 << 20
"""The end of a large log is read line by line whatever it holds: it has the last words."""
SAMPLE_BYTES = 1 << 16
MOST_ODD = 0.1
"""Share of control characters in the sample above which a file is no text."""

TELLING_BYTES = (
    b"Traceback", b"rror", b"xception", b"of memory", b"oom", b"OOM", b"illed", b"No space", b"uota", b"atchdog",
    b"NCCL WARN", b"NVRM", b"exitcode", b"signal", b"Signal", b"Root Cause", b"train_runtime", b"finished at step",
    b"CANCELLED", b"nterrupt", b"fault", b"bus", b"already in use", b"worker (pid", b"nan", b"NaN", b"shm", b"\\u",
    b"memory limit", b"unable to", b"cannot", b"timed out", b"is lost", b"died with", b"Training completed", b"`max_",
    "已杀死".encode(), "不足".encode(), "没有".encode(),
)  # fmt: skip
"""A block without any of these holds no line that could tell a cause: it is counted and passed over."""
MOST_QUIET = 10_000
_NUMBER = re.compile(rb"\d+")
_EXACT = re.compile(rb"errno|winerror|xid|signal|exit|failure|rank\s*:", re.IGNORECASE)
"""Where a number decides what the line means."""
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
            first_line += _line_feeds(file, min(offset, size))
        file.seek(min(offset, size))
        return scan_stream(file, path.name, first_line=first_line, last_bytes_from=size - TAIL_BYTES - offset)


def scan_stream(stream: BinaryIO, source: str, *, first_line: int = 1, last_bytes_from: int = 0) -> LogFacts:
    """The facts of what can be read from `stream`; blocks before byte `last_bytes_from` may be passed over.

    Raises NotALogError.
    """
    scan = LogScan(source)
    number, at = first_line, 0
    quiet: set[bytes] = set()
    for block in _whole_lines(_as_utf8(stream)):
        if at + len(block) < last_bytes_from and not _tells(block):
            _pass_over(scan, number, block)
        else:
            _feed(scan, number, block, quiet)
        number += block.count(b"\n")
        at += len(block)
    return scan.facts()


def _feed(scan: LogScan, number: int, block: bytes, quiet: set[bytes]) -> None:
    """`quiet` holds what lines without a meaning look like, numbers apart: most logs say the same again and again."""
    lines = block.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    for place, raw in enumerate(lines):
        look = _NUMBER.sub(b"0", raw)
        if look in quiet and not scan.in_traceback:
            scan.pass_line(number + place, _text(raw[:LONGEST]))
            continue
        before = scan.seen
        for line in lines_in(_text(raw)):
            scan.feed(number + place, line)
        if scan.seen == before and not scan.in_traceback and not _EXACT.search(raw) and b"%|" not in raw:
            if len(quiet) >= MOST_QUIET:
                quiet.clear()
            quiet.add(look)


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        # Logs of Windows and of older Chinese systems; whatever it is, ASCII stays what it is.
        try:
            return raw.decode("gb18030")
        except UnicodeDecodeError:
            return raw.decode("utf-8", "replace")


def _tells(block: bytes) -> bool:
    return any(word in block for word in TELLING_BYTES)


def _pass_over(scan: LogScan, number: int, block: bytes) -> None:
    lines = block.count(b"\n")
    metrics = block.count(b"loss")
    last = None
    if metrics:
        at = block.rfind(b"loss")
        start, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
        last = (number + block.count(b"\n", 0, at), _text(block[start : end if end >= 0 else None]))
    scan.skip(lines, metrics + min(block.count(b"%|"), 5), last)


def _as_utf8(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks of bytes without NULs, UTF-16 turned into UTF-8. Raises NotALogError."""
    sample = _read_sample(stream)
    if not sample:
        return
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
        block: bytes | None = sample
        while block:
            yield decoder.decode(block).replace("\ufeff", "").encode("utf-8", "replace")
            block = stream.read(BLOCK_BYTES)
        return
    _refuse_binary(sample)
    block = sample.removeprefix(codecs.BOM_UTF8)
    while block:
        # Where a log was cut while it was written, or the machine went down, there are NULs in it.
        yield block.replace(b"\0", b"") if b"\0" in block else block
        block = stream.read(BLOCK_BYTES)


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
    if known or odd > MOST_ODD * max(len(text), 1) or len(text) < len(sample) / 4 or _is_no_text(text):
        raise NotALogError(errno.EINVAL, tr("it is not text"))


def _is_no_text(text: bytes) -> bool:
    """Whether much of it is text in no encoding that is tried."""
    shown = text[: SAMPLE_BYTES - 8]
    if re.search(rb"[\x80-\xff]", shown) is None:
        return False
    broken = shown.decode("utf-8", "replace").count("\ufffd")
    return broken > MOST_ODD * len(shown) and shown.decode("gb18030", "replace").count("\ufffd") > 0.02 * len(shown)


def _whole_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes, each block ending with a line."""
    half = b""
    for block in blocks:
        whole = half + block
        cut = whole.rfind(b"\n") + 1
        if not cut and len(whole) > LONGEST_LINE_BYTES:
            cut = whole.rfind(b"\r") + 1 or len(whole)
        half = whole[cut:]
        if cut:
            yield whole[:cut]
    if half:
        yield half


def _line_feeds(file: BinaryIO, until: int) -> int:
    """Line feeds before byte `until`."""
    file.seek(0)
    found = 0
    while until > 0 and (block := file.read(min(BLOCK_BYTES, until))):
        found += block.count(b"\n")
        until -= len(block)
    return found
