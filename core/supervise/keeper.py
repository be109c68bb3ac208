"""The keeper: owns one run from its start to its last word."""

from __future__ import annotations

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
from trainwiz.core.run.folder import OUTCOME_JSON, FolderPlace, RunFolder, read_json
from trainwiz.core.run.lost import identify
from trainwiz.core.run.state import HEARTBEAT_EVERY_S, RunExit, RunState, write_state
from trainwiz.core.supervise.attempt import (
    CannotStart,
    NotWanted,
    Retrying,
    begin_attempt,
    close_attempt,
    mark_log,
    not_written,
    spawn_launcher,
    take_engine,
)
from trainwiz.core.supervise.ending import (
    Ended,
    Facts,
    SaveProgress,
    Stopping,
    how_it_ended,
    stopped_between,
    verify_gone,
    write_last_state,
)
from trainwiz.core.supervise.recorder import Recorder
from trainwiz.core.supervise.recovery import Retry, StartOrder
from trainwiz.core.supervise.ties import Guard, become_subreaper, kill_marked, log, reap, run_processes
from trainwiz.core.supervise.watch import Watch
from trainwiz.core.telemetry.processes import trainers_below

LOOK_EVERY_S = 0.5
KILL_PATIENCE_S = 15.0
LEFTOVERS_MAY_TAKE_S = 3.0
SHARE_OF_A_CORE = 0.003


class Keeper:
    """One run from a start to its end, with the attempts that follow by themselves: `begin`, then `keep`."""

    def __init__(self, run: RunFolder, order: StartOrder, state: RunState) -> None:
        self.run = run
        self.order = order
        self.state = state
        self.checkpoint: Path | None = None
        self.stopping = Stopping(order.owner)
        self.launcher: subprocess.Popen[bytes] | None = None
        self.launcher_exit_code: int | None = None
        self._saves = SaveProgress(run.path)
        self._guard: Guard | None = None
        self._place = FolderPlace(run.path)
        self._retrying = Retrying(run, order)
        self._wakeup: int = -1
        self._next_beat = 0.0
        self._metrics_bytes = _size(run.metrics_jsonl)
        self._oom_kills = kernel_oom_kills()

    def begin(self) -> None:
        """Prepare the folder and say `starting`. Raises CannotStart and OSError; nothing runs yet."""
        self._wakeup = self.stopping.listen()
        self._begin_attempt()

    def _begin_attempt(self, because: str | None = None, killed_by: str | None = None) -> None:
        state = self.state
        self.checkpoint = begin_attempt(self.run, state, self.order.resume, self.order.mark, because)
        state.attempts[-1].signal = killed_by
        state.attempts[-1].log_offset = mark_log(self.run, len(state.attempts), self.checkpoint)
        write_state(self.run, state)

    def keep(self) -> None:
        """Start the training, stay with it to its end, as often as a failure is one that passes, and write the last word."""
        watch = Watch(self.run, self.state, self.order.system_every_s, stands=self._place.holds)
        recorder = Recorder(self.run, self.order.system_every_s, watch.take_sample, stands=self._place.holds)
        try:
            become_subreaper()
            self._guard = Guard(self.order.mark)
            recorder.start()
            watch.start()
            ended = self._attempt()
            while self._goes_on_after(ended):
                ended = self._attempt()
            watch.stop()
            if self.stopping.reason is not None:
                self.stopping.verified = verify_gone(self.order.mark, os.getpid(), self._spared(), recorder.ledger)
            self._write_last_word(ended)
        except Exception as error:  # noqa: BLE001 - whatever happens here, nothing may be left running
            self._end_with(error)
        finally:
            watch.stop()
            recorder.stop()
            if self._guard:
                self._guard.dismiss()

    def _attempt(self) -> Ended:
        """Start the launcher, stay with it to its end, and clear up after it."""
        self.launcher = spawn_launcher(self.run, self.order, self.checkpoint)
        self.state.launcher = identify(self.launcher.pid)
        self._watch()
        self._clear_up(gently=self.launcher_exit_code == 0)
        self._look_at_place()
        take_engine(self.state, self.run)
        return how_it_ended(self.run, self._facts())

    def _goes_on_after(self, ended: Ended) -> bool:
        """Whether another attempt has begun by itself. Until then the run is `starting`, not `failed`."""
        if ended.status != "failed" or self.stopping.reason is not None:
            return False
        follows = self._retrying.after(ended)
        if not isinstance(follows, Retry):
            self.state.attempts[-1].not_retried = follows.why if follows else None
            return False
        close_attempt(self.state, ended, self.launcher_exit_code)
        self.state.status, self.state.launcher = "starting", None
        self._write()
        log(f"attempt {len(self.state.attempts)} failed ({ended.exit.cause}); another follows: {follows.changes}")
        if not self._wait(follows.wait_s):
            return False
        had = len(self.state.attempts)
        try:
            cause = ended.exit.cause or "unknown"
            self.order = self._retrying.prepare(had + 1, cause, follows, self._goes_on)
            if not self._goes_on():
                return False
            self.launcher_exit_code, self.launcher = None, None
            self._metrics_bytes, self._oom_kills = _size(self.run.metrics_jsonl), kernel_oom_kills()
            self._begin_attempt(cause, ended.killed_by)
        except NotWanted:
            return False
        except (CannotStart, OSError) as error:
            # What did not begin is no attempt.
            del self.state.attempts[had:]
            self.state.attempts[-1].not_retried = (
                not_written(os_reason(error)) if isinstance(error, OSError) else str(error)
            )
            return False
        return self.stopping.reason is None

    def _wait(self, seconds: float) -> bool:
        """False when a stop was asked for meanwhile."""
        deadline = time.monotonic() + seconds
        while self._goes_on() and time.monotonic() < deadline:
            select.select([self._wakeup], [], [], min(LOOK_EVERY_S, seconds))
        return self.stopping.reason is None

    def _goes_on(self) -> bool:
        """Between two attempts: collect, heed and beat as always; False once a stop was asked for."""
        self.stopping.drain()
        self._collect()
        self._look_at_place()
        self.stopping.heed(os.getpid(), True, self.state.grace_s, self._saves.moves)
        if time.monotonic() >= self._next_beat:
            self._write()
            self._next_beat = time.monotonic() + HEARTBEAT_EVERY_S
        return self.stopping.reason is None

    def _watch(self) -> None:
        while self.launcher_exit_code is None:
            select.select([self._wakeup], [], [], LOOK_EVERY_S)
            self.stopping.drain()
            self._collect()
            if self.launcher_exit_code is not None:
                return
            self._look_at_place()
            asked_before = self.state.status == "stopping"
            if self.stopping.heed(os.getpid(), not self._begun(), self.state.grace_s, self._saves.moves) == "kill":
                self._kill()
            if self.stopping.reason is not None and not asked_before:
                self.state.status = "stopping"
                self._next_beat = 0.0
            self.state.stop = self.stopping.to_json()
            if time.monotonic() >= self._next_beat:
                self._beat()

    def _look_at_place(self) -> None:
        """A folder that was moved or removed ends its run; a new folder at its old path is not touched."""
        if not self._place.holds():
            self.stopping.ask(mark("the removal of its folder"), now=True)

    def _collect(self) -> None:
        """Reap what has ended: the launcher, the guard (which is replaced), orphans that came to us."""
        ended = reap()
        if self.launcher and self.launcher.pid in ended:
            self.launcher_exit_code = self.launcher.returncode = ended[self.launcher.pid]
        if self._guard and self._guard.pid in ended:
            try:
                self._guard.replace()
            except OSError as error:
                log(f"the guard could not be replaced: {error}")
                self._guard = None

    def _beat(self) -> None:
        started_s = time.thread_time()
        self.state.workers = trainers_below(os.getpid())
        if self.state.engine.get("actual") is None:
            take_engine(self.state, self.run)
        if self.state.status == "starting" and self._training_speaks():
            self.state.status = "running"
        renew_window(self.run, self.state)
        self._write()
        cost_s = time.thread_time() - started_s
        self._next_beat = time.monotonic() + max(HEARTBEAT_EVERY_S, cost_s / SHARE_OF_A_CORE)

    def _begun(self) -> bool:
        return self.state.engine.get("actual") is not None or self._training_speaks()

    def _training_speaks(self) -> bool:
        return self.run.engine_json.exists() or _size(self.run.metrics_jsonl) > self._metrics_bytes

    def _write(self) -> bool:
        self.state.heartbeat_s = time.time()
        self._look_at_place()
        if not self._place.holds():
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

    def _facts(self) -> Facts:
        return Facts(
            launcher_exit_code=self.launcher_exit_code,
            stop_reason=self.stopping.reason,
            stop_requested_s=self.stopping.requested_s,
            killed=self.stopping.killed,
            now=self.stopping.now,
            begun=self._begun(),
            log_offset=self.state.attempts[-1].log_offset,
            oom_kills=killed_since(self._oom_kills),
        )

    def _write_last_word(self, ended: Ended) -> None:
        if ended.status == "failed" and self.state.status == "starting" and self.stopping.reason is not None:
            # The failure was to be followed by another attempt; that was stopped before it began.
            ended = stopped_between(self.run, self._facts())
        self.state.outcome = read_json(self.run.file(OUTCOME_JSON))
        self.state.status, self.state.exit = ended.status, ended.exit
        self._close()

    def _end_with(self, error: Exception) -> None:
        message = tr("The training could not be started: {reason}.", reason=error)
        if not isinstance(error, OSError) or self.launcher is not None:
            log(traceback.format_exc().rstrip())
            said = f"{type(error).__name__}: {error}"
            message = tr("The supervisor of the run failed: {reason}. See supervisor.log.", reason=said)
        self._kill()
        self.state.status = "failed"
        self.state.exit = RunExit(EXIT_TRAINING_FAILED, "unknown", message, tr("See supervisor.log."))
        self._close()

    def _close(self) -> None:
        state = self.state
        if state.exit is not None:
            close_attempt(state, Ended(state.status, state.exit), self.launcher_exit_code)
        state.ended_s = time.time()
        state.stop = self.stopping.to_json()
        write_last_state(self.run, state, self._write, self._place.holds)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
