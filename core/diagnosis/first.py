"""Which of several failures came first: under several ranks the others only lost their partner."""

from __future__ import annotations

from collections.abc import Iterable

from trainwiz.core.diagnosis.evidence import Failure
from trainwiz.core.diagnosis.facts import Hit, Line, LogFacts
from trainwiz.core.diagnosis.of_failure import cause_of_failure

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
