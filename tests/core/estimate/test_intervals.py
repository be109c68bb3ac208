"""What each tier says of its own uncertainty, by hand; verdicts, and the largest micro-batch."""

from dataclasses import replace

import pytest
from trainwiz.core.estimate.evidence import Evidence
from trainwiz.core.estimate.memory import FULL_TRACE_SPREAD, estimate_memory, largest_micro_batch, unknown_memory
from trainwiz.core.estimate.peak import BEYOND_ALONE, BEYOND_SHARDED, BEYOND_VARIED, CACHED, VARIED, beyond, overheads
from trainwiz.core.estimate.workload import Moment, Workload
from trainwiz.core.tracing.request import Replay, TraceRequest, TraceResult

from tests.core.estimate.test_peak import GIB, esm650
from tests.each import each

WORK = replace(esm650(precision="bf16"), task="masked-lm", model_config='{"model_type": "esm"}')
BESIDE = overheads(WORK)


def known(work: Workload, reserved: float | None = None, evaluated: int = 0) -> Evidence:
    """A trace of 10 GiB; `reserved` over that."""
    moment = Moment("the end of the forward pass", {"weights": 2 * GIB, "activations": 8 * GIB})
    evaluation = (Moment("an evaluation", {"logits": evaluated}),) if evaluated else ()
    whole, fullest = int((reserved or 0) * 10 * GIB), max(10 * GIB, evaluated)
    replay = None if reserved is None else Replay(fullest, whole, whole, whole, fullest)
    request = TraceRequest.of(work)
    assert request is not None
    return Evidence(traces={request: TraceResult((moment,), evaluation, 1, 1, replay)})


def test_a_trace_is_off_by_so_much_at_most() -> None:
    estimate, spread = estimate_memory(WORK, known(WORK)), FULL_TRACE_SPREAD
    outside = BESIDE.context + BESIDE.spread
    above = estimate.allocated_bytes * (1 + spread)
    assert estimate.high_bytes == pytest.approx(above * VARIED.likely * (1 + BEYOND_VARIED) + outside)
    assert estimate.safe_bytes == pytest.approx(above * CACHED.high + outside)
    inside = BESIDE.context - BESIDE.spread
    assert estimate.low_bytes == pytest.approx(estimate.allocated_bytes * (1 - spread) * CACHED.low + inside)


def test_a_replay_is_no_promise() -> None:
    """What nvidia-smi may show beyond it depends on what the replay cannot know; what must fit is bounded apart."""
    joined = replace(WORK, padded=False)
    for work, more in (
        (joined, BEYOND_ALONE),
        (WORK, BEYOND_VARIED),
        (replace(WORK, row_lengths=(100, 100)), BEYOND_ALONE),
        (replace(joined, strategy="fsdp", world_size=2), BEYOND_SHARDED),
        (replace(WORK, strategy="zero3", world_size=2), BEYOND_VARIED),
    ):
        assert beyond(work, replayed=True) == more
        likely = VARIED.likely if more == BEYOND_VARIED else 1.0
        beside, estimate = overheads(work), estimate_memory(work, known(work, reserved=1.0))
        above, outside = estimate.allocated_bytes * (1 + FULL_TRACE_SPREAD), beside.context + beside.spread
        assert estimate.high_bytes == pytest.approx(above * likely * (1 + more) + outside)
        assert estimate.safe_bytes == pytest.approx(above * min(likely * (1 + more), CACHED.high) + outside)


@pytest.mark.parametrize(("reserved", "evaluated", "factor"), [(0.9, 0, 1.0), (2.4, 20 * GIB, 1.2)])
def test_reserved_memory_is_that_of_the_fullest_moment_and_never_less(
    reserved: float, evaluated: int, factor: float
) -> None:
    """The replay spans training and evaluation: 24 GiB reserved beside 20 GiB evaluating are not 2.4 times 10."""
    work = replace(WORK, eval_micro_batch=4, row_lengths=(1024, 1024))
    estimate = estimate_memory(work, known(work, reserved=reserved, evaluated=evaluated))
    assert estimate.reserved_bytes == pytest.approx(estimate.allocated_bytes * factor)


def test_orders_of_lengths_are_the_range_and_blocks_in_use_are_the_bound() -> None:
    """Lengths that were replayed are not also guessed at: the spread is that of a replay."""
    work = replace(WORK, row_lengths=tuple(range(8, 1025, 8)))
    assert beyond(work, replayed=True) == BEYOND_ALONE and beyond(work, replayed=False) == BEYOND_VARIED
    evidence = known(work, reserved=1.4)
    trace = evidence.traces[TraceRequest.of(work)]  # type: ignore[index]
    replay = Replay(10 * GIB, 11 * GIB, 14 * GIB, 18 * GIB, 12 * GIB)
    estimate = estimate_memory(work, replace(evidence, traces={TraceRequest.of(work): replace(trace, replay=replay)}))  # type: ignore[dict-item]
    beside, above = overheads(work), estimate.allocated_bytes * (1 + FULL_TRACE_SPREAD)
    outside = beside.context + beside.spread
    assert estimate.reserved_bytes == pytest.approx(1.4 * estimate.allocated_bytes)
    assert estimate.high_bytes == pytest.approx(above * 1.8 * (1 + BEYOND_ALONE) + outside)
    assert estimate.safe_bytes == pytest.approx(above * 1.2 + outside), "more is in use than nine of ten replays have"
    assert estimate.low_bytes < estimate.needed_bytes


def test_the_longest_row_of_a_micro_batch_is_longer_than_a_row() -> None:
    rows = tuple(range(16, 1056, 16))
    one, eight = (replace(WORK, micro_batch=micro, length=1024, row_lengths=rows).step_lengths for micro in (1, 8))
    assert one[0] == 16 and eight[0] == pytest.approx(1024 / 128 ** (1 / 8), rel=0.05) and one[-1] == eight[-1] == 1024
    # No step of many rows has none that is cut, so none is shorter: on an H100 reserved memory stayed within 1 % of allocated.
    assert not replace(WORK, micro_batch=8, length=900, row_lengths=rows, longest_of=960).varies
    assert one[4] == pytest.approx(512, rel=0.05) and eight[4] == pytest.approx(1024 * 0.5 ** (1 / 8), rel=0.05)
    first, alone = (
        replace(WORK, row_lengths=rows, **how) for how in ({"micro_batch": 8, "longest_of": 1}, {"micro_batch": 1})
    )
    assert first.step_lengths == alone.step_lengths
    assert not replace(WORK, padded=False, row_lengths=rows).varies and WORK.varies, "unknown is not one length"
    cut = replace(WORK, length=16, row_lengths=rows)
    assert set(cut.step_lengths) == {16} and not cut.varies


def test_a_trace_serves_rows_of_other_lengths() -> None:
    """Else a glance at other rows, or another number of cards, would throw the figures back to formulas."""
    evidence = known(WORK, reserved=1.5)
    other = replace(WORK, row_lengths=(8, 500, 1024))
    assert evidence.trace_of(other) is None and evidence.nearest_trace(other) == (other, evidence.trace_of(WORK))
    assert estimate_memory(other, evidence) != estimate_memory(other)
    assert evidence.nearest_trace(replace(other, length=256)) is None


def test_the_verdict_at_its_edges() -> None:
    estimate = estimate_memory(esm650())
    edges = estimate.needed_bytes - 1, estimate.needed_bytes, estimate.safe_bytes - 1, estimate.safe_bytes, None
    assert [estimate.verdict(size) for size in edges] == ["does_not_fit", "tight", "tight", "fits", None]
    assert unknown_memory().verdict(10**12) is None


@each("capacity_gib", [12, 24, 80])
def test_the_largest_micro_batch_is_the_last_that_fits(capacity_gib: int) -> None:
    work, capacity = esm650(accumulation=2), capacity_gib * GIB
    linear = [n for n in range(1, 65) if estimate_memory(work.with_micro_batch(n)).safe_bytes <= capacity]
    assert largest_micro_batch(work, capacity, 64) in (linear[-1:] or (0, 1))
    assert largest_micro_batch(work, 4 * GIB, 64) == 0
    assert largest_micro_batch(work, 10**13, 24) == 24
