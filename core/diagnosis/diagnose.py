"""diagnose(evidence) -> Diagnosis: the earliest failure that no other one explains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, cast

from trainwiz.core.diagnosis.cause import (
    CAUSES,
    Cause,
    Confidence,
    Diagnosis,
    Evidence,
    Failure,
    Hit,
    Line,
    LogFacts,
    Proof,
    clean,
    of_cause,
    signal_words,
)
from trainwiz.core.diagnosis.patterns import pattern_of, remedies_for
from trainwiz.core.diagnosis.scan import place_of_frame, signal_name
from trainwiz.core.language import tr


class Suspect(NamedTuple):
    """What one failure file or one line of a log would make of the end."""

    diagnosis: Diagnosis
    consequence: bool
    """It may come of the failure of another process."""


# The cause that a failure file speaks for.

CAUSE_OF_CODE = {"missing_data": "missing_file", "node_missing": "node_lost", "wrong_interface": "config_mismatch"}
"""Code of a finding of trainwiz's own -> the cause, where it is another word."""
PLACES: Mapping[str | None, str] = {
    "evaluating": "evaluation",
    "generating": "evaluation",
    "saving": "saving",
    "finishing": "saving",
    "loading": "loading",
}
"""What a training process says it is at -> as a diagnosis calls it."""


def cause_of_failure(failure: Failure, said: str) -> tuple[Cause, Confidence, bool]:
    """(cause, confidence, whether it may come of another process); `said`: the first line of its message."""
    if failure.is_own:
        codes = [CAUSE_OF_CODE.get(code, code) for code in failure.codes]
        return cast(Cause, next((code for code in codes if code in CAUSES), "config_mismatch")), "high", False
    # The sentence that tells may stand in any line of a long message, or under the exception that hid it.
    lines = failure.traceback.splitlines()
    raised = [line for line in lines if line[:1].isalpha() and ("Error" in line or "Exception" in line)]
    texts = (f"{failure.type}: {said}", failure.message, *raised)
    found = [pattern for text in texts if (pattern := pattern_of(text, is_error=True)) is not None]
    if found:
        # NCCL names what it ran into in its last lines.
        met = (pattern for pattern in found if pattern.cause != "nccl_error")
        pattern = next(met, found[0]) if found[0].cause == "nccl_error" else found[0]
        return pattern.cause, pattern.confidence, pattern.consequence
    if "resource_sharer" in failure.traceback and "_try_get_data" in failure.traceback:
        # A loader worker died while it handed a tensor over: torch says only that the connection was lost.
        return "dataloader_worker_killed", "high", False
    return "python_error", "high", False


def _of_failure(failure: Failure, log: LogFacts) -> Suspect:
    said = next((line.strip() for line in failure.message.splitlines() if line.strip()), "")
    cause, confidence, consequence = cause_of_failure(failure, said)
    told = f"{failure.type}: {said}" if said else failure.type
    proof = Proof(None, clean(f"rank {failure.rank}: {told}"), f"failure-rank{failure.rank}.json")
    message = of_cause(cause, told if cause == "python_error" else said, failure.step)
    if failure.is_own:
        # Our own errors are whole sentences that already name the place and the remedy.
        message = clean(failure.message)
    frames = filter(None, map(place_of_frame, failure.traceback.splitlines()))
    during = PLACES.get(failure.phase) or next(frames, None)
    # Where the log says the same.
    lines = [log.proof(hit.line) for hit in log.hits if said and said[:80] in hit.line.text]
    found = Diagnosis(
        cause, confidence, message, (proof, *lines[:1]), step=failure.step, rank=failure.rank, during=during
    )
    return Suspect(found, consequence)


# Which of several lines of a log came first: under several ranks the others only lost their partner.

OF_THE_LAUNCHER = ("SIGTERM", "SIGABRT")
"""What ends the other processes after one has failed, and what a process sends itself: weaker than any other."""
LINES_OF_ONE_ERROR = 6


def first_hit(log: LogFacts) -> Hit | None:
    """The earliest that is no consequence, of the rank that torchrun names where it said anything."""
    own = [hit for hit in log.hits if not hit.consequence]
    if not own:
        # Of consequences alone: a wait that ran out comes before the connections that broke with its process.
        return min(log.hits, key=lambda hit: (hit.cause != "nccl_timeout", hit.line.number), default=None)
    chosen = [hit for hit in own if log.root is not None and hit.line.rank == log.root.rank] or own
    first = min(chosen, key=lambda hit: hit.line.number)
    if first.cause != "nccl_error":
        return first
    # NCCL says first that a call failed, and in one of the next lines why.
    rank, below = first.line.rank, range(first.line.number, first.line.number + LINES_OF_ONE_ERROR)
    error = (hit for hit in chosen if hit.line.rank == rank and hit.line.number in below)
    return next((hit for hit in error if hit.cause not in ("nccl_error", "python_error")), first)


def _of_hit(hit: Hit, log: LogFacts) -> Suspect:
    others = [other.line for other in log.hits if other.cause == hit.cause and other.line != hit.line]
    proofs = [log.proof(line) for line in (hit.line, *others[:2])]
    if log.root is not None:
        proofs.append(log.proof(log.root))
    rank = hit.line.rank if hit.consequence else log.rank_of(hit.line)
    name, _ = own_signal(log) or (None, None)
    message = of_cause(hit.cause, hit.line.text)
    found = Diagnosis(hit.cause, hit.confidence, message, tuple(proofs), (), log.step, rank, name, hit.during)
    return Suspect(found, hit.consequence)


def own_signal(log: LogFacts) -> tuple[str, Line] | None:
    """The signal that ended a process first; those that the launcher sends only where there is no other."""
    return min(log.signals, key=lambda ended: ended[0] in OF_THE_LAUNCHER, default=None)


# diagnose(evidence) -> Diagnosis. Pure: the earliest failure that is no consequence of another is the cause.

DISK_IS_FULL_BELOW_BYTES = 1 << 20
KERNEL = "kernel"


def diagnose(evidence: Evidence) -> Diagnosis:
    """The cause of an end, from all that is known."""
    log = evidence.log
    by_time = sorted(evidence.failures, key=lambda failure: failure.time_s)
    of_files = min((_of_failure(failure, log) for failure in by_time), key=lambda one: one.consequence, default=None)
    hit = first_hit(log)
    suspects = [one for one in (of_files, None if hit is None else _of_hit(hit, log)) if one is not None]
    ended = own_signal(log)
    of_signal = None if ended is None else _of_signal(*ended, evidence)
    found = (
        _of_kernel(evidence, suspects)
        or next((diagnosis for diagnosis, consequence in suspects if not consequence), None)
        or (None if of_signal is None or of_signal.signal in OF_THE_LAUNCHER else of_signal)
        or next((diagnosis for diagnosis, _ in suspects), None)
        or of_metrics(log)
        or of_signal
        or _of_disk(evidence)
        or _of_exit_status(evidence)
    )
    if found.cause is None:
        return found
    # What does not fit between machines is no setting: the sentence says what it is, and all of them start again.
    between_nodes = any(failure.type == "NodeProblem" for failure in evidence.failures)
    cause: Cause = "node_lost" if between_nodes and found.cause == "config_mismatch" else found.cause
    return replace(found, remedies=remedies_for(cause, evidence, found.during, found.message))


def _of_kernel(evidence: Evidence, suspects: Iterable[Suspect]) -> Diagnosis | None:
    """The kernel killed for memory: that is the cause, unless a process had failed of itself before."""
    if not evidence.oom_kills:
        return None
    first, log = next(iter(suspects), None), evidence.log
    # A process that writes a failure file has not been killed.
    killed = ("dataloader_worker_killed", "host_oom", *(() if evidence.failures else ("python_error",)))
    if first is not None and not first.consequence and first.diagnosis.cause not in killed:
        return None
    said = tr("the kernel killed {n} process(es) because memory ran out", n=evidence.oom_kills)
    step = (first.diagnosis.step if first is not None else None) or log.step
    lines = [log.proof(line) for _, line in filter(None, [own_signal(log)])]
    return Diagnosis("host_oom", "high", of_cause("host_oom"), (Proof(None, said, KERNEL), *lines), step=step)


def _of_signal(name: str, line: Line, evidence: Evidence) -> Diagnosis:
    cause: Cause = "unknown"
    confidence: Confidence = "medium"
    message = signal_words(name, kernel_told=evidence.oom_kills is not None)
    if name in ("SIGINT", "SIGBUS"):
        cause = "user_stop" if name == "SIGINT" else "shared_memory"
        message = of_cause(cause, line.text)
    elif name == "SIGKILL" and evidence.run is None and evidence.oom_kills is None:
        # Nobody can be asked any more; who kills a training without a word is nearly always the kernel.
        cause, confidence = "host_oom", "low"
    log = evidence.log
    return Diagnosis(cause, confidence, message, (log.proof(line),), (), log.step, log.rank_of(line), name)


def of_metrics(log: LogFacts) -> Diagnosis | None:
    """The last loss is NaN or infinite."""
    if log.not_finite is None:
        return None
    message, proof = of_cause("nan_loss", "", log.step), log.proof(log.not_finite)
    return Diagnosis("nan_loss", "high", message, (proof,), step=log.step)


def _of_disk(evidence: Evidence) -> Diagnosis | None:
    free = evidence.disk_free_bytes
    if free is None or free >= DISK_IS_FULL_BELOW_BYTES or evidence.log.finished is not None:
        return None
    proof = Proof(None, tr("{count} bytes free", count=f"{free:,}"), "disk")
    return Diagnosis("disk_full", "medium", of_cause("disk_full"), (proof,), step=evidence.log.step)


def _of_exit_status(evidence: Evidence) -> Diagnosis:
    log, code = evidence.log, evidence.exit_code or 0
    if log.finished is not None and code == 0:
        proofs = (log.proof(log.finished),)
        return Diagnosis(None, "high", tr("The training finished."), proofs, step=log.step)
    last = tuple(log.proof(line) for line in log.tail)
    name = signal_name(-code)
    if name is not None:
        return Diagnosis("unknown", "medium", signal_words(name, launcher=True), last, step=log.step, signal=name)
    if code != 0:
        message = tr("The training ended with exit code {code} and reported no reason.", code=code)
    elif evidence.exit_code == 0:
        message = tr("The training ended without reporting that it finished.")
    elif not log.tail:
        message = tr("No log was found, and nothing else shows why it ended.")
    else:
        message = tr("The log shows neither that a training finished nor why it ended.")
    return Diagnosis("unknown", "low", message, last, step=log.step)
