"""Which figures an estimate takes: formulas, formulas corrected by a trace, a trace, or what was measured; and the context."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.estimate.evidence import Evidence, with_measured_context
from trainwiz.core.estimate.memory import MemoryEstimate, estimate_evaluation, estimate_memory, largest_micro_batch
from trainwiz.core.estimate.peak import (
    BLAS_HANDLES,
    BLAS_WORKSPACE_BYTES,
    CONTEXT_BYTES,
    CONTEXT_SPREAD_BYTES,
    HOPPER_WORKSPACE_BYTES,
    KNOWN_CONTEXT_SPREAD_BYTES,
    evaluation_peak,
    peak_of,
)
from trainwiz.core.estimate.workload import Moment, Workload
from trainwiz.core.history.measurement import Measurement
from trainwiz.core.tracing.request import Replay, TraceRequest, TraceResult

from tests.core.estimate.test_peak import DOCUMENT, GIB, esm650
from tests.core.history.measurements import measurement_of
from tests.core.plan.machines import config, machine, plan
from tests.each import each

WORK = replace(
    esm650(precision="bf16"),
    task="masked-lm",
    model_config=json.dumps(DOCUMENT["models"]["esm650"]["config"], sort_keys=True),
    eval_micro_batch=4,
)
WORKSPACES = BLAS_HANDLES * BLAS_WORKSPACE_BYTES


def trace(work: Workload, more: float = 1.0, reserved: float = 1.1) -> TraceResult:
    """As the formulas see it, with activations, logits and temporaries `more` times as large."""

    def moments(found: Iterable[Moment]) -> tuple[Moment, ...]:
        changed = ("activations", "logits", "temporary")
        return tuple(
            Moment(one.name, {kind: int(size * (more if kind in changed else 1)) for kind, size in one.parts.items()})
            for one in found
        )

    evaluating = evaluation_peak(work)
    training = moments(peak_of(work).moments)
    evaluation = moments(evaluating.moments if evaluating else ())
    fullest = max(one.bytes for one in (*training, *evaluation))
    held = int(reserved * max(one.bytes for one in training))
    replay = Replay(fullest, held, held, held, fullest)
    return TraceResult(training, evaluation, 1, 1, replay)


def with_trace(work: Workload, found: TraceResult) -> Evidence:
    request = TraceRequest.of(work)
    assert request is not None
    return Evidence(traces={request: found})


def knowing(work: Workload, more: float = 1.0) -> Evidence:
    return with_trace(work, trace(work, more))


def width(estimate: MemoryEstimate) -> float:
    return (estimate.high_bytes - estimate.low_bytes) / estimate.device_used_bytes


def test_each_tier_is_narrower_than_the_one_before() -> None:
    formulas = estimate_memory(WORK)
    full = estimate_memory(WORK, knowing(WORK))
    measured = estimate_memory(WORK, Evidence(measurements=(measurement(),)))
    assert [one.tier for one in (formulas, full, measured)] == ["analytic", "traced", "measured"]
    assert width(measured) < width(full) < width(formulas)
    assert full.basis == "full trace"


def test_a_trace_gives_its_own_figures() -> None:
    one_length = replace(WORK, row_lengths=(WORK.length, WORK.length))
    estimate = estimate_memory(one_length, knowing(one_length, more=1.3))
    traced = trace(one_length, 1.3)
    assert estimate.allocated_bytes == traced.allocated_bytes + WORKSPACES
    assert estimate.reserved_bytes == pytest.approx(1.1 * estimate.allocated_bytes, rel=1e-3)
    assert estimate.low_bytes < estimate.device_used_bytes < estimate.high_bytes
    assert sum(estimate.breakdown.values()) == estimate.needed_bytes


def test_a_trace_of_another_model_or_length_says_nothing() -> None:
    for other in (replace(WORK, length=256), replace(WORK, checkpointing=True), replace(WORK, model_config="{}")):
        assert estimate_memory(WORK, knowing(other, more=2.0)) == estimate_memory(WORK)


def test_a_trace_at_another_batch_puts_the_formulas_right() -> None:
    larger = WORK.with_micro_batch(8)
    corrected = estimate_memory(larger, knowing(WORK, more=1.25))
    truth = trace(larger, 1.25).allocated_bytes + WORKSPACES
    assert corrected.tier == "analytic" and "micro-batch 4" in corrected.basis
    assert corrected.allocated_bytes == pytest.approx(truth, rel=0.01)
    assert abs(estimate_memory(larger).allocated_bytes / truth - 1) > 0.1
    evaluated = estimate_evaluation(larger, knowing(WORK, more=1.25))
    assert evaluated is not None and "corrected" in evaluated.basis


def test_the_largest_micro_batch_follows_the_evidence() -> None:
    capacity = 24 * GIB
    plain = largest_micro_batch(WORK, capacity, 64)
    hungry = largest_micro_batch(WORK, capacity, 64, knowing(WORK, more=1.5))
    modest = largest_micro_batch(WORK, capacity, 64, knowing(WORK, more=0.6))
    assert hungry < plain < modest


def measurement(**changes: Any) -> Measurement:
    sizes = {"peak_allocated_bytes": 14 * GIB, "peak_reserved_bytes": 15 * GIB, "device_used_bytes": int(15.4 * GIB)}
    return replace(measurement_of(WORK, machine="cuda:NVIDIA RTX 3090:24576", **sizes), **changes)


def test_libraries_take_workspaces_by_the_card() -> None:
    other, hopper = (estimate_memory(replace(WORK, capability=name)).allocated_bytes for name in ("8.0", "9.0"))
    assert hopper - other == BLAS_HANDLES * (HOPPER_WORKSPACE_BYTES - BLAS_WORKSPACE_BYTES)


def test_what_was_measured_is_shown() -> None:
    several = (measurement(), measurement(peak_allocated_bytes=13 * GIB, source="run"))
    estimate = estimate_memory(WORK, Evidence(measurements=several))
    assert (estimate.allocated_bytes, estimate.reserved_bytes) == (14 * GIB, 15 * GIB), "the fullest of several"
    assert estimate.device_used_bytes == int(15.4 * GIB)
    assert estimate.basis == "measured on this machine, 2026-11-21 (probe)"
    assert sum(estimate.breakdown.values()) == estimate.needed_bytes and min(estimate.breakdown.values()) >= 0
    assert [estimate.verdict(int(size * GIB)) for size in (16.5, 14)] == ["fits", "does_not_fit"]


@each("changes", [{"micro_batch": 2}, {"precision": "fp16"}, {"peak_allocated_bytes": None}, {"length": 256}])
def test_other_measurements_say_nothing(changes: dict) -> None:
    """Nothing but what the card's context takes (below), which is the same for all work."""
    evidence = Evidence(measurements=(measurement(**changes, device_used_bytes=None),))
    assert estimate_memory(WORK, evidence) == estimate_memory(WORK)


def test_a_run_that_may_not_have_met_its_longest_batch_only_raises_the_figure() -> None:
    expected = estimate_memory(WORK).allocated_bytes
    for peak, tier in ((expected // 2, "analytic"), (expected + GIB, "measured")):
        short = measurement(source="run", peak_allocated_bytes=peak, usual_length=WORK.length // 3)
        assert estimate_memory(WORK, Evidence(measurements=(short,))).tier == tier
        for whole in (replace(short, usual_length=WORK.length), replace(short, source="probe")):
            assert estimate_memory(WORK, Evidence(measurements=(whole,))).allocated_bytes == peak


@each(("strategy", "held_in"), [("ddp", "bf16"), ("zero2", "bf16-true"), ("zero3", "bf16-true")])
def test_a_trace_is_shared_out_like_the_formulas(strategy: str, held_in: str) -> None:
    """A trace that says what the formulas say gives what they give, once its states are shared out."""
    work = replace(WORK, strategy=strategy, world_size=4, accumulation=2)
    traced = trace(replace(work, strategy="single", world_size=1, precision=held_in))
    formulas, shared = estimate_memory(work), estimate_memory(work, with_trace(work, traced))
    assert shared.allocated_bytes == pytest.approx(formulas.allocated_bytes, rel=0.1)


def test_fsdp_gathers_weights_in_the_format_that_autocast_would_cast_them_to() -> None:
    work = replace(WORK, strategy="fsdp", world_size=8)
    moment = Moment("the forward pass", {"weights": 4 * GIB, "activations": GIB, "temporary": 2 * GIB})
    full = replace(trace(replace(work, strategy="single", world_size=1)), training=(moment,))
    peak = estimate_memory(work, with_trace(work, full)).peak
    assert peak is not None and peak.moment.parts["temporary"] < GIB == peak.moment.parts["activations"]


def test_a_card_never_shows_more_than_it_has() -> None:
    estimate = estimate_memory(WORK, with_trace(WORK, trace(WORK, reserved=3.0)))
    roomy = estimate.safe_bytes + GIB
    assert estimate.device_used_bytes > roomy
    shown = estimate.on_card(roomy)
    assert shown.verdict(roomy) == estimate.verdict(roomy) == "fits"
    assert shown.low_bytes <= shown.device_used_bytes == shown.high_bytes == roomy
    assert shown.allocated_bytes <= shown.reserved_bytes < roomy
    narrow = estimate.needed_bytes - GIB
    beyond = estimate.on_card(narrow)
    assert beyond.verdict(narrow) == "does_not_fit"
    assert (beyond.device_used_bytes, beyond.high_bytes) == (estimate.needed_bytes, estimate.safe_bytes)
    assert estimate.on_card(None) == estimate.on_card(estimate.high_bytes) == estimate


def test_of_a_cpu_process_its_resident_memory_is_taken() -> None:
    work = replace(WORK, device="cpu", precision="fp32")
    usual = estimate_memory(work)
    resident = usual.device_used_bytes - usual.breakdown["context"] // 4
    sizes = {"host_rss_bytes": resident, "peak_allocated_bytes": None, "device_used_bytes": None}
    measured = estimate_memory(work, Evidence(measurements=(measurement(machine="cpu:8", precision="fp32", **sizes),)))
    assert (measured.tier, measured.device_used_bytes) == ("measured", resident)


MIB = 2**20
STATED = replace(WORK, context_bytes=1343 * MIB, context_source="as stated")


def on_card(used: int | None, reserved: int | None = 4 * GIB, **changes: Any) -> Measurement:
    """Of other work on the same card."""
    found = measurement_of(replace(WORK, micro_batch=1), device_used_bytes=used, peak_reserved_bytes=reserved)
    return replace(found, **changes)


def test_a_stated_context_moves_what_nvidia_smi_shows_and_narrows_the_interval() -> None:
    usual, stated = estimate_memory(WORK), estimate_memory(STATED)
    more, surer = 1343 * MIB - CONTEXT_BYTES, CONTEXT_SPREAD_BYTES - KNOWN_CONTEXT_SPREAD_BYTES
    assert surer > 0 and stated.allocated_bytes == usual.allocated_bytes
    assert estimate_memory(replace(STATED, device="cpu")) == estimate_memory(replace(WORK, device="cpu"))
    moved = {"device_used_bytes": more, "low_bytes": more + surer, "high_bytes": more - surer, "needed_bytes": more}
    assert {name: getattr(stated, name) - getattr(usual, name) for name in moved} == moved
    assert (stated.breakdown["context"], stated.basis) == (1343 * MIB, "formulas; CUDA context as stated")


def test_what_another_run_measured_on_the_card_is_taken() -> None:
    newest, older = on_card(4 * GIB + 700 * MIB), on_card(5 * GIB)
    estimate = estimate_memory(WORK, Evidence(measurements=(newest, older)))
    assert estimate.breakdown["context"] == 700 * MIB
    assert estimate.basis == "formulas; CUDA context measured on this machine, 2026-11-21"


def test_figures_that_tell_no_context_are_passed_over() -> None:
    assert with_measured_context(STATED, (on_card(5 * GIB),)) is STATED, "what is stated goes before"
    useless = on_card(None), on_card(4 * GIB, None), on_card(3 * GIB), on_card(40 * GIB), on_card(5 * GIB, world_size=2)
    for one in useless:
        assert with_measured_context(WORK, (one,)) is WORK, one
        assert with_measured_context(WORK, (one, on_card(4 * GIB + 600 * MIB))).context_bytes == 600 * MIB


def test_a_plan_follows_the_setting() -> None:
    asked = config("esm2-650m", batch__micro_batch_size=2, training__max_steps=10, planning__context_bytes="1343M")
    made = plan(machine("RTX 3090"), asked)
    assert made.memory.breakdown["context"] == 1343 * MIB and made.memory.basis.endswith("context as stated")
    choice = next(one for one in made.choices if one.key == "planning.context_bytes")
    assert (choice.value, choice.origin) == (1343 * MIB, "you")
