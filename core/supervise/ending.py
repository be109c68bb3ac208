"""How a run ended, and whether everything of it is gone."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from trainwiz.core.diagnosis.cause import Failure, KernelFacts, of_signal
from trainwiz.core.diagnosis.diagnose import diagnose
from trainwiz.core.diagnosis.log_file import counted_oom_kills
from trainwiz.core.diagnosis.log_file import kernel_oom_kills as kernel_oom_kills
from trainwiz.core.diagnosis.sources import attempt_evidence, read_failures
from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED, EXIT_TRAINING_FAILED
from trainwiz.core.files import read_small
from trainwiz.core.language import mark, tr
from trainwiz.core.run.checkpoints import newest_complete
from trainwiz.core.run.folder import (
    NODES,
    OUTCOME_JSON,
    STOPPED_BY,
    RunFolder,
    name_for_commands,
    read_json,
    write_in_place,
)
from trainwiz.core.run.state import RunExit, RunState, RunStatus
from trainwiz.core.supervise.order import log
from trainwiz.core.supervise.ties import run_processes
from trainwiz.core.text import plain_text

# GpuLedger: what the run holds on each GPU, so that after its end one can look whether all of it was given back.

LEAST_BYTES = 256 * 1024**2
"""Below this a card is not one that the run computes on: a CUDA context alone is larger."""
RELEASE_TAKES_AT_MOST_S = 15.0
"""A driver gives the memory of a killed process back after seconds, not at once."""
LOOK_EVERY_S = 0.5
DRIVER_ANSWERS_WITHIN_S = 10.0
GIB = 1024**3

Verdict = Literal["free", "held", "unclear", "not_checked"]
Sample = Callable[[], tuple[list[dict[str, Any]], dict[str, str]]]
"""GpuSampler.sample."""


@dataclass(frozen=True, slots=True)
class GpuCheck:
    """What a look at the GPUs after the end of a run found."""

    verdict: Verdict
    """free: our processes are gone from the cards, or, where the driver names only those of the machine (in a
    container), the cards hold no more than before the run; unclear: such a card holds more."""
    held_bytes: int
    """What the run held before its end."""
    pids_left: tuple[int, ...] = ()
    reason: str = ""
    """One sentence for every verdict but `free`."""

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "held_bytes": self.held_bytes,
            "pids_left": list(self.pids_left),
            "reason": self.reason,
        }


class GpuLedger:
    """Is told of each line of system.jsonl, in the thread that samples."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._grown: dict[str, int] = {}
        self._ours: dict[str, int] = {}
        self._pids: set[int] = set()

    def note(self, row: Mapping[str, Any]) -> None:
        """One sample. The first one that shows a card is taken for what it held before the run."""
        own = {process["pid"] for process in row.get("processes") or ()}
        for gpu in row.get("gpus") or ():
            uuid, used = gpu.get("uuid"), gpu.get("memory_used_bytes")
            if uuid is None or used is None:
                continue
            grown = used - self._before.setdefault(uuid, used)
            ours = {one["pid"]: one.get("memory_used_bytes") or 0 for one in gpu.get("processes") or ()}
            ours = {pid: held for pid, held in ours.items() if pid in own}
            # What was held last is remembered: samples go on for a moment after all is given back.
            if grown >= LEAST_BYTES:
                self._grown[uuid] = grown
            if any(ours.values()):
                self._ours[uuid] = sum(ours.values())
            self._pids |= ours.keys()

    @property
    def held(self) -> dict[str, int]:
        """uuid -> bytes that the run held; by the growth of a card where the driver does not name our processes."""
        return dict(self._ours or self._grown)

    def check(self, sample: Sample, *, patience_s: float = RELEASE_TAKES_AT_MOST_S) -> GpuCheck | None:
        """Look until all is given back, `patience_s` at most; None where the run held nothing on any GPU."""
        held, pids = self.held, frozenset(self._pids)
        if not held and not pids:
            return None
        deadline = time.monotonic() + patience_s
        while True:
            found = self._look(sample, held, pids)
            if found.verdict in ("free", "not_checked") or time.monotonic() > deadline:
                return found
            time.sleep(LOOK_EVERY_S)

    def _look(self, sample: Sample, held: Mapping[str, int], pids: frozenset[int]) -> GpuCheck:
        total = sum(held.values())
        gpus, problem = _in_time(sample)
        if problem is not None:
            return GpuCheck(
                "not_checked", total, reason=tr("The GPUs could not be looked at: {reason}.", reason=problem)
            )
        left = {
            one["pid"]: one.get("memory_used_bytes") or 0
            for gpu in gpus
            for one in gpu.get("processes") or ()
            if one["pid"] in pids
        }
        if left:
            reason = tr(
                "Process {pids} is still named on a GPU, with {amount} GiB: look at it with nvidia-smi.",
                pids=", ".join(map(str, left)),
                amount=f"{sum(left.values()) / GIB:.1f}",
            )
            return GpuCheck("held", total, tuple(left), reason)
        unread = sorted(set(held) - {gpu.get("uuid") for gpu in gpus if gpu.get("memory_used_bytes") is not None})
        if unread:
            reason = tr("{gpu} could not be looked at: the driver does not answer for it.", gpu=unread[0])
            return GpuCheck("not_checked", total, reason=reason)
        return GpuCheck("free", total) if pids else self._compared(gpus, held, total)

    def _compared(self, gpus: Sequence[Mapping[str, Any]], held: Mapping[str, int], total: int) -> GpuCheck:
        for gpu in gpus:
            more = gpu["memory_used_bytes"] - self._before[gpu["uuid"]] if gpu.get("uuid") in held else 0
            if more >= LEAST_BYTES:
                reason = tr(
                    "GPU {index} holds {amount} GiB more than before the run; the driver does not say whose it is.",
                    index=gpu.get("index"),
                    amount=f"{more / GIB:.1f}",
                )
                return GpuCheck("unclear", total, reason=reason)
        return GpuCheck("free", total)


def _in_time(sample: Sample) -> tuple[list[dict[str, Any]], str | None]:
    """A sample, or why there is none."""
    # Imported here: the keeper has this module loaded all the time, and pynvml only where there is a GPU.
    from trainwiz.core.hardware.nvml import Unreadable, in_time

    try:
        gpus, unavailable = in_time(sample, DRIVER_ANSWERS_WITHIN_S)
    except Unreadable as error:
        return [], error.reason
    return gpus, unavailable.get("gpus")


# After a stop: is every process of the run gone, and its GPU memory given back? One sentence, and the facts.


def verify_gone(mark: str, keeper: int, spare: Collection[int], ledger: GpuLedger) -> dict[str, Any]:
    """{processes_left: [pids], gpu: a GpuCheck or None, text: one sentence}. Takes seconds only where a GPU was used.

    `spare`: the keeper's guard, which carries the mark too.
    """
    left = sorted(run_processes(mark, keeper) - set(spare))
    gpu = _check(ledger)
    return {"processes_left": left, "gpu": gpu.to_json() if gpu else None, "text": verified_words(left, gpu)}


def _check(ledger: GpuLedger) -> GpuCheck | None:
    from trainwiz.core.hardware.nvml import Unreadable, in_time
    from trainwiz.core.telemetry.gpu import GpuSampler

    sampler = GpuSampler()
    try:
        return ledger.check(sampler.sample)
    finally:
        # A driver that did not come back from a look does not come back from the closing either.
        with suppress(Unreadable):
            in_time(sampler.close)


def verified_words(left: Collection[int], gpu: GpuCheck | None) -> str:
    """One sentence, or two where something is left."""
    if left:
        processes = tr(
            "These processes of the run hang in the kernel and could not be ended: {pids}. "
            "They go when their driver or disk answers again, or with a reboot.",
            pids=", ".join(map(str, left)),
        )
        return processes if gpu is None or gpu.verdict == "free" else f"{processes} {gpu.reason}"
    if gpu is None:
        return tr("No process of the run is left.")
    if gpu.verdict == "free" and not gpu.held_bytes:
        return tr("No process of the run is left, neither here nor on a GPU.")
    if gpu.verdict == "free":
        amount = f"{gpu.held_bytes / GIB:.1f}"
        return tr("No process of the run is left, and its {amount} GiB on the GPU are free again.", amount=amount)
    return tr("No process of the run is left. {gpu}", gpu=gpu.reason)


# The last writing of state.json, also on a full disk, and what the run leaves to the user's history.

LAST_WRITES = 3


def write_last_state(run: RunFolder, state: RunState, write: Callable[[], bool]) -> None:
    """`write` says whether it could write the state as always; a folder that is gone is let go."""
    for _ in range(LAST_WRITES):
        if write():
            _remember(run, state)
            return
        if not run.path.is_dir():
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
    oom_kills: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended."""

    status: RunStatus
    exit: RunExit
    during: str | None = None
    """Of a failure: "evaluation", "saving" or "loading"; None: the training itself, or not known."""
    killed_by: str | None = None
    """Of a failure: the signal with which the launcher or a training process was ended from outside."""


def last_word(run: RunFolder, facts: Facts) -> tuple[RunStatus, RunExit]:
    """The final status of the attempt, and one sentence about it."""
    ended = how_it_ended(run, facts)
    return ended.status, ended.exit


def stopped_between(run: RunFolder, facts: Facts) -> Ended:
    """A stop that came after a failed attempt and before the next."""
    return Ended("stopped", _stopped(run, facts, {}))


def how_it_ended(run: RunFolder, facts: Facts) -> Ended:
    """The last word, and what a decision about another start needs beside it."""
    outcome = read_json(run.file(OUTCOME_JSON)) or {}
    said = outcome.get("outcome")
    # A stop that comes after the last word of the training hits a process that is only closing down.
    if said == "finished" and (facts.launcher_exit_code == 0 or facts.stop_reason is not None):
        return Ended("finished", RunExit(EXIT_FINISHED, None, _finished(outcome)))
    failures = read_failures(run)
    stopped = facts.stop_reason is not None or said == "stopped"
    if stopped and not _failed_before_stop(failures, facts):
        return Ended("stopped", _stopped(run, facts, outcome))
    failed = _failed(run, facts, failures)
    if failed.exit.cause != "user_stop":
        return failed
    if facts.launcher_exit_code == -signal.SIGINT:
        return _launcher_interrupted(failed)
    # Ctrl-C to a training process that did not yet listen: as one to a process that does.
    return Ended("stopped", _stopped(run, facts, outcome))


def _launcher_interrupted(failed: Ended) -> Ended:
    """No stop of trainwiz goes to the launcher, and its end took the training with it: as any other signal to it."""
    name = signal.SIGINT.name
    exit_ = replace(failed.exit, cause="unknown", message=of_signal(name, launcher=True))
    return replace(failed, exit=exit_, killed_by=name)


def _failed_before_stop(failures: tuple[Failure, ...], facts: Facts) -> bool:
    # What goes wrong after the stop was asked for is a consequence of stopping.
    first = min(failures, key=lambda failure: failure.time_s, default=None)
    if first is None:
        return False
    return facts.stop_requested_s is None or first.time_s < facts.stop_requested_s


def _finished(outcome: dict[str, Any]) -> str:
    step, first, last = outcome.get("step"), outcome.get("first_loss"), outcome.get("last_loss")
    steps = f"{step:,}" if isinstance(step, int) else None
    if not isinstance(first, int | float) or not isinstance(last, int | float):
        return tr("Finished.") if steps is None else tr("Finished after {steps} steps.", steps=steps)
    losses = f"{first:.2f} → {last:.2f}"
    if steps is None:
        return tr("Finished, loss {losses}.", losses=losses)
    return tr("Finished after {steps} steps, loss {losses}.", steps=steps, losses=losses)


def _stopped(run: RunFolder, facts: Facts, outcome: dict[str, Any]) -> RunExit:
    newest = newest_complete(run)
    kept = tr("There is no checkpoint yet.")
    if newest:
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
        return tr("{stopped} at once, without a checkpoint.", stopped=stopped)
    return tr("{stopped}; it did not end in time and was killed.", stopped=stopped)


def _by_a_node(run: RunFolder) -> str | None:
    """Who of several machines was told to stop, where this keeper was not."""
    try:
        node = read_small(run.path / NODES / STOPPED_BY).decode()
    except (OSError, UnicodeDecodeError):
        return None
    return tr("a stop on {node}", node=plain_text(node, 200))


def _failed(run: RunFolder, facts: Facts, failures: tuple[Failure, ...]) -> Ended:
    diagnosis = diagnose(
        attempt_evidence(
            run,
            exit_code=facts.launcher_exit_code,
            log_offset=facts.log_offset,
            kernel=KernelFacts(told=counted_oom_kills() is not None, oom_kills=facts.oom_kills),
            failures=failures,
        )
    )
    cause = diagnosis.cause or "unknown"
    exit_ = RunExit(EXIT_TRAINING_FAILED, cause, diagnosis.message, diagnosis.remedy, diagnosis.proofs)
    return Ended("failed", exit_, during=diagnosis.during, killed_by=diagnosis.signal)
