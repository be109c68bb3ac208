"""Terminal: a full-screen program on a pseudo-terminal of 120x40, its output read and its CPU time counted."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

COLUMNS, LINES = 120, 40
KEPT_BYTES = 4 * 1024 * 1024


class Terminal:
    """Starts `command` and reads what it draws, as fast as it comes; leaving the block kills it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], cwd: str) -> None:
        self.started = time.perf_counter()
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            with contextlib.suppress(OSError):
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
            os.chdir(cwd)
            os.execvpe(
                command[0],
                list(command),
                {**environment, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)},
            )
        self._recent = b""
        self._came = threading.Condition()
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self.hang_up()

    def hang_up(self) -> None:
        """Take the terminal away, as a closed window does."""
        self._over.set()
        self._reader.join(timeout=2)
        with contextlib.suppress(OSError):
            os.close(self._terminal)

    def seconds_until(self, *markers: bytes, timeout_s: float = 30.0) -> float:
        """Seconds from the start until all `markers` have been drawn. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        with self._came:
            while not all(marker in self._recent for marker in markers):
                if not self._came.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    raise TimeoutError(f"{markers!r} were not drawn in {timeout_s} s; drawn: {self._recent[-400:]!r}")
        return time.perf_counter() - self.started

    def answer_seconds(self, keys: bytes, marker: bytes, timeout_s: float = 10.0) -> float:
        """Seconds from typing `keys` until `marker` is drawn after them. Raises TimeoutError."""
        with self._came:
            self._recent = b""
        began = time.perf_counter()
        self.type(keys)
        deadline = time.monotonic() + timeout_s
        with self._came:
            while marker not in self._recent:
                if not self._came.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    raise TimeoutError(f"{marker!r} was not drawn in {timeout_s} s; drawn: {self._recent[-400:]!r}")
        return time.perf_counter() - began

    def type(self, keys: bytes) -> None:
        """These bytes at once, as a paste or a script types them."""
        os.write(self._terminal, keys)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def rss_bytes(self) -> int:
        """Resident memory of the program now."""
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def _read(self) -> None:
        while not self._over.is_set():
            if not select.select([self._terminal], [], [], 0.2)[0]:
                continue
            try:
                data = os.read(self._terminal, 65536)
            except OSError:
                return
            with self._came:
                self._recent = (self._recent + data)[-KEPT_BYTES:]
                self._came.notify_all()


def cpu_seconds(pid: int) -> float:
    """User and system seconds of a process so far."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def thread_seconds(pid: int) -> float:
    """Seconds on the CPU of the threads that a process has now, to the nanosecond; the kernel's count, not its ticks."""
    spent = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        spent += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return spent / 1e9
