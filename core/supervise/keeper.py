"""The keeper: owns one run from its start to its last word."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
import traceback
from pathlib import Path

from trainwiz.core.diagnosis.sources import kernel_oom_kills, killed_since
from trainwiz.core.errors import EXIT_TRAINING_FAILED, os_reason
from trainwiz.core.language import mark, tr
from trainwiz.core.launch.actions import renew_window
from trainwiz.core.lines import Seldom
from trainwiz.core.run.folder import FolderPlace, RunFolder, write_in_place
from trainwiz.core.run.lost import identify
from trainwiz.core.run.state import HEARTBEAT_EVERY_S, RunExit, RunState, write_state
from trainwiz.core.supervise.attempt import (
    CannotStart,
    Retrying,
    begin_attempt,
    close_attempt,
    close_run,
    mark_log,
    not_written,
    spawn_launcher,
    take_engine,
)
from trainwiz.core.supervise.ending import (
    Ended,
    SaveProgress,
    Stopping,
    how_it_ended,
    stopped,
    verify_gone,
)
from trainwiz.core.supervise.recorder import Recorder
from trainwiz.core.supervise.recovery import Retry, StartOrder
from trainwiz.core.supervise.ties import Guard, become_subreaper, kill_marked, log, reap, run_processes
from trainwiz.core.supervise.watch import Watch
from trainwiz.core.telemetry.processes import trainers_below

LOOK_EVERY_S = 0.5
KILL_PATIENCE_S = 15.0
LEFTOVERS_MAY_TAKE_S = 3.0
LAST_WRITES = 3
SHARE_OF_A_CORE = 0.003


class StoppedBetweenError(Exception):
    """A stop was asked for after a failed attempt, before the next."""


class Keeper:
    """One run from a start to its end, with the attempts that follow by themselves: `begin`, then `keep`."""

    def __init__(self, run: RunFolder, order: StartOrder, state: RunState) -> None:
        self.run = run
        self.order = order
        self.state = state
        self.checkpoint: Path | None = None
        self.stopping = Stopping(order.owner, SaveProgress(run.path).moves)
        self.launcher: subprocess.Popen[bytes] | None = None
        """None before the first attempt, and between two."""
        self.launcher_exit_code: int | None = None
        self._guard: Guard | None = None
        self._place = FolderPlace(run.path)
        self._retrying = Retrying(run, order)
        self._watch = Watch(run, state, order.system_every_s, stands=self._place.holds)
        self._wakeup: int = -1
        self._beats = Seldom(HEARTBEAT_EVERY_S, SHARE_OF_A_CORE)
        self._oom_kills: int | None = None
        """By the kernel, before this attempt."""

    def begin(self) -> None:
        """Prepare the folder and say `starting`. Raises CannotStart and OSError; nothing runs yet."""
        self._wakeup = self.stopping.listen()
        self._begin_attempt()

    def _begin_attempt(self, because: str | None = None, killed_by: str | None = None) -> None:
        state = self.state
        self._oom_kills = kernel_oom_kills()
        self.checkpoint = begin_attempt(self.run, state, self.order.resume, self.order.mark, because)
        state.attempts[-1].signal = killed_by
        state.attempts[-1].log_offset = mark_log(self.run, len(state.attempts), self.checkpoint)
        write_state(self.run, state)

    def keep(self) -> None:
        """Start the training, stay with it to its end, as often as a failure is one that passes, and write the last word."""
        recorder = Recorder(self.run, self.order.system_every_s, self._watch.take_sample, stands=self._place.holds)
        try:
            become_subreaper()
            self._guard = Guard(self.order.mark)
            recorder.start()
            ended = self._attempt()
            while self._goes_on_after(ended):
                ended = self._attempt()
            self._watch.end()
            if self.stopping.reason is not None:
                verified = verify_gone(self.order.mark, os.getpid(), self._spared(), recorder.ledger)
                self.state.stop = {**self.stopping.to_json(), "verified": verified}
                if self.state.attempts[-1].ended_s is not None:
                    # The failure was to be followed by another attempt; that was stopped before it began.
                    ended = stopped(self.run, self.stopping, self._begun())
            self._close(ended)
        except Exception as error:  # noqa: BLE001 - whatever happens here, nothing may be left running
            self._end_with(error)
        finally:
            recorder.stop()
            if self._guard:
                self._guard.dismiss()

    def _attempt(self) -> Ended:
        """Start the launcher, stay with it to its end, and clear up after it."""
        self.launcher = spawn_launcher(self.run, self.order, self.checkpoint)
        self.state.launcher = identify(self.launcher.pid)
        while self.launcher_exit_code is None:
            self._look(LOOK_EVERY_S)
        self._clear_up(gently=self.launcher_exit_code == 0)
        self._stands()
        take_engine(self.state, self.run)
        return how_it_ended(
            self.run,
            self.launcher_exit_code,
            self.stopping,
            begun=self._begun(),
            log_offset=self.state.attempts[-1].log_offset,
            oom_kills=killed_since(self._oom_kills),
        )

    def _goes_on_after(self, ended: Ended) -> bool:
        """Whether another attempt has begun by itself. Until then the run is `starting`, not `failed`."""
        state, attempt = self.state, self.state.attempts[-1]
        if ended.status != "failed" or self.stopping.reason is not None:
            return False
        follows = self._retrying.after(ended)
        if not isinstance(follows, Retry):
            attempt.not_retried = follows.why if follows else None
            return False
        close_attempt(state, ended, self.launcher_exit_code)
        state.status, state.launcher, self.launcher, self.launcher_exit_code = "starting", None, None, None
        log(f"attempt {attempt.number} failed ({ended.exit.cause}); another follows: {follows.changes}")
        cause, self._beats.next_s = ended.exit.cause or "unknown", 0.0
        try:
            deadline = time.monotonic() + follows.wait_s
            while time.monotonic() < deadline:
                self._look_between(LOOK_EVERY_S)
            self.order = self._retrying.prepare(attempt.number + 1, cause, follows, self._look_between)
            self._look_between()
            self._begin_attempt(cause, ended.killed_by)
        except StoppedBetweenError:
            return False
        except (CannotStart, OSError) as error:
            # What did not begin is no attempt.
            del state.attempts[attempt.number :]
            attempt.not_retried = not_written(os_reason(error)) if isinstance(error, OSError) else str(error)
            return False
        return True

    def _look_between(self, wait_s: float = 0.0) -> None:
        """Between two attempts all is looked after as always. Raises StoppedBetweenError once a stop was asked for."""
        self._look(wait_s)
        if self.stopping.reason is not None:
            raise StoppedBetweenError

    def _look(self, wait_s: float) -> None:
        """After `wait_s`, or a signal: collect what has ended, heed a stop, beat."""
        select.select([self._wakeup], [], [], wait_s)
        self.stopping.drain()
        self._collect()
        if self.launcher_exit_code is not None:
            return
        self._stands()
        if self.stopping.heed(self.launcher is None or not self._begun(), self.state.grace_s):
            self._kill()
        if self.stopping.reason is not None:
            if self.state.status != "stopping":
                self._beats.next_s = 0.0
            self.state.status, self.state.stop = "stopping", self.stopping.to_json()
        self._beats.do(self._beat)
        self._watch.keep_looking()

    def _stands(self) -> bool:
        """A folder that was moved or removed ends its run; a new folder at its old path is not touched."""
        if self._place.holds():
            return True
        self.stopping.ask(mark("the removal of its folder"), now=True)
        return False

    def _collect(self) -> None:
        """Reap what has ended: the launcher, the guard (which is replaced), orphans that came to us."""
        ended = reap()
        if self.launcher and self.launcher.pid in ended:
            self.launcher_exit_code = self.launcher.returncode = ended[self.launcher.pid]
        if self._guard and self._guard.pid in ended:
            self._guard.dismiss()
            try:
                self._guard = Guard(self.order.mark)
            except OSError as error:
                log(f"the guard could not be replaced: {error}")
                self._guard = None

    def _beat(self) -> None:
        if self.launcher is not None:
            self.state.workers = trainers_below(os.getpid())
            if self.state.engine.get("actual") is None:
                take_engine(self.state, self.run)
            if self.state.status == "starting" and self._begun():
                self.state.status = "running"
            renew_window(self.run, self.state)
        self._write()

    def _begun(self) -> bool:
        """Whether the training has said that it trains: engine.json comes before its first step."""
        return self.state.engine.get("actual") is not None or self.run.engine_json.exists()

    def _write(self) -> bool:
        self.state.heartbeat_s = time.time()
        if not self._stands():
            return False
        try:
            write_state(self.run, self.state)
            return True
        except OSError as error:
            # A full disk must not end the keeper: the next heartbeat tries again.
            log(f"state.json could not be written: {error}")
            return False

    def _spared(self) -> set[int]:
        return {os.getpid(), self._guard.pid if self._guard else os.getpid()}

    def _kill(self) -> None:
        left = kill_marked(self.order.mark, self._spared(), KILL_PATIENCE_S, keeper=os.getpid())
        note = tr("These processes could not be ended: {pids}.", pids=", ".join(map(str, left)))
        if left and note not in self.state.notes:
            self.state.notes.append(note)

    def _clear_up(self, gently: bool) -> None:
        """After the launcher: nothing that carries the mark stays. Helpers of a good end get some seconds."""
        deadline = time.monotonic() + (LEFTOVERS_MAY_TAKE_S if gently else 0.0)
        while time.monotonic() < deadline:
            reap()
            if not run_processes(self.order.mark, os.getpid()) - self._spared():
                return
            time.sleep(0.1)
        self._kill()

    def _end_with(self, error: Exception) -> None:
        message = tr("The training could not be started: {reason}.", reason=error)
        if not isinstance(error, OSError) or self.launcher is not None:
            log(traceback.format_exc().rstrip())
            said = f"{type(error).__name__}: {error}"
            message = tr("The supervisor of the run failed: {reason}. See supervisor.log.", reason=said)
        self._kill()
        self._close(Ended("failed", RunExit(EXIT_TRAINING_FAILED, "unknown", message, tr("See supervisor.log."))))

    def _close(self, ended: Ended) -> None:
        """The last writing of state.json, also on a full disk; a folder that is gone is let go."""
        state = self.state
        close_run(self.run, state, ended, self.launcher_exit_code)
        for _ in range(LAST_WRITES):
            if self._write():
                remember(self.run, state)
                return
            if not self._stands():
                return
            time.sleep(1.0)
        # The disk is full and stays so: the blocks that the file has already can still be written.
        try:
            write_in_place(self.run.state_json, json.dumps(state.to_json()) + "\n")
        except OSError as error:
            log(f"The last state could not be written: {error}")


def remember(run: RunFolder, state: RunState) -> None:
    """Add the pace and the peak of the run to the user's history."""
    from trainwiz.core.history.run import record_run

    try:
        record_run(run, state)
    except Exception as error:  # noqa: BLE001 - the run has ended well or not, whatever becomes of the history
        log(f"The run could not be added to the history of measurements: {type(error).__name__}: {error}")
