"""`python -m trainwiz.core.supervise FOLDER`, with a StartOrder on stdin: becomes the keeper of the run.

It detaches, takes the run's lock, answers with one line of JSON on stdout ({"ok": true} or {"error",
"message"}), closes stdout, and stays until the run has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path

from trainwiz.core.language import chosen_language, use_language
from trainwiz.core.run.attempts import being_cleared_up, not_usable, why_not_start
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.lost import RunLock
from trainwiz.core.run.state import read_state
from trainwiz.core.supervise.attempt import CannotStart
from trainwiz.core.supervise.keeper import Keeper
from trainwiz.core.supervise.recovery import StartOrder
from trainwiz.core.supervise.ties import kill_marked

LOCK_PATIENCE_S = 10.0
LEFTOVERS_PATIENCE_S = 10.0


def main() -> int:
    use_language(chosen_language(None, os.environ))
    run = RunFolder(Path(sys.argv[1]).resolve())
    order = StartOrder.from_text(sys.stdin.read())
    # The front end waits for its child: a grandchild is never its zombie.
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.chdir("/")
    try:
        keeper = _take_over(run, order)
        answer: dict[str, object] = {"ok": True, "pid": os.getpid()}
    except CannotStart as error:
        answer = {"error": error.code, "message": str(error)}
    except OSError as error:
        answer = {"error": "folder_not_usable", "message": not_usable(run, error)}
    # The front end is told, and its pipe let go.
    with contextlib.suppress(OSError):
        os.write(1, (json.dumps(answer) + "\n").encode())
    os.dup2(2, 1)
    if "error" in answer:
        return 1
    keeper.keep()
    return 0


def _take_over(run: RunFolder, order: StartOrder) -> Keeper:
    """The keeper with its folder prepared; the lock is held until this process ends. Raises CannotStart and OSError."""
    # A run that is active keeps its lock; one that was just killed gives it back when all is cleared up.
    deadline = time.monotonic() + LOCK_PATIENCE_S
    lock = RunLock.take(run.path)
    while lock is None and not read_state(run).is_active and time.monotonic() < deadline:
        lock = RunLock.take(run.path, wait_s=0.2)
    state = read_state(run, lock=lock)
    refused = why_not_start(run, state, resume=order.resume is not None)
    if refused or lock is None:
        raise CannotStart(refused or being_cleared_up(run), "run_is_active")
    # Where keeper and guard were killed together, what they could not end must not train beside the new attempt. But a copy
    # of a run folder names the living keeper of the original.
    if state.status == "lost" and state.mark and not (state.supervisor and state.supervisor.is_alive()):
        kill_marked(state.mark, spare=(), patience_s=LEFTOVERS_PATIENCE_S)
    if lock.note:
        state.notes.append(lock.note)
    keeper = Keeper(run, order, state)
    keeper.begin()
    return keeper


if __name__ == "__main__":
    sys.exit(main())
