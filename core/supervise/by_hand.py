"""A training started by hand (launch.sh) has no keeper: its first process keeps the state of the run itself."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from trainwiz.core.errors import EXIT_STOPPED, UsageError, usage_error
from trainwiz.core.language import tr
from trainwiz.core.lines import Seldom
from trainwiz.core.run.attempts import not_usable, runs_already
from trainwiz.core.run.checkpoints import complete_checkpoints
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.listing import record_run
from trainwiz.core.run.lost import RunLock, machine_identity, stat_fields
from trainwiz.core.run.state import RunState, read_state, write_state
from trainwiz.core.supervise.attempt import CannotStart, begin_attempt, close_run, take_engine
from trainwiz.core.supervise.ending import Stopping, how_it_ended

LOOK_EVERY_S = 0.5
HEARTBEAT_EVERY_S = 10.0
READER_S = 0.5
"""Whoever looks whether a run is locked holds the lock for a moment."""
SIBLING_PATIENCE_S = 10.0
"""From taking the folder to the first state: the checkpoint to go on from is read in between."""


class KeptByHand:
    """Lock, state and heartbeat of a run without a keeper, so that viewers and a second start see it.

    It stands in state.json as its own keeper: a stop signal to it asks for a checkpoint, as to a keeper.
    """

    def __init__(self, folder: Path, resume: Path | None, is_asked_to_stop: Callable[[], bool]) -> None:
        """Take the folder. Raises UsageError when a run is active there, or would be written over."""
        self._run = run = RunFolder(folder)
        self._is_asked_to_stop = is_asked_to_stop
        self._stopping = Stopping(None, lambda: False)
        self._beats = Seldom(HEARTBEAT_EVERY_S)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="state", daemon=True)
        try:
            self._lock = RunLock.take(folder, wait_s=READER_S)
        except OSError as error:
            raise usage_error("folder_not_usable", str(folder), not_usable(run, error)) from None
        self._state = read_state(run, lock=self._lock)
        if self._lock is None or self._state.is_active:
            raise _active(run)
        if resume is None:
            _refuse_overwriting(run)
        try:
            begin_attempt(run, self._state, str(resume) if resume else None, mark=None)
        except CannotStart as error:
            raise usage_error("cannot_resume", str(resume), str(error)) from None
        write_state(run, self._state)
        record_run(run)
        signal.signal(signal.SIGUSR1, self._end_now)
        self._thread.start()

    def end(self, exit_code: int, now: bool = False) -> None:
        """Write the last word; the training ends with `exit_code`."""
        if self._ended.is_set():
            return
        self._ended.set()
        if now:
            self._stopping.ask("you", now=True)
            self._stopping.killed = True
        else:
            self._thread.join()
        self._look()
        ended = how_it_ended(self._run, exit_code, self._stopping, begun=self._run.engine_json.exists())
        close_run(self._run, self._state, ended, exit_code)
        self._write()

    def _end_now(self, number: int, frame: FrameType | None) -> None:
        self.end(EXIT_STOPPED, now=True)
        os._exit(EXIT_STOPPED)

    def _keep(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            self._look()
            self._beats.do(self._write)

    def _look(self) -> None:
        """A change is written at once."""
        state = self._state
        if self._is_asked_to_stop():
            self._stopping.ask("you")
        if state.stop is None and self._stopping.reason is not None:
            state.stop, state.status = self._stopping.to_json(), "stopping"
            self._beats.next_s = 0.0
        if state.engine.get("actual") is None and take_engine(state, self._run):
            state.status = "running" if state.status == "starting" else state.status
            self._beats.next_s = 0.0

    def _write(self) -> None:
        self._state.heartbeat_s = time.time()
        try:
            write_state(self._run, self._state)
        except OSError as error:
            # A full disk must not end the training: the next heartbeat tries again.
            print(f"state.json could not be written: {error}", flush=True)


def refuse_active(folder: Path, patience_s: float = SIBLING_PATIENCE_S) -> None:
    """UsageError when another training is active in the folder; ranks of the same launcher are not another one.

    Rank 0 of this launcher may hold the lock before its state is written: only after `patience_s` is it another's.
    """
    run = RunFolder(folder)
    deadline = time.monotonic() + patience_s
    while (state := read_state(run)).is_active and not _is_kept_by_a_sibling(state):
        if time.monotonic() > deadline:
            raise _active(run)
        time.sleep(LOOK_EVERY_S / 5)


def _is_kept_by_a_sibling(state: RunState) -> bool:
    if state.supervisor is None or state.machine != machine_identity():
        return False
    fields = stat_fields(state.supervisor.pid)
    return fields is not None and int(fields[1]) == os.getppid()


def _active(run: RunFolder) -> UsageError:
    return usage_error("run_is_active", str(run.path), runs_already(run))


def _refuse_overwriting(run: RunFolder) -> None:
    checkpoints = complete_checkpoints(run)
    if checkpoints:
        message = tr(
            "{name} was already trained up to step {step}; nothing is overwritten. Resume with: ./launch.sh "
            "--resume {checkpoint}",
            name=run.path.name,
            step=f"{checkpoints[-1].step:,}",
            checkpoint=checkpoints[-1].path.name,
        )
        raise usage_error("was_started_before", str(run.path), message)
