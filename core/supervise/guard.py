"""The guard: a tiny process that outlives a killed keeper just long enough to clear up after it."""

from __future__ import annotations

import contextlib
import os
import signal

from trainwiz.core.supervise.ties import kill_marked

FAREWELL = b"."
PATIENCE_S = 30.0


class Guard:
    """Forked from the keeper; sleeps on a pipe that only the keeper holds open.

    The pipe closes without a farewell when the keeper is killed: the guard then kills every process
    that carries the run's mark, whatever session or parent it has by now, and ends. It is a session
    of its own, so that a signal to the keeper's group does not reach it, and it holds the run's
    lock (inherited by fork) until all is cleared up.
    """

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.pid, self._pipe = _fork(mark)

    def is_alive(self, ended: dict[int, int]) -> bool:
        """False once the keeper has collected its exit."""
        return self.pid not in ended

    def replace(self) -> None:
        """A new guard in place of one that was killed."""
        os.close(self._pipe)
        self.pid, self._pipe = _fork(self.mark)

    def dismiss(self) -> None:
        """The run ended in good order: the guard ends without doing anything."""
        with contextlib.suppress(OSError):
            os.write(self._pipe, FAREWELL)
        os.close(self._pipe)
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            return


def _fork(mark: str) -> tuple[int, int]:
    read_end, write_end = os.pipe()
    keeper = os.getpid()
    pid = os.fork()
    if pid:
        os.close(read_end)
        return pid, write_end
    try:
        os.close(write_end)
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        if os.read(read_end, 1) != FAREWELL:
            kill_marked(mark, spare={os.getpid(), keeper}, patience_s=PATIENCE_S)
    finally:
        os._exit(0)
