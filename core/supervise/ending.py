"""How a run ended: from outcome, failure files, exit status and log to the last word of state.json."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import Any

from trainwiz.core.diagnosis.diagnose import diagnose
from trainwiz.core.diagnosis.evidence import Failure, KernelFacts
from trainwiz.core.diagnosis.kernel import counted_oom_kills
from trainwiz.core.diagnosis.kernel import kernel_oom_kills as kernel_oom_kills
from trainwiz.core.diagnosis.of_attempt import attempt_evidence, read_failures
from trainwiz.core.diagnosis.words import of_signal
from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED, EXIT_TRAINING_FAILED
from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text
from trainwiz.core.run.checkpoints import newest_complete
from trainwiz.core.run.folder import NODES, OUTCOME_JSON, STOPPED_BY, RunFolder, read_json
from trainwiz.core.run.names import name_for_commands
from trainwiz.core.run.state import RunExit
from trainwiz.core.run.status import RunStatus
from trainwiz.core.small_file import read_small

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
