"""Locks of C++ extensions that end with the process which holds them.

DeepSpeed builds its optimizers and its CPU communication when they are first needed. torch keeps
others from the same folder by a file that a killed process leaves behind: every later run would
wait for it for ever, without a word (torch 2.13, torch/utils/file_baton.py).
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from torch.utils.file_baton import FileBaton
from trainwiz.core.language import tr

MARK = b"flock"
"""Content of a lock that is also locked by the kernel; others leave theirs empty."""
LONGEST_BUILD_S = 1800.0
"""A lock of another program is left behind when it is older."""


class KernelBaton(FileBaton):
    """The same file, with a kernel's lock on it that no dead process has."""

    fd: int | None  # type: ignore[assignment]

    def try_acquire(self) -> bool:
        """Whether this process builds; False while another one does."""
        try:
            descriptor = os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            return self._take_over()
        return self._lock(descriptor)

    def wait(self) -> None:
        """Until the other one is done. Raises RuntimeError where it ended before."""
        while Path(self.lock_file_path).exists():
            time.sleep(self.wait_seconds)
            if self._take_over():
                self.release()
                folder = Path(self.lock_file_path).parent
                raise RuntimeError(tr("The build of {path} was ended by another run; start again.", path=folder))

    def release(self) -> None:
        """Removed before another can take it over."""
        Path(self.lock_file_path).unlink(missing_ok=True)
        if self.fd is not None:
            os.close(self.fd)

    def _take_over(self) -> bool:
        try:
            descriptor = os.open(self.lock_file_path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        if os.read(descriptor, len(MARK)) != MARK and time.time() - os.fstat(descriptor).st_mtime < LONGEST_BUILD_S:
            os.close(descriptor)
            return False
        return self._lock(descriptor)

    def _lock(self, descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = os.path.samestat(os.fstat(descriptor), Path(self.lock_file_path).stat())
        except OSError:
            mine = False
        if not mine:
            # Held by a living process, or released in between.
            os.close(descriptor)
            return False
        os.pwrite(descriptor, MARK, 0)
        self.fd = descriptor
        return True


def use_kernel_locks() -> None:
    """For all extensions that this process builds."""
    # It takes setuptools and a third of a second, which only these runs need.
    from torch.utils import cpp_extension

    cpp_extension.FileBaton = KernelBaton  # type: ignore[attr-defined]
