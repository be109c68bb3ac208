"""How a run ends: who asked for a stop and how patiently, the last word, and whether everything of it is gone."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from trainwiz.core.diagnosis.cause import signal_words
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
)
from trainwiz.core.run.lost import ProcessId
from trainwiz.core.run.state import RunExit, RunStatus, result_sentences
from trainwiz.core.supervise.recorder import GIB, GpuCheck, GpuLedger
from trainwiz.core.supervise.ties import run_processes, send
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
        self._moved_at = -math.inf

    def moves(self) -> bool:
        """Whether something half written has grown within the last STALLED_AFTER_S; the first look counts as growth.

        True for ENDS_WITHIN_S more when it is whole.
        """
        now, found = self._clock(), self._half_written()
        if found and found != self._seen:
            self._moved_at = now
        self._seen = found
        return now - self._moved_at <= (STALLED_AFTER_S if found else ENDS_WITHIN_S)

    def _half_written(self) -> dict[str, int]:
        """Name -> bytes so far."""
        with suppress(OSError):
            return {path.name: bytes_below(path) for path in self._folder.iterdir() if _is_half_written(path)}
        return {}


def _is_half_written(path: Path) -> bool:
    if CHECKPOINT_NAME.fullmatch(path.name):
        return not (path / TRAINER_STATE).exists()
    return path.name.endswith(PARTIAL) and path.is_dir()


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

    def __init__(self, owner: ProcessId | None, saves: Callable[[], bool]) -> None:
        """`owner`: the process whose end is a request too. `saves` is asked once the patience is over: whether a save
        still grows."""
        self._owner = owner
        self._saves = saves
        self.reason: str | None = None
        self.requested_s: float | None = None
        """Seconds since the epoch."""
        self.now = False
        self.killed = False
        self._asked_at = math.inf
        self._seen: dict[tuple[int, float], float] = {}
        """Training process -> when it was first seen; infinite once it was told."""
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
        with suppress(BlockingIOError):
            while os.read(self._pipe, 4096):
                pass

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        insists = time.monotonic() - self._asked_at > ONE_REQUEST_S
        by_trainwiz = number in (signal.SIGTERM, NOW_SIGNAL)
        self.ask("you" if by_trainwiz else signal.Signals(number).name, now=insists or number == NOW_SIGNAL)

    def ask(self, reason: str, now: bool = False) -> None:
        """Note the request; `heed` acts on it."""
        if self.reason is None:
            self.reason, self.requested_s, self._asked_at = reason, time.time(), time.monotonic()
        self.now = self.now or now

    def heed(self, starting: bool, grace_s: float) -> bool:
        """Do what the request asks for at this moment; True when the patience is over, and all is to be killed.

        `starting`: no training process has said yet that it trains, so there is nothing to save.
        """
        if self.reason is None and self._owner is not None and not self._owner.is_alive():
            self.ask(mark("the exit of the command that started it"))
        if self.reason is None:
            return False
        now = time.monotonic()
        waited_s = now - self._asked_at
        if self.now or (waited_s > grace_s and not self._saves()):
            self.killed = True
            return True
        trainers = trainers_below(os.getpid())
        self._last_trainer = now if trainers else self._last_trainer
        for process in trainers:
            # A child that is between fork and exec would lose the signal.
            key = (process.pid, process.start_ticks or process.create_time)
            if now - self._seen.setdefault(key, now) >= EXEC_TAKES_AT_MOST_S:
                send(process.pid, signal.SIGTERM)
                self._seen[key] = math.inf
        nothing_to_save = starting and math.inf not in self._seen.values()
        if not trainers and (nothing_to_save or now - self._last_trainer > LAUNCHER_MAY_LINGER_S):
            return True
        return starting and waited_s > PREPARING_MAY_LINGER_S

    def to_json(self) -> dict[str, Any]:
        return {"requested_s": self.requested_s, "reason": self.reason, "now": self.now}


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
    said = tr("All processes of the run have ended.")
    if left:
        said = tr(
            "These processes of the run are stuck in the kernel and could not be ended: {pids}. They end when their "
            "driver or disk responds again, or with a reboot.",
            pids=", ".join(map(str, left)),
        )
    elif gpu is not None and gpu.verdict == "free" and gpu.held_bytes:
        amount = f"{gpu.held_bytes / GIB:.1f}"
        return tr(
            "All processes of the run have ended, and its {amount} GiB of GPU memory is free again.", amount=amount
        )
    return f"{said} {gpu.reason}" if gpu is not None and gpu.reason else said


# How a run ended: from outcome, failure files, exit status and log to the last word of state.json.

OUTSIDE = mark("a signal from outside trainwiz")


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended."""

    status: RunStatus
    exit: RunExit
    during: str | None = None
    """Of a failure: "evaluation", "saving" or "loading"; None: the training itself, or not known."""
    killed_by: str | None = None
    """Of a failure: the signal with which the launcher or a training process was ended from outside."""


def how_it_ended(
    run: RunFolder,
    exit_code: int | None,
    stopping: Stopping,
    *,
    begun: bool,
    log_offset: int = 0,
    oom_kills: int | None = None,
) -> Ended:
    """The last word, and what a decision about another start needs beside it.

    `exit_code`: of the launcher. `begun`: the training itself has said something. `log_offset`: where this attempt begins
    in train.log. `oom_kills`: by the kernel during it, None where it does not tell.
    """
    outcome = read_json(run.file(OUTCOME_JSON)) or {}
    said, asked = outcome.get("outcome"), stopping.reason is not None
    # A stop that comes after the last word of the training hits a process that is only closing down.
    if said == "finished" and (exit_code == 0 or asked):
        said = " ".join([_finished(outcome), *result_sentences(outcome)])
        return Ended("finished", RunExit(EXIT_FINISHED, None, said))
    failures = read_failures(run)
    # What goes wrong after the stop was asked for is a consequence of stopping.
    failed_before = any(failure.time_s < (stopping.requested_s or math.inf) for failure in failures)
    if (asked or said == "stopped") and not failed_before:
        return stopped(run, stopping, begun, outcome.get("step"))
    evidence = attempt_evidence(run, exit_code=exit_code, log_offset=log_offset, oom_kills=oom_kills, failures=failures)
    found = diagnose(evidence)
    cause, message, killed_by = found.cause or "unknown", found.message, found.signal
    if cause == "user_stop" and exit_code != -signal.SIGINT:
        # Ctrl-C to a training process that did not yet listen: as one to a process that does.
        return stopped(run, stopping, begun, outcome.get("step"))
    if cause == "user_stop":
        # No stop of trainwiz goes to the launcher, and its end took the training with it: as any other signal to it.
        cause, killed_by = "unknown", signal.SIGINT.name
        message = signal_words(killed_by, launcher=True)
    exit_ = RunExit(EXIT_TRAINING_FAILED, cause, message, found.remedy, found.proofs)
    return Ended("failed", exit_, during=found.during, killed_by=killed_by)


def _finished(outcome: Mapping[str, Any]) -> str:
    step, first, last = (outcome.get(name) for name in ("step", "first_loss", "last_loss"))
    if not isinstance(step, int):
        return tr("Finished.")
    if not isinstance(first, int | float) or not isinstance(last, int | float):
        return tr("Finished after {steps} steps.", steps=f"{step:,}")
    return tr("Finished after {steps} steps, loss {losses}.", steps=f"{step:,}", losses=f"{first:.2f} → {last:.2f}")


def stopped(run: RunFolder, stopping: Stopping, begun: bool, step: Any = None) -> Ended:
    """A stop, after `step` where the training said it."""
    whom = tr(stopping.reason) if stopping.reason else _by_a_node(run) or tr(OUTSIDE)
    said = tr("Stopped by {whom}", whom=whom)
    if isinstance(step, int):
        said = tr("Stopped at step {step} by {whom}", step=f"{step:,}", whom=whom)
    if not begun:
        said = tr("{stopped} before the training began.", stopped=said)
    elif not stopping.killed:
        said = tr("{stopped}.", stopped=said)
    elif stopping.now:
        said = tr("{stopped} immediately, without a checkpoint.", stopped=said)
    else:
        said = tr("{stopped}; it did not end in time and was killed.", stopped=said)
    kept = tr("There is no checkpoint yet.")
    if newest := newest_complete(run):
        kept = tr("{name} is the newest complete checkpoint.", name=newest.name)
    resume = f"trainwiz runs resume {name_for_commands(run.path)}"
    return Ended("stopped", RunExit(EXIT_STOPPED, "user_stop", f"{said} {kept}", resume))


def _by_a_node(run: RunFolder) -> str | None:
    """Who of several machines was told to stop, where this keeper was not."""
    try:
        node = read_small(run.path / NODES / STOPPED_BY).decode()
    except (OSError, UnicodeDecodeError):
        return None
    return tr("a stop request on {node}", node=plain_text(node, 200))
