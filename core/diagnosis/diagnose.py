"""diagnose(evidence) -> Diagnosis: the earliest failure that no other one explains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import cast

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
    of_error,
    of_signal,
)
from trainwiz.core.diagnosis.patterns import PATTERNS, Place, remedies_for
from trainwiz.core.diagnosis.scan import place_of_frame, signal_name
from trainwiz.core.language import tr

# The cause that a failure file speaks for.

CAUSE_OF_CODE = {"missing_data": "missing_file", "node_missing": "node_lost", "wrong_interface": "config_mismatch"}
"""Code of a finding of trainwiz's own -> the cause, where it is another word."""


LOST_PEER = ("ConnectionResetError", "ConnectionRefusedError", "EOFError", "FileNotFoundError")
"""What torch says of a loader worker that dies while it hands a tensor over; of a later death it says so itself."""


def cause_of_failure(failure: Failure) -> tuple[Cause, Confidence, bool, str]:
    """(cause, confidence, whether it may come of another process, what was said in one line)."""
    said = next((line.strip() for line in failure.message.splitlines() if line.strip()), "")
    if failure.is_own:
        codes = [CAUSE_OF_CODE.get(code, code) for code in failure.codes]
        return cast(Cause, next((code for code in codes if code in CAUSES), "config_mismatch")), "high", False, said
    # The sentence that tells may stand in any line of a long message, or under the exception that hid it.
    for text in (f"{failure.type}: {said}", failure.message, *_raised(failure)):
        for pattern in PATTERNS:
            if pattern.expression.search(text):
                if pattern.cause == "nccl_error" and text is not failure.message:
                    # NCCL names what it ran into in its last lines; of the patterns, those of such causes stand first.
                    pattern = next((one for one in PATTERNS if one.expression.search(failure.message)), pattern)
                return pattern.cause, pattern.confidence, pattern.consequence, said
    if failure.type in LOST_PEER and "resource_sharer" in failure.traceback and "_try_get_data" in failure.traceback:
        return "dataloader_worker_killed", "high", False, said
    return "python_error", "high", False, said


def _raised(failure: Failure) -> list[str]:
    """The exceptions of the traceback, the first first: not the source lines between."""
    lines = failure.traceback.splitlines()
    return [line for line in lines if line[:1].isalpha() and ("Error" in line or "Exception" in line)]


# Which of several failures came first: under several ranks the others only lost their partner.

OF_THE_LAUNCHER = ("SIGTERM", "SIGABRT")
"""What ends the other processes after one has failed, and what a process sends itself: weaker than any other."""
LINES_OF_ONE_ERROR = 6


def first_failure(failures: Iterable[Failure]) -> Failure | None:
    """The earliest that is no consequence of another; the earliest of all where each may be one."""
    return min(failures, key=lambda failure: (cause_of_failure(failure)[2], failure.time_s), default=None)


def first_hit(log: LogFacts) -> Hit | None:
    """The earliest that is no consequence, of the rank that torchrun names where it said anything."""
    own = [hit for hit in log.hits if not hit.consequence]
    of_root = [hit for hit in own if log.root_rank is not None and hit.line.rank == log.root_rank]
    chosen = of_root or own
    if not chosen:
        return _strongest(log.hits)
    first = min(chosen, key=lambda hit: hit.line.number)
    if first.cause == "nccl_error":
        return _what_nccl_met(first, chosen)
    if first.cause != "python_error":
        return first
    chain = [hit for hit in chosen if hit.chain == first.chain and hit.line.rank == first.line.rank]
    # What was raised while another exception was handled: the one that names a cause, else the one that was left.
    return next((hit for hit in chain if hit.cause != "python_error"), chain[-1])


def _what_nccl_met(wrapper: Hit, own: Iterable[Hit]) -> Hit:
    """NCCL says first that a call failed, and in one of the next lines why: a card without memory is no lost connection."""
    below = range(wrapper.line.number, wrapper.line.number + LINES_OF_ONE_ERROR)
    reasons = (hit for hit in own if hit.line.rank == wrapper.line.rank and hit.line.number in below)
    return next((hit for hit in reasons if hit.cause not in ("nccl_error", "python_error")), wrapper)


def _strongest(hits: Iterable[Hit]) -> Hit | None:
    """Of consequences alone: a wait that ran out comes before the connections that broke with its process."""
    order = {"nccl_timeout": 0, "nccl_error": 1}
    return min(hits, key=lambda hit: (order.get(hit.cause, 2), hit.line.number), default=None)


def own_signal(log: LogFacts) -> tuple[str, Line] | None:
    """The signal that ended a process first; those that the launcher sends only where there is no other."""
    return next((one for one in log.signals if one[0] not in OF_THE_LAUNCHER), None) or next(iter(log.signals), None)


# diagnose(evidence) -> Diagnosis. Pure: the earliest failure that is no consequence of another is the cause.

DISK_IS_FULL_BELOW_BYTES = 1 << 20
KERNEL = "kernel"
PLACES: Mapping[str, str] = {
    "evaluating": "evaluation",
    "generating": "evaluation",
    "saving": "saving",
    "finishing": "saving",
    "loading": "loading",
}
"""What a training process says it is at -> as a diagnosis calls it."""


def diagnose(evidence: Evidence) -> Diagnosis:
    """The cause of an end, from all that is known."""
    failure, log = first_failure(evidence.failures), evidence.log
    hit = first_hit(log)
    killed = own_signal(log)
    found = (
        _of_kernel(evidence, failure, hit)
        or (_of_failure(failure, log) if failure is not None and not cause_of_failure(failure)[2] else None)
        or (_of_hit(hit, log) if hit is not None and not hit.consequence else None)
        or (_of_signal(killed, evidence) if killed is not None and killed[0] not in OF_THE_LAUNCHER else None)
        or (_of_failure(failure, log) if failure is not None else None)
        or (_of_hit(hit, log) if hit is not None else None)
        or of_metrics(log)
        or (_of_signal(killed, evidence) if killed is not None else None)
        or _of_disk(evidence)
        or _of_exit_status(evidence)
    )
    if found.cause is None:
        return found
    # What does not fit between machines is no setting: the sentence says what it is, and all of them start again.
    between_nodes = any(failure.type == "NodeProblem" for failure in evidence.failures)
    cause: Cause = "node_lost" if between_nodes and found.cause == "config_mismatch" else found.cause
    place = Place(evidence.run, evidence.settings, found.during)
    return replace(found, remedies=remedies_for(cause, place, found.message))


def _of_kernel(evidence: Evidence, failure: Failure | None, hit: Hit | None) -> Diagnosis | None:
    """The kernel killed for memory: that is the cause, unless a process had failed of itself before."""
    killed = own_signal(evidence.log)
    if not evidence.oom_kills:
        return None
    first = cause_of_failure(failure) if failure is not None else None
    if first is not None and not first[2] and first[0] not in ("dataloader_worker_killed", "host_oom"):
        return None
    outside = ("dataloader_worker_killed", "host_oom", "python_error")
    if first is None and hit is not None and not hit.consequence and hit.cause not in outside:
        return None
    said = tr("the kernel killed {n} process(es) because memory ran out", n=evidence.oom_kills)
    step = (failure.step if failure is not None else None) or evidence.log.step
    line = () if killed is None else (evidence.log.proof(killed[1]),)
    return Diagnosis("host_oom", "high", of_cause("host_oom"), (Proof(None, said, KERNEL), *line), step=step)


def _of_failure(failure: Failure, log: LogFacts) -> Diagnosis:
    cause, confidence, _, said = cause_of_failure(failure)
    proof = Proof(None, clean(f"rank {failure.rank}: {failure.type}: {said}"), f"failure-rank{failure.rank}.json")
    if cause == "python_error":
        message = of_error(f"{failure.type}: {said}" if said else failure.type, failure.step)
    elif failure.is_own:
        # Our own errors are whole sentences that already name the place and the remedy.
        message = clean(failure.message)
    else:
        message = of_cause(cause, said, failure.step)
    during = PLACES.get(failure.phase or "") or next(
        (place for line in failure.traceback.splitlines() if (place := place_of_frame(line))), None
    )
    # Where the log says the same.
    lines = [log.proof(hit.line) for hit in log.hits if said and said[:80] in hit.line.text]
    return Diagnosis(cause, confidence, message, (proof, *lines[:1]), (), failure.step, failure.rank, None, during)


def _of_hit(hit: Hit, log: LogFacts) -> Diagnosis:
    others = [other.line for other in log.hits if other.cause == hit.cause and other.line != hit.line]
    proofs = tuple(log.proof(line) for line in (hit.line, *others[:2]))
    if log.root_line is not None:
        proofs = (*proofs, log.proof(log.root_line))
    message = of_error(hit.line.text) if hit.cause == "python_error" else of_cause(hit.cause, hit.line.text)
    others_failed = any(other.cause != hit.cause for other in log.hits)
    is_weaker = hit.consequence and hit.confidence == "high" and others_failed
    confidence: Confidence = "medium" if is_weaker else hit.confidence
    # Lines without a prefix are those of the process that torchrun saw fail first, where no other is known.
    rank = log.root_rank if hit.line.rank is None and not hit.consequence else hit.line.rank
    killed = own_signal(log)
    name = killed[0] if killed is not None else None
    return Diagnosis(hit.cause, confidence, message, proofs, (), log.step, rank, name, hit.during)


def _of_signal(killed: tuple[str, Line], evidence: Evidence) -> Diagnosis:
    name, line = killed
    cause: Cause = "unknown"
    confidence: Confidence = "medium"
    message = of_signal(name, kernel_told=evidence.oom_kills is not None)
    if name in ("SIGINT", "SIGBUS"):
        cause = "user_stop" if name == "SIGINT" else "shared_memory"
        message = of_cause(cause, line.text)
    elif name == "SIGKILL" and evidence.run is None and evidence.oom_kills is None:
        # Nobody can be asked any more; who kills a training without a word is nearly always the kernel.
        cause, confidence, message = "host_oom", "low", of_signal(name)
    rank = evidence.log.root_rank if line.rank is None else line.rank
    return Diagnosis(cause, confidence, message, (evidence.log.proof(line),), (), evidence.log.step, rank, name)


def of_metrics(log: LogFacts) -> Diagnosis | None:
    """The last loss is NaN or infinite."""
    if log.not_finite is None:
        return None
    message, proof = of_cause("nan_loss", "", log.step), log.proof(log.not_finite)
    return Diagnosis("nan_loss", "high", message, (proof,), (), log.step)


def _of_disk(evidence: Evidence) -> Diagnosis | None:
    free = evidence.disk_free_bytes
    if free is None or free >= DISK_IS_FULL_BELOW_BYTES or evidence.log.finished is not None:
        return None
    proof = Proof(None, tr("{count} bytes free", count=f"{free:,}"), "disk")
    return Diagnosis("disk_full", "medium", of_cause("disk_full"), (proof,), (), evidence.log.step)


def _of_exit_status(evidence: Evidence) -> Diagnosis:
    log, code = evidence.log, evidence.exit_code
    last = tuple(log.proof(line) for line in log.tail)
    if log.finished is not None and code in (None, 0):
        return Diagnosis(None, "high", tr("The training finished."), (log.proof(log.finished),), (), log.step)
    name = signal_name(-code) if code is not None and code < 0 else None
    if name is not None:
        return Diagnosis("unknown", "medium", of_signal(name, launcher=True), last, (), log.step, None, name)
    if code is None:
        return Diagnosis("unknown", "low", _no_reason(log), last, (), log.step)
    message = tr("The training ended with exit code {code} and reported no reason.", code=code)
    if code == 0:
        message = tr("The training ended without reporting that it finished.")
    return Diagnosis("unknown", "low", message, last, (), log.step)


def _no_reason(log: LogFacts) -> str:
    if log.lines == 0 and not log.tail:
        return tr("No log was found, and nothing else shows why it ended.")
    if log.step is not None:
        return tr(
            "The log ends after step {step}; it shows neither that the training finished nor why it ended.",
            step=f"{log.step:,}",
        )
    return tr("The log shows neither that a training finished nor why it ended.")
