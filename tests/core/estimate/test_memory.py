"""Interval, verdict and the largest micro-batch."""

import time

from trainwiz.core.estimate.memory import estimate_memory, largest_micro_batch, unknown_memory

from tests.core.estimate.test_peak import GIB, esm650
from tests.each import each


def test_the_verdict_at_its_edges() -> None:
    estimate = estimate_memory(esm650())
    assert estimate.verdict(estimate.needed_bytes - 1) == "does_not_fit"
    assert estimate.verdict(estimate.needed_bytes) == "tight"
    assert estimate.verdict(estimate.safe_bytes - 1) == "tight"
    assert estimate.verdict(estimate.safe_bytes) == "fits"
    assert estimate.verdict(None) is None
    assert unknown_memory().verdict(10**12) is None


@each("capacity_gib", [12, 24, 80])
def test_the_largest_micro_batch_is_the_last_that_fits(capacity_gib: int) -> None:
    work, capacity = esm650(accumulation=2), capacity_gib * GIB
    linear = [n for n in range(1, 65) if estimate_memory(work.with_micro_batch(n)).safe_bytes <= capacity]
    assert largest_micro_batch(work, capacity, 64) in (linear[-1:] or (0, 1))
    assert largest_micro_batch(work, 4 * GIB, 64) == 0
    assert largest_micro_batch(work, 10**13, 24) == 24


def test_quick_enough_for_every_keystroke() -> None:
    work = esm650()
    best = min(_seconds(work) for _ in range(5))
    assert best < 0.005


def _seconds(work: object) -> float:
    start = time.thread_time()
    estimate_memory(work)  # type: ignore[arg-type]
    return time.thread_time() - start
