"""Rows in the plan: their order, padding, packing and rounding, and the tokens, operations and time that these cost."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from trainwiz.core.batch import MOST_ACCUMULATION
from trainwiz.core.data.lengths import LengthOrder, StepShape, pool_steps
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.flops import micro_batch_flops
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.rows import Arrangement, _factors, _mean_cost, moments_of

from tests.core.plan.machines import config, finding, machine, plan
from tests.each import each

LIMIT = 512
SAMPLE = np.maximum(5, np.random.default_rng(4).lognormal(5.0, 0.8, 8000)).astype(int)
TARGETS = np.maximum(3, SAMPLE * np.random.default_rng(6).lognormal(0, 0.3, len(SAMPLE))).astype(int)
DATA = DataSummary(rows=100_000, rows_exact=True, lengths=tuple(SAMPLE.tolist()))
PAIRS = replace(DATA, target_lengths=tuple(TARGETS.tolist()))


def planned(model: str = "esm2-150m", data: DataSummary | None = DATA, **changes: Any) -> Plan:
    sizes = {"batch__micro_batch_size": 16, "batch__gradient_accumulation_steps": 4, "batch__sequence_length": LIMIT}
    return plan(machine(), config(model, **{**sizes, "data__pad_to_multiple_of": 1, **changes}), data)


def work_of(made: Plan, **changes: Any) -> Workload:
    assert made.work is not None
    return replace(made.work, **changes)


def longest_of(data: DataSummary, micro: int, step_rows: int, arrangement: Arrangement) -> list[np.ndarray]:
    """Of each side the longest row of every micro-batch, by the order of a training over rows drawn from the data."""
    picked = np.random.default_rng(5).integers(0, len(data.lengths), 50_000 // step_rows * step_rows)
    sides = [np.minimum(np.array(side)[picked], LIMIT) for side in (data.lengths, data.target_lengths) if side]
    order = np.random.default_rng(1).permutation(len(picked))
    if arrangement in ("arranged", "grouped"):
        pool = pool_steps(step_rows, len(picked)) if arrangement == "grouped" else 1
        step = LengthOrder(np.maximum.reduce(sides), StepShape(step_rows, micro, 1), pool=pool)
        order = np.concatenate(list(step.arranged([order], 1, 0)))
    each = 1 if arrangement == "packed" else micro
    return [side[order[: len(order) // each * each]].reshape(-1, each).max(axis=1) for side in sides]


@each(("micro", "accumulation", "grouped", "multiple"), [
    (16, 4, False, 1), (8, 40, False, 1), (16, 4, True, 1), (8, 40, True, 1), (16, 4, False, 64), (16, 4, True, 8),
])  # fmt: skip
def test_the_padding_is_that_of_the_order(micro: int, accumulation: int, grouped: bool, multiple: int) -> None:
    sizes = {"batch__micro_batch_size": micro, "batch__gradient_accumulation_steps": accumulation}
    batch = planned(**sizes, data__group_by_length=grouped, data__pad_to_multiple_of=multiple).batch
    (longest,) = longest_of(DATA, micro, micro * accumulation, "grouped" if grouped else "arranged")
    expected = np.minimum(-(-longest // multiple) * multiple, LIMIT).mean() * micro * accumulation
    assert batch.padded_tokens == pytest.approx(expected, rel=0.03)
    assert batch.padding_waste == pytest.approx(1 - (batch.real_tokens or 0) / expected, abs=0.03)


@each(("changes", "expected", "why"), [
    ({}, True, "padding 60% -> 24%"),
    ({"batch__gradient_accumulation_steps": 1}, False, "one micro-batch"),
    ({"batch__micro_batch_size": 1}, False, "one row"),
    ({"training__loss_mean": "micro_batches"}, False, "share the weight"),
])  # fmt: skip
def test_it_is_on_where_a_step_is_several_micro_batches(changes: dict[str, Any], expected: bool, why: str) -> None:
    made = planned(**changes)
    choice = next(one for one in made.choices if one.key == "data.arrange_by_length")
    assert choice.value is expected and why in choice.reason, choice
    assert (made.batch.padded_tokens == made.batch.drawn_tokens) is not expected


def test_processes_wait_for_the_longest_micro_batch_where_each_step_has_one() -> None:
    four = work_of(planned(), micro_batch=16, accumulation=1, world_size=4, strategy="ddp", length=LIMIT)

    def longest(arrangement: Arrangement, **changes: Any) -> float:
        moments = moments_of(replace(four, **changes), DATA, arrangement)
        assert moments is not None
        return float(moments[1])

    waiting = longest("drawn")
    assert longest("drawn", world_size=1) < waiting == pytest.approx(longest("arranged"), rel=0.02)
    ddp, zero3 = (longest("arranged", accumulation=16, strategy=name) for name in ("ddp", "zero3"))
    assert ddp < zero3 < waiting


SIZES = {"batch__micro_batch_size": 20, "batch__gradient_accumulation_steps": 16}


def counted(work: Workload, data: DataSummary, arrangement: Arrangement) -> float:
    """FLOPs of a micro-batch on average, each counted at its own lengths."""
    micro = 1 if arrangement == "packed" else work.micro_batch
    one, sides = work.with_micro_batch(micro), longest_of(data, work.micro_batch, 320, arrangement)
    pairs, counts = np.unique(np.stack([sides[0], sides[-1]], axis=1), axis=0, return_counts=True)
    flops = [micro_batch_flops(replace(one, length=int(a), target_length=int(b))) for a, b in pairs]
    return float(np.average(flops, weights=counts)) * work.micro_batch / micro


@each("arrangement", ["drawn", "arranged", "packed"])
@each(("model", "data", "attention"), [
    ("esm2-8m", DATA, "sdpa"), ("esm2-650m", DATA, "eager"), ("t5-chat-tiny", PAIRS, "sdpa"),
])  # fmt: skip
def test_the_mean_cost_of_micro_batches(
    model: str, data: DataSummary, attention: str, arrangement: Arrangement
) -> None:
    work = work_of(planned(model, None, engine__attention=attention, **SIZES), target_length=LIMIT)
    moments = moments_of(work, data, arrangement)
    assert moments is not None
    assert _mean_cost(work, _factors(work), moments).flops == pytest.approx(counted(work, data, arrangement), rel=0.02)


def test_a_plan_says_what_its_order_saves_and_what_could_be_saved() -> None:
    made = planned("esm2-650m", **SIZES)
    as_drawn = planned("esm2-650m", data__arrange_by_length=False, **SIZES)
    flops = {one: counted(work_of(made), DATA, one) for one in ("drawn", "arranged", "packed")}
    assert made.batch.operations_gain == pytest.approx(flops["drawn"] / flops["arranged"], rel=0.02)
    assert made.batch.possible_operations_gain == pytest.approx(flops["drawn"] / flops["packed"], rel=0.02)
    assert 1.2 < made.batch.operations_gain < made.batch.possible_operations_gain
    grouped = planned("esm2-650m", data__group_by_length=True, **SIZES)
    assert (grouped.time.step_s or 0) < (as_drawn.time.step_s or 0)
    assert grouped.batch.real_tokens == made.batch.real_tokens
    assert made.time.pace_gain == pytest.approx((as_drawn.time.step_s or 0) / (made.time.step_s or 1), rel=1e-6)
    assert as_drawn.time.pace_gain == as_drawn.batch.operations_gain == 1
    # The first micro-batch of a step has the longest rows: arranging saves time and no tensor, but what the allocator keeps
    # of shorter steps before.
    assert made.memory.allocated_bytes == as_drawn.memory.allocated_bytes
    assert made.memory.device_used_bytes < as_drawn.memory.device_used_bytes


def packing(model: str = "gpt2-tiny", **changes: Any) -> Plan:
    values = {"batch__gradient_accumulation_steps": 1, "data__packing": True, "data__concatenate": False}
    return planned(model, **{**values, **changes})


def test_packing_computes_what_is_real() -> None:
    packed, padded = packing(), packing(data__packing=False)
    real = 16 * np.minimum(SAMPLE, LIMIT).mean()
    assert packed.batch.padded_tokens == packed.batch.real_tokens == pytest.approx(real, abs=1)
    assert packed.batch.drawn_tokens == padded.batch.padded_tokens and packed.batch.padding_waste == 0
    # SDPA pays for the square of a micro-batch, FlashAttention does not.
    kept: dict[str, Any] = {"engine__checkpointing": False}
    packed, padded = (packing("qwen2.5-0.5b", data__packing=packs, **kept) for packs in (True, False))
    alone = packing("qwen2.5-0.5b", engine__attention="flash_attention_2", **kept)
    assert 0 < (alone.time.step_s or 0) < (packed.time.step_s or 0)
    peaks = [one.memory.allocated_bytes for one in (alone, packed, padded)]
    assert peaks[0] < peaks[1] and peaks[2] < peaks[1]


TWO_LENGTHS = DataSummary(rows=1_000_000, rows_exact=True, lengths=(100,) * 75 + (500,) * 25)


def real(target: int, length: int = LIMIT) -> Plan:
    return plan(machine(), config(batch__target_real_tokens=target, batch__sequence_length=length), TWO_LENGTHS)


def test_a_target_of_real_tokens() -> None:
    """Rows of 200 tokens on average: 100,000 real tokens are 500 sequences; cut at 200 a row has 125."""
    batch = real(100_000).batch
    assert batch.effective_samples == pytest.approx(500, rel=0.01)
    assert batch.real_tokens == pytest.approx(100_000, rel=0.01) and batch.target_real_tokens == 100_000
    assert batch.deviation == pytest.approx((batch.real_tokens or 0) / 100_000 - 1, abs=0.001)
    assert real(100_000, 200).batch.effective_samples == pytest.approx(800, rel=0.01)
    for absurd in (1, 10**13):
        made = real(absurd)
        assert 1 <= made.batch.accumulation <= MOST_ACCUMULATION
        assert f"from batch.target_real_tokens {absurd:,}" in finding(made, "batch_deviation").message
