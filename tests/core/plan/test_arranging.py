"""data.arrange_by_length and data.group_by_length in the plan: fewer padded tokens, less time, and what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from trainwiz.core.data.lengths import LengthOrder, StepShape, pool_steps
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.rows import Arrangement, usual_lengths

from tests.core.plan.machines import codes, config, finding, machine, plan
from tests.each import each

LIMIT = 512
SAMPLE = np.maximum(5, np.random.default_rng(4).lognormal(4.6, 0.8, 4000)).astype(int)
DATA = DataSummary(rows=100_000, rows_exact=True, lengths=tuple(SAMPLE.tolist()))


def planned(data: DataSummary | None = DATA, **changes: Any) -> Plan:
    sizes = {"batch__micro_batch_size": 16, "batch__gradient_accumulation_steps": 4, "batch__sequence_length": LIMIT}
    sizes["data__pad_to_multiple_of"] = 1
    return plan(machine(), config(**{**sizes, **changes}), data)


def drawn(lengths: np.ndarray, keys: np.ndarray, micro_batch: int, step_rows: int, *, grouped: bool) -> float:
    """Padded tokens of a step by the order of a training."""
    pool = pool_steps(step_rows, len(keys)) if grouped else 1
    orders = [np.random.default_rng(1).permutation(len(keys))]
    arranged = LengthOrder(keys, StepShape(step_rows, micro_batch, 1), pool=pool).arranged(orders, 1, 0)
    order = np.concatenate(list(arranged))
    batches = np.minimum(lengths[order], LIMIT)[: len(order) // micro_batch * micro_batch].reshape(-1, micro_batch)
    return float(batches.max(axis=1).mean() * step_rows)


SIZES = [(4, 1), (16, 4), (8, 40), (4, 2)]


@each("grouped", [False, True])
@each(("micro", "accumulation"), SIZES)
def test_the_padding_of_the_plan_is_that_of_the_order(micro: int, accumulation: int, grouped: bool) -> None:
    sizes = {"batch__micro_batch_size": micro, "batch__gradient_accumulation_steps": accumulation}
    batch = planned(**sizes, data__group_by_length=grouped).batch
    rows = np.random.default_rng(5).choice(SAMPLE, DATA.rows)
    expected = drawn(rows, rows, micro, micro * accumulation, grouped=grouped)
    assert batch.padded_tokens == pytest.approx(expected, rel=0.03)
    assert batch.real_tokens is not None
    assert batch.padding_waste == pytest.approx(1 - batch.real_tokens / expected, abs=0.03)


@pytest.mark.parametrize("arrangement", ["arranged", "grouped"])
def test_pairs_are_arranged_by_their_longer_side(arrangement: Arrangement) -> None:
    targets = np.maximum(3, SAMPLE * np.random.default_rng(6).lognormal(0, 0.3, len(SAMPLE))).astype(int)
    data = replace(DATA, target_lengths=tuple(targets.tolist()))
    work = planned().work
    assert work is not None
    usual = usual_lengths(replace(work, length=LIMIT, target_length=LIMIT), data, arrangement)
    picked = np.random.default_rng(5).integers(0, len(SAMPLE), DATA.rows)
    keys = np.maximum(SAMPLE, targets)[picked]
    for found, side in zip(usual, (SAMPLE, targets), strict=True):
        assert found == pytest.approx(
            drawn(side[picked], keys, 16, 64, grouped=arrangement == "grouped") / 64, rel=0.04
        )


@pytest.mark.parametrize(
    ("changes", "expected", "why"),
    [
        ({}, True, "padding 66 % -> 35 %"),
        ({"batch__gradient_accumulation_steps": 1}, False, "one micro-batch"),
        ({"batch__micro_batch_size": 1}, False, "one row"),
    ],
)
def test_it_is_on_where_a_step_is_several_micro_batches(changes: dict[str, Any], expected: bool, why: str) -> None:
    made = planned(**changes)
    choice = next(one for one in made.choices if one.key == "data.arrange_by_length")
    assert choice.value is expected and why in choice.reason, choice
    assert (made.batch.padded_tokens == made.batch.drawn_tokens) is not expected


def test_processes_wait_for_the_longest_micro_batch_where_each_step_has_one() -> None:
    """Arranged or drawn: of a step with one micro-batch on each of four processes, the longest row decides."""
    work = planned().work
    assert work is not None
    each = replace(work, micro_batch=16, accumulation=1, world_size=4, strategy="ddp", length=LIMIT)
    (alone, _), (waiting, _), (arranged, _) = (
        usual_lengths(replace(each, world_size=1), DATA, "drawn"),
        usual_lengths(each, DATA, "drawn"),
        usual_lengths(each, DATA, "arranged"),
    )
    assert alone < waiting == pytest.approx(arranged, rel=0.02)
    halves = [
        usual_lengths(replace(each, accumulation=16, strategy=one), DATA, "arranged")[0] for one in ("ddp", "zero3")
    ]
    assert halves[0] < halves[1] < waiting


def test_a_step_takes_less_time_and_says_why() -> None:
    plain, grouped = planned(data__arrange_by_length=False), planned(data__group_by_length=True)
    arranged = planned()
    assert arranged.time.step_s is not None and plain.time.step_s is not None
    assert arranged.time.step_s < 0.8 * plain.time.step_s
    assert plain.time.step_s is not None and grouped.time.step_s is not None
    assert grouped.time.step_s < 0.75 * plain.time.step_s
    assert grouped.batch.effective_samples == plain.batch.effective_samples
    assert grouped.batch.real_tokens == plain.batch.real_tokens
    assert grouped.memory.high_bytes == plain.memory.high_bytes
    said = finding(grouped, "grouped_by_length")
    assert f"{grouped.batch.padded_tokens:,}" in said.message and f"{plain.batch.padded_tokens:,}" in said.message
    assert "grouped_by_length" not in codes(plain)


def test_nothing_is_said_of_lengths_that_are_not_known() -> None:
    made = planned(None, data__group_by_length=True)
    assert made.batch.padded_tokens is None
    assert not {"grouped_by_length", "nothing_to_group"} & set(codes(made))


def test_where_there_is_nothing_to_group() -> None:
    assert (
        "one row" in finding(planned(batch__micro_batch_size=1, data__group_by_length=True), "nothing_to_group").message
    )
    joined = plan(
        machine(),
        config("gpt2-tiny", data__sources=[{"name": "a.txt"}], data__group_by_length=True, batch__micro_batch_size=4),
        DATA,
    )
    assert "joined" in finding(joined, "nothing_to_group").message
    assert joined.batch.padding_waste == 0


@pytest.mark.parametrize(
    ("kind", "said"), [("esm2-tiny", "means of micro-batches"), ("gpt2-tiny", "so does the Trainer")]
)
def test_the_token_mean_is_a_choice_with_its_reason(kind: str, said: str) -> None:
    made = plan(machine(), config(kind, data__concatenate=False), DATA)
    choice = next(one for one in made.choices if one.key == "training.loss_mean")
    assert choice.value == "tokens" and choice.origin == "solved" and said in choice.reason


def test_a_mean_of_means_leaves_rows_as_drawn_and_says_what_it_costs_to_ask_for_both() -> None:
    means = planned(training__loss_mean="micro_batches")
    assert means.config.data.arrange_by_length is False and "weights_by_arrangement" not in codes(means)
    assert "not_the_stock_mean" not in codes(means), "it is what the Trainer of transformers does for ESM"
    both = planned(training__loss_mean="micro_batches", data__arrange_by_length=True)
    tokens, drawn = finding(both, "weights_by_arrangement").remedies
    assert tokens.changes == {"training.loss_mean": "tokens"} and drawn.changes["data.arrange_by_length"] is False
    causal = config("gpt2-tiny", data__concatenate=False, training__loss_mean="micro_batches")
    assert "gpt2" in finding(plan(machine(), causal, DATA), "not_the_stock_mean").message
