"""What each tier says of its own uncertainty, by hand."""

from dataclasses import replace

import pytest
from trainwiz.core.estimate.memory import FULL_TRACE_SPREAD, LAYERS_SPREAD, estimate_memory
from trainwiz.core.estimate.peak import BEYOND_ALONE, BEYOND_SHARDED, BEYOND_VARIED, CACHED, overheads
from trainwiz.core.estimate.traced import Evidence
from trainwiz.core.estimate.workload import Moment, Workload
from trainwiz.core.tracing.request import TraceRequest, TraceResult, TraceTier

from tests.core.estimate.test_peak import GIB, esm650

WORK = replace(esm650(precision="bf16"), task="masked-lm", model_config='{"model_type": "esm"}')
BESIDE = overheads(WORK)


def known(work: Workload, tier: TraceTier = "full", reserved: float | None = None, evaluated: int = 0) -> Evidence:
    """A trace of 10 GiB; `reserved` over that."""
    moment = Moment("the end of the forward pass", {"weights": 2 * GIB, "activations": 8 * GIB})
    evaluation = (Moment("an evaluation", {"logits": evaluated}),) if evaluated else ()
    whole = None if reserved is None else int(reserved * 10 * GIB)
    request = TraceRequest.of(work)
    assert request is not None
    return Evidence(traces={request: TraceResult(tier, (moment,), evaluation, whole, 1, 1, 1.0, 1.0, 1, 0.1)})


@pytest.mark.parametrize(("tier", "spread"), [("full", FULL_TRACE_SPREAD), ("layers", LAYERS_SPREAD)])
def test_a_trace_is_off_by_so_much_at_most(tier: TraceTier, spread: float) -> None:
    estimate = estimate_memory(WORK, known(WORK, tier))
    outside = BESIDE.context + BESIDE.spread
    above = estimate.allocated_bytes * (1 + spread)
    assert estimate.high_bytes == pytest.approx(above * CACHED.likely * (1 + BESIDE.beyond) + outside)
    assert estimate.safe_bytes == pytest.approx(above * CACHED.high + outside)
    inside = BESIDE.context - BESIDE.spread
    assert estimate.low_bytes == pytest.approx(estimate.allocated_bytes * (1 - spread) * CACHED.low + inside)


def test_a_replay_is_no_promise() -> None:
    """What nvidia-smi may show beyond it depends on what the replay cannot know; what must fit is bounded apart."""
    joined = replace(WORK, padded=False)
    for work, beyond in (
        (joined, BEYOND_ALONE),
        (WORK, BEYOND_VARIED),
        (replace(joined, strategy="fsdp", world_size=2), BEYOND_SHARDED),
        (replace(WORK, strategy="zero3", world_size=2), BEYOND_VARIED),
    ):
        beside, estimate = overheads(work), estimate_memory(work, known(work, reserved=1.0))
        above, outside = estimate.allocated_bytes * (1 + FULL_TRACE_SPREAD), beside.context + beside.spread
        assert estimate.high_bytes == pytest.approx(above * (1 + beyond) + outside)
        assert estimate.safe_bytes == pytest.approx(above * min(1 + beyond, CACHED.high) + outside)


@pytest.mark.parametrize(("reserved", "evaluated", "factor"), [(0.9, 0, 1.0), (2.4, 20 * GIB, 1.2)])
def test_reserved_memory_is_that_of_the_fullest_moment_and_never_less(
    reserved: float, evaluated: int, factor: float
) -> None:
    """The replay spans training and evaluation: 24 GiB reserved beside 20 GiB evaluating are not 2.4 times 10."""
    work = replace(WORK, eval_micro_batch=4)
    estimate = estimate_memory(work, known(work, reserved=reserved, evaluated=evaluated))
    assert estimate.reserved_bytes == pytest.approx(estimate.allocated_bytes * factor)
