"""How a run ends: who asked for a stop and how patiently, the last word, and whether everything of it is gone."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from trainwiz.core.diagnosis.cause import Failure, signal_words
from trainwiz.core.diagnosis.diagnose import diagnose
from trainwiz.core.diagnosis.sources import attempt_evidence, read_failures
from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED, EXIT_TRAINING_FAILED
from trainwiz.core.files import bytes_below, read_small
from trainwiz.core.language import mark, tr
from trainwiz.core.run.checkpoints import CHECKPOINT_NAME, TRAINER_STATE, newest_complete
from trainwiz.core.run.folder import (
    NODES,
    OUTCOME_JSON,
    PARTIAL,
    STOPPED_BY,
    RunFolder,
    name_for_commands,
    read_json,
    write_in_place,
)
from trainwiz.core.run.lost import ProcessId
from trainwiz.core.run.state import RunExit, RunState, RunStatus, result_sentences
from trainwiz.core.supervise.recorder import GIB, GpuCheck, GpuLedger
from trainwiz.core.supervise.ties import log, run_processes, send
from trainwiz.core.telemetry.processes import trainers_below
from trainwiz.core.text import plain_text

# SaveProgress: whether a save under way still moves, so that the end of a stop's patience does not cut it.

STALLED_AFTER_S = 60.0
"""A save that has written nothing for so long is not waited for: its disk hangs, or there is none."""


ENDS_WITHIN_S = 15.0
"""After a save that outlasted the patience, its processes still have to end."""


class SaveProgress:
    """Looks at what is half written in a run folder: checkpoints without their last file, and `*.partial`."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._seen: dict[str, int] = {}
        self._moved_at: float | None = None

    def moves(self) -> bool:
        """Whether something half written has grown within the last STALLED_AFTER_S; the first look counts as growth.

        True for ENDS_WITHIN_S more when it is whole.
        """
        now, found = self._clock(), self._half_written()
        if found and (self._moved_at is None or any(size != self._seen.get(name) for name, size in found.items())):
            self._moved_at = now
        self._seen = found
        patience_s = STALLED_AFTER_S if found else ENDS_WITHIN_S
        return self._moved_at is not None and now - self._moved_at <= patience_s

    def _half_written(self) -> dict[str, int]:
        """Name -> bytes so far."""
        with suppress(OSError):
            paths = list(self._folder.iterdir())
            saves = [
                path for path in paths if CHECKPOINT_NAME.fullmatch(path.name) and not (path / TRAINER_STATE).exists()
            ]
            partial = [path for path in paths if path.name.endswith(PARTIAL) and path.is_dir()]
            return {path.name: bytes_below(path) for path in (*saves, *partial)}
        return {}


# Stopping: who asked, how patiently, and what is done about it.

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NOW_SIGNAL = signal.SIGUSR1
"""Ends at once, however soon after a stop signal."""

ONE_REQUEST_S = 3.0
"""Stop signals within this time are one request: two people who press stop at once, neither of whom has seen the
other's, or the SIGTERM and SIGHUP with which a session ends. A checkpoint must not be lost to that."""
EXEC_TAKES_AT_MOST_S = 0.3
LAUNCHER_MAY_LINGER_S = 10.0
PREPARING_MAY_LINGER_S = 5.0
"""A training that has not begun reads its rows, perhaps for many minutes: it has nothing to save and is not waited for."""


class Stopping:
    """The state of a stop.

    The first stop signal asks every training process (all ranks, for the others would wait for one
    that stopped alone) for a checkpoint and its end. A second one more than ONE_REQUEST_S later,
    NOW_SIGNAL, or the end of the window (core.launch.actions.StopWindow) ends everything at once; a save that is
    still being written then is waited for as long as it grows.
    """

    def __init__(self, owner: ProcessId | None = None) -> None:
        self.owner = owner
        self.reason: str | None = None
        self.requested_s: float | None = None
        """Seconds since the epoch."""
        self.now = False
        self.killed = False
        self.verified: dict[str, Any] | None = None
        """What was found gone when it was over: see `verify_gone`."""
        self._asked_at: float | None = None
        self._told: set[tuple[int, float]] = set()
        self._seen: dict[tuple[int, float], float] = {}
        self._last_trainer = time.monotonic()
        self._pipe = -1

    def listen(self) -> int:
        """Take over the signals; returns a descriptor that becomes readable with each, child exits included."""
        self._pipe, write_end = os.pipe()
        os.set_blocking(self._pipe, False)
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (*STOP_SIGNALS, NOW_SIGNAL):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        return self._pipe

    def drain(self) -> None:
        """Forget the wake-ups so far."""
        try:
            while os.read(self._pipe, 4096):
                pass
        except BlockingIOError:
            return

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        insists = self._asked_at is not None and time.monotonic() - self._asked_at > ONE_REQUEST_S
        by_trainwiz = number in (signal.SIGTERM, NOW_SIGNAL)
        self.ask("you" if by_trainwiz else signal.Signals(number).name, now=insists or number == NOW_SIGNAL)

    def ask(self, reason: str, now: bool = False) -> None:
        """Note the request; `heed` acts on it."""
        if self.reason is None:
            self.reason, self.requested_s, self._asked_at = reason, time.time(), time.monotonic()
        self.now = self.now or now

    def heed(
        self, keeper_pid: int, starting: bool, grace_s: float, saves: Callable[[], bool] = lambda: False
    ) -> Literal["wait", "kill"]:
        """Do what the request asks for at this moment; "kill" when the patience is over.

        `starting`: no training process has said yet that it trains, so there is nothing to save. `saves`
        is asked once the patience is over: whether a save still grows.
        """
        if self.reason is None and self.owner is not None and not self.owner.is_alive():
            self.ask(mark("the exit of the command that started it"))
        if self._asked_at is None:
            return "wait"
        now = time.monotonic()
        if self.now or (now - self._asked_at > grace_s and not saves()):
            self.killed = True
            return "kill"
        trainers = trainers_below(keeper_pid)
        for process in trainers:
            self._last_trainer = now
            # A child that is between fork and exec would lose the signal.
            key = (process.pid, process.start_ticks or process.create_time)
            if key not in self._told and now - self._seen.setdefault(key, now) >= EXEC_TAKES_AT_MOST_S:
                send(process.pid, signal.SIGTERM)
                self._told.add(key)
        nothing_to_save = starting and not self._told
        if not trainers and (nothing_to_save or now - self._last_trainer > LAUNCHER_MAY_LINGER_S):
            return "kill"
        if starting and now - self._asked_at > PREPARING_MAY_LINGER_S:
            return "kill"
        return "wait"

    def to_json(self) -> dict[str, Any] | None:
        if self.reason is None:
            return None
        document = {"requested_s": self.requested_s, "reason": self.reason, "now": self.now}
        return document if self.verified is None else {**document, "verified": self.verified}


# After a stop: is every process of the run gone, and its GPU memory given back? One sentence, and the facts.


def verify_gone(mark: str, keeper: int, spare: Collection[int], ledger: GpuLedger) -> dict[str, Any]:
    """{processes_left: [pids], gpu: a GpuCheck or None, text: one sentence}. Takes seconds only where a GPU was used.

    `spare`: the keeper's guard, which carries the mark too.
    """
    from trainwiz.core.telemetry.gpu import GpuSampler

    left = sorted(run_processes(mark, keeper) - set(spare))
    sampler = GpuSampler()
    gpu = ledger.check(sampler.sample)
    sampler.close()
    return {"processes_left": left, "gpu": asdict(gpu) if gpu else None, "text": verified_words(left, gpu)}


def verified_words(left: Collection[int], gpu: GpuCheck | None) -> str:
    """One sentence, or two where something is left."""
    if left:
        processes = tr(
            "These processes of the run are stuck in the kernel and could not be ended: {pids}. They end when their "
            "driver or disk responds again, or with a reboot.",
            pids=", ".join(map(str, left)),
        )
        return processes if gpu is None or gpu.verdict == "free" else f"{processes} {gpu.reason}"
    if gpu is None or (gpu.verdict == "free" and not gpu.held_bytes):
        return tr("All processes of the run have ended.")
    if gpu.verdict == "free":
        amount = f"{gpu.held_bytes / GIB:.1f}"
        return tr(
            "All processes of the run have ended, and its {amount} GiB of GPU memory is free again.", amount=amount
        )
    return tr("All processes of the run have ended. {gpu}", gpu=gpu.reason)


# The last writing of state.json, also on a full disk, and what the run leaves to the user's history.

LAST_WRITES = 3


def write_last_state(run: RunFolder, state: RunState, write: Callable[[], bool], stands: Callable[[], bool]) -> None:
    """`write` says whether it could write the state as always; a folder that is gone (not `stands`) is let go."""
    for _ in range(LAST_WRITES):
        if write():
            _remember(run, state)
            return
        if not stands():
            return
        time.sleep(1.0)
    # The disk is full and stays so: the blocks that the file has already can still be written.
    try:
        write_in_place(run.state_json, json.dumps(state.to_json()) + "\n")
    except OSError as error:
        log(f"The last state could not be written: {error}")


def _remember(run: RunFolder, state: RunState) -> None:
    """The pace and the peak of the run go into the user's history; it is no part of the run."""
    from trainwiz.core.history.run import record_run

    try:
        record_run(run, state)
    except Exception as error:  # noqa: BLE001 - the run has ended well or not, whatever becomes of the history
        log(f"The run could not be added to the history of measurements: {type(error).__name__}: {error}")


# How a run ended: from outcome, failure files, exit status and log to the last word of state.json.

OUTSIDE = mark("a signal from outside trainwiz")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the keeper alone knows about the end."""

    launcher_exit_code: int | None
    stop_reason: str | None
    """Who asked for the stop; None when nobody did."""
    stop_requested_s: float | None
    killed: bool
    """The keeper had to kill what did not end in time, or was told not to wait."""
    now: bool
    begun: bool
    """The training itself has said something."""
    log_offset: int
    oom_kills: int | None


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended."""

    status: RunStatus
    exit: RunExit
    during: str | None = None
    """Of a failure: "evaluation", "saving" or "loading"; None: the training itself, or not known."""
    killed_by: str | None = None
    """Of a failure: the signal with which the launcher or a training process was ended from outside."""


def stopped_between(run: RunFolder, facts: Facts) -> Ended:
    """A stop that came after a failed attempt and before the next."""
    return Ended("stopped", _stopped(run, facts, {}))


def how_it_ended(run: RunFolder, facts: Facts) -> Ended:
    """The last word, and what a decision about another start needs beside it."""
    outcome = read_json(run.file(OUTCOME_JSON)) or {}
    said = outcome.get("outcome")
    # A stop that comes after the last word of the training hits a process that is only closing down.
    if said == "finished" and (facts.launcher_exit_code == 0 or facts.stop_reason is not None):
        said = " ".join([_finished(outcome), *result_sentences(outcome)])
        return Ended("finished", RunExit(EXIT_FINISHED, None, said))
    failures = read_failures(run)
    # What goes wrong after the stop was asked for is a consequence of stopping.
    asked_s = math.inf if facts.stop_requested_s is None else facts.stop_requested_s
    failed_before = any(failure.time_s < asked_s for failure in failures)
    if (facts.stop_reason is not None or said == "stopped") and not failed_before:
        return Ended("stopped", _stopped(run, facts, outcome))
    failed = _failed(run, facts, failures)
    if failed.exit.cause != "user_stop":
        return failed
    if facts.launcher_exit_code == -signal.SIGINT:
        # No stop of trainwiz goes to the launcher, and its end took the training with it: as any other signal to it.
        name = signal.SIGINT.name
        exit_ = replace(failed.exit, cause="unknown", message=signal_words(name, launcher=True))
        return replace(failed, exit=exit_, killed_by=name)
    # Ctrl-C to a training process that did not yet listen: as one to a process that does.
    return Ended("stopped", _stopped(run, facts, outcome))


def _finished(outcome: dict[str, Any]) -> str:
    step, first, last = outcome.get("step"), outcome.get("first_loss"), outcome.get("last_loss")
    if not isinstance(step, int):
        return tr("Finished.")
    if not isinstance(first, int | float) or not isinstance(last, int | float):
        return tr("Finished after {steps} steps.", steps=f"{step:,}")
    return tr("Finished after {steps} steps, loss {losses}.", steps=f"{step:,}", losses=f"{first:.2f} → {last:.2f}")


def _stopped(run: RunFolder, facts: Facts, outcome: dict[str, Any]) -> RunExit:
    kept = tr("There is no checkpoint yet.")
    if newest := newest_complete(run):
        kept = tr("{name} is the newest complete checkpoint.", name=newest.name)
    return RunExit(
        code=EXIT_STOPPED,
        cause="user_stop",
        message=tr("{stopped} {kept}", stopped=_stopped_how(run, facts, outcome.get("step")), kept=kept),
        remedy=f"trainwiz runs resume {name_for_commands(run.path)}",
    )


def _stopped_how(run: RunFolder, facts: Facts, step: Any) -> str:
    whom = tr(facts.stop_reason) if facts.stop_reason else _by_a_node(run) or tr(OUTSIDE)
    stopped = tr("Stopped by {whom}", whom=whom)
    if isinstance(step, int):
        stopped = tr("Stopped at step {step} by {whom}", step=f"{step:,}", whom=whom)
    if not facts.begun:
        return tr("{stopped} before the training began.", stopped=stopped)
    if not facts.killed:
        return tr("{stopped}.", stopped=stopped)
    if facts.now:
        return tr("{stopped} immediately, without a checkpoint.", stopped=stopped)
    return tr("{stopped}; it did not end in time and was killed.", stopped=stopped)


def _by_a_node(run: RunFolder) -> str | None:
    """Who of several machines was told to stop, where this keeper was not."""
    try:
        node = read_small(run.path / NODES / STOPPED_BY).decode()
    except (OSError, UnicodeDecodeError):
        return None
    return tr("a stop request on {node}", node=plain_text(node, 200))


def _failed(run: RunFolder, facts: Facts, failures: tuple[Failure, ...]) -> Ended:
    diagnosis = diagnose(
        attempt_evidence(
            run,
            exit_code=facts.launcher_exit_code,
            log_offset=facts.log_offset,
            oom_kills=facts.oom_kills,
            failures=failures,
        )
    )
    cause = diagnosis.cause or "unknown"
    exit_ = RunExit(EXIT_TRAINING_FAILED, cause, diagnosis.message, diagnosis.remedy, diagnosis.proofs)
    return Ended("failed", exit_, during=diagnosis.during, killed_by=diagnosis.signal)
