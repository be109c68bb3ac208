"""What the plan says that an order of rows computes, against operations counted row by row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.flops import micro_batch_flops
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.plan.rows import Arrangement, _factors, _mean_cost, moments_of

from tests.core.plan.machines import config, machine, plan
from tests.each import each

MICRO, ACCUMULATION, LIMIT = 20, 16, 512
LENGTHS = np.maximum(5, np.random.default_rng(4).lognormal(5.5, 0.8, 9000)).astype(int)
TARGETS = np.maximum(3, LENGTHS * np.random.default_rng(6).lognormal(0, 0.3, len(LENGTHS))).astype(int)
PROTEINS = DataSummary(rows=len(LENGTHS), rows_exact=True, lengths=tuple(LENGTHS.tolist()))
PAIRS = replace(PROTEINS, target_lengths=tuple(TARGETS.tolist()))


def work_of(model: str, attention: str = "sdpa") -> Workload:
    sizes = {"batch__micro_batch_size": MICRO, "batch__gradient_accumulation_steps": ACCUMULATION}
    asked = config(model, batch__sequence_length=LIMIT, engine__attention=attention, **sizes)
    made = plan(machine("RTX 3090"), asked, None).work
    assert made is not None
    return replace(made, target_length=LIMIT)


def counted(work: Workload, data: DataSummary, arrangement: Arrangement) -> float:
    """FLOPs of a micro-batch on average, each counted at its own lengths, over steps of rows in a random order."""
    sides = [np.minimum(np.array(side), LIMIT) for side in (data.lengths, data.target_lengths or data.lengths)]
    micro, rows = work.micro_batch, work.micro_batch * work.accumulation
    steps = np.random.default_rng(9).permutation(len(sides[0]))[: len(sides[0]) // rows * rows].reshape(-1, rows)
    if arrangement == "arranged":
        keys = np.maximum(*(np.array(one) for one in (data.lengths, data.target_lengths or data.lengths)))
        steps = np.take_along_axis(steps, np.argsort(-np.minimum(keys, LIMIT)[steps], axis=1, kind="stable"), axis=1)
    each = 1 if arrangement == "packed" else micro
    longest = [side[steps.reshape(-1, each)].max(axis=1) for side in sides]
    one = work.with_micro_batch(each)
    flops = [
        micro_batch_flops(replace(one, length=int(a), target_length=int(b))) for a, b in zip(*longest, strict=True)
    ]
    return float(np.mean(flops)) * micro / each


@each("arrangement", ["drawn", "arranged", "packed"])
@each(
    ("model", "data", "attention"),
    [("esm2-8m", PROTEINS, "sdpa"), ("esm2-650m", PROTEINS, "eager"), ("t5-chat-tiny", PAIRS, "sdpa")],
)
def test_the_mean_cost_is_that_of_the_micro_batches(
    model: str, data: DataSummary, attention: str, arrangement: Arrangement
) -> None:
    work = work_of(model, attention)
    moments = moments_of(work, data, arrangement)
    assert moments is not None
    assert _mean_cost(_factors(work), moments).flops == pytest.approx(counted(work, data, arrangement), rel=0.01)


@pytest.mark.parametrize("data", [PROTEINS, PAIRS])
def test_of_a_small_step_the_squares_are_those_of_single_steps(data: DataSummary) -> None:
    """Lengths of one place in the order vary from step to step; a micro-batch of one row is never padded."""
    work = replace(work_of("t5-chat-tiny"), micro_batch=2, accumulation=2)
    arranged, drawn = (moments_of(work, data, one) for one in ("arranged", "drawn"))
    assert arranged is not None and drawn is not None
    assert _mean_cost(_factors(work), arranged).flops == pytest.approx(counted(work, data, "arranged"), rel=0.015)
    assert arranged.source_squared > 1.1 * arranged.source**2
    alone = replace(work, micro_batch=1, accumulation=8)
    assert moments_of(alone, data, "arranged") == moments_of(alone, data, "drawn")


def test_a_plan_says_what_its_order_saves_and_what_could_be_saved() -> None:
    sizes = {"batch__micro_batch_size": MICRO, "batch__gradient_accumulation_steps": ACCUMULATION}
    asked = config("esm2-650m", batch__sequence_length=LIMIT, data__pad_to_multiple_of=1, **sizes)
    made = plan(machine("RTX 3090"), asked, PROTEINS)
    drawn = plan(machine("RTX 3090"), asked.with_values({"data.arrange_by_length": False}, "you"), PROTEINS)
    work = made.work
    assert work is not None and made.time.pace_gain is not None and drawn.time.step_s is not None
    flops = {one: counted(work, PROTEINS, one) for one in ("drawn", "arranged", "packed")}
    assert made.batch.operations_gain == pytest.approx(flops["drawn"] / flops["arranged"], rel=0.01)
    assert made.batch.possible_operations_gain == pytest.approx(flops["drawn"] / flops["packed"], rel=0.01)
    assert 1.2 < made.batch.operations_gain < made.batch.possible_operations_gain
    assert made.time.pace_gain == pytest.approx(drawn.time.step_s / (made.time.step_s or 0), rel=1e-6)
    assert drawn.time.pace_gain == drawn.batch.operations_gain == 1
    # The first micro-batch of a step has the longest rows: arranging saves time, and no memory.
    assert made.memory.high_bytes == drawn.memory.high_bytes
