"""A plan gets better as traces arrive, and stays what it is where they do not."""

from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.estimate.peak import BLAS_HANDLES, BLAS_WORKSPACE_BYTES
from trainwiz.core.plan.gather import Gathered
from trainwiz.core.plan.refine import MOST_ROUNDS, Refiner, RefineTier
from trainwiz.core.plan.result import Plan
from trainwiz.core.tracing.request import TraceAnswer, TraceProblem, TraceRequest

from tests.core.plan.machines import GIB, Answering, ScriptedTracer, codes, config, finding, machine, traced
from tests.each import each

WORKSPACES = BLAS_HANDLES * BLAS_WORKSPACE_BYTES
"""A part of what torch counts as allocated that no trace sees."""


def gathered(request: RunConfig, gpu: str = "RTX 3090") -> Gathered:
    return Gathered(None, request, machine(gpu), load_models()[request.model.name], None)


def by_formula(request: TraceRequest) -> TraceAnswer:
    """Half a GiB for each sequence at once."""
    return traced(1.0 + 0.5 * request.micro_batch)


def improved(answering: Answering, request: RunConfig, tier: RefineTier = "full", **more: Any) -> tuple[Plan, Any]:
    """The plan that a tracer with these answers makes of it, and the tracer."""
    tracer = ScriptedTracer(answering)
    return Refiner(tracer).improve(gathered(request), lambda _: None, tier, **more), tracer


def test_each_better_tier_is_shown_and_kept() -> None:
    tracer, seen, request = ScriptedTracer(by_formula), list[Plan](), config("esm2-150m", batch__micro_batch_size=8)
    refiner, what = Refiner(tracer), gathered(request)
    before = refiner.plan(what)
    plan = refiner.improve(what, seen.append)
    assert [one.memory.waiting for one in seen[:1]] == ["tracing the whole model…"]
    assert before.memory.tier == "analytic"
    formulas, quick = improved(by_formula, request, "analytic")
    assert formulas.memory == before.memory and not quick.asked
    assert improved(by_formula, request, "layers")[0].memory == plan.memory, "an older word for it"
    assert plan.memory.tier == "traced" and "full trace" in plan.memory.basis and not plan.memory.waiting
    assert plan.memory.allocated_bytes == pytest.approx(5 * GIB + WORKSPACES, rel=1e-6)
    assert [one.memory.tier for one in seen].index("traced") > 0
    # Known from now on, without asking again.
    count = len(tracer.asked)
    assert refiner.plan(what).memory == plan.memory
    assert refiner.improve(what, seen.append).memory == plan.memory and len(tracer.asked) == count


def test_the_micro_batch_moves_where_a_trace_says_no() -> None:
    """The formulas let more fit than the tracer says: 3 GiB a sequence leave room for seven."""

    request = config("esm2-150m", batch__target_samples=64, engine__checkpointing=False)
    plan, tracer = improved(lambda asked: traced(1.0 + 3.0 * asked.micro_batch), request)
    assert plan.batch.micro_batch <= 7 < Refiner().plan(gathered(request)).batch.micro_batch
    assert plan.memory.verdict == "fits" and plan.batch.effective_samples == 64
    assert "full trace" in plan.memory.basis
    assert len(tracer.asked) <= MOST_ROUNDS + 8


@each(("code", "asked"), [("unsupported", 1), ("invalid_config", 1), ("worker_died", 2)])
def test_a_problem_is_said_and_remembered_unless_it_may_pass(code: Any, asked: int) -> None:
    """And a model that cannot be built is a finding: an error where it would be trained."""
    tracer, seen = ScriptedTracer(lambda request: TraceProblem(code, "Not so.")), list[Plan]()
    refiner, what = Refiner(tracer), gathered(config("esm2-8m", batch__micro_batch_size=8))
    plan = refiner.improve(what, seen.append)
    assert plan.memory.tier == "analytic" and plan.memory.waiting == "Not so." == refiner.plan(what).memory.waiting
    assert seen[-1] == plan and refiner.improve(what, seen.append) == plan
    assert len(tracer.asked) == asked
    here = refiner.plan(replace(what, machine=replace(what.machine, hypothetical=False)))
    severities = [one.severity for made in (plan, here) for one in made.findings if one.code == "model_not_built"]
    assert severities == (["warning", "error"] if code == "invalid_config" else [])
    tracer = ScriptedTracer(by_formula)
    refiner._worker = tracer  # type: ignore[assignment]
    better = refiner.improve(what, seen.append).memory
    assert (better.tier == "traced" and not better.waiting) is (code == "worker_died")


def test_a_remedy_that_cannot_be_traced_is_not_spoken_of() -> None:
    request = config("esm2-150m", batch__micro_batch_size=8)
    work = Refiner().plan(gathered(request)).work
    assert work is not None
    own = TraceRequest.of(work)

    def some(asked: TraceRequest) -> TraceAnswer:
        return by_formula(asked) if asked == own else TraceProblem("invalid_config", "It cannot be built.")

    plan, tracer = improved(some, request)
    assert [asked == own for asked in tracer.asked] == [True, False] and plan.memory.tier == "traced"
    assert not plan.memory.waiting and "model_not_built" not in codes(plan)


def test_a_worker_that_hangs_is_left_when_the_user_leaves_or_the_time_is_over() -> None:
    tracer = ScriptedTracer(lambda request: None)
    refiner, what = Refiner(tracer), gathered(config("esm2-8m"))
    plan = refiner.improve(what, lambda _: None, is_cancelled=lambda: bool(tracer.asked))
    assert plan.memory.tier == "analytic" and tracer.cancelled == [0]
    plan = refiner.improve(what, lambda _: None, limit_s=0.1)
    assert plan.memory.tier == "analytic" and "not ready in time" in plan.memory.waiting


def test_the_numbers_of_remedies_are_traced_and_kept_when_applied() -> None:
    def sizes(request: TraceRequest) -> TraceAnswer:
        gib = 2.0 + (0.6 if request.checkpointing else 2.2) * request.micro_batch
        return traced(gib)

    request = config("esm2-650m", batch__target_samples=128, batch__micro_batch_size=16, engine__checkpointing=False)
    refiner = Refiner(ScriptedTracer(sizes))
    plan = refiner.improve(gathered(request), lambda _: None)
    found = finding(plan, "does_not_fit")
    applied = {
        one.text: refiner.plan(gathered(request.with_values(dict(one.changes), "you"))) for one in found.remedies
    }
    assert any(one.memory.tier == "traced" for one in applied.values())
    for text, after in applied.items():
        assert f"{after.memory.judged_bytes / GIB:.1f} GiB" in text
        assert after.memory.verdict in ("fits", "tight") and after.batch.effective_samples == 128
    by_checkpointing = next(one for text, one in applied.items() if text.startswith("gradient checkpointing"))
    assert by_checkpointing.memory.allocated_bytes == pytest.approx((2.0 + 0.6 * 16) * GIB + WORKSPACES, rel=1e-6)


def test_an_evaluation_that_a_trace_finds_too_large_is_cut() -> None:
    def sizes(request: TraceRequest) -> TraceAnswer:
        return traced(2.0, evaluation_gib=1.5 * request.eval_micro_batch)

    plan, _ = improved(sizes, config("esm2-8m", batch__micro_batch_size=32))
    assert plan.config.batch.eval_micro_batch_size == 8
    assert not codes(plan) & {"evaluation_does_not_fit", "evaluation_tight"}
