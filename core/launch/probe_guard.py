"""`python -m trainwiz.core.launch.probe_guard FOLDER MARK`: clears up after a probe, however it ended.

It waits for the end of its stdin, which only the command that probes holds open: a killed command closes
it too. Then every process of the probe is ended, and its folder removed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time

from trainwiz.core.supervise.marks import kill_marked, marked_processes, send

GENTLE_S = 1.0
PATIENCE_S = 10.0


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder, mark = sys.argv[1:3]
    while os.read(0, 4096):
        pass
    clear_up(folder, mark)


def clear_up(folder: str, mark: str) -> None:
    """SIGTERM, a moment, SIGKILL; then the folder goes."""
    spare = {os.getpid()}
    for pid in set(marked_processes(mark)) - spare:
        send(pid, signal.SIGTERM)
    deadline = time.monotonic() + GENTLE_S
    while time.monotonic() < deadline and set(marked_processes(mark)) - spare:
        time.sleep(0.05)
    kill_marked(mark, spare, PATIENCE_S)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
