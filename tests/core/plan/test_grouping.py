"""data.group_by_length in the plan: fewer padded tokens, less time, and what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from trainwiz.core.data.length_groups import LengthGroups
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.data.windows import one_window
from trainwiz.core.plan.grouping import grouped_lengths
from trainwiz.core.plan.result import Plan

from tests.core.plan.machines import codes, config, finding, machine, plan

LIMIT = 512
SAMPLE = np.maximum(5, np.random.default_rng(4).lognormal(4.6, 0.8, 4000)).astype(int)
DATA = DataSummary(rows=100_000, rows_exact=True, lengths=tuple(SAMPLE.tolist()))


def planned(data: DataSummary | None = DATA, **changes: Any) -> Plan:
    sizes = {"batch__micro_batch_size": 16, "batch__gradient_accumulation_steps": 4, "batch__sequence_length": LIMIT}
    return plan(machine(), config(**{**sizes, **changes}), data)


def drawn(lengths: np.ndarray, keys: np.ndarray, micro_batch: int, step_rows: int, limit: int) -> float:
    """Padded tokens of a step by the order of a training."""
    groups = LengthGroups(keys, step_rows)
    order = np.concatenate(list(groups.arranged(one_window(len(keys)).orders(1, 0), 1, 0)))
    batches = np.minimum(lengths[order], limit)[: len(order) // micro_batch * micro_batch].reshape(-1, micro_batch)
    return float(batches.max(axis=1).mean() * step_rows)


@pytest.mark.parametrize(("micro", "accumulation"), [(4, 1), (16, 4), (64, 1), (8, 400)])
def test_the_padding_of_the_plan_is_that_of_the_order(micro: int, accumulation: int) -> None:
    sizes = {"batch__micro_batch_size": micro, "batch__gradient_accumulation_steps": accumulation}
    batch = planned(**sizes, data__group_by_length=True).batch
    rows = np.random.default_rng(5).choice(SAMPLE, DATA.rows)
    expected = drawn(rows, rows, micro, micro * accumulation, LIMIT)
    assert batch.padded_tokens == pytest.approx(expected, rel=0.03)
    assert batch.real_tokens is not None
    assert batch.padding_waste == pytest.approx(1 - batch.real_tokens / expected, abs=0.03)


def test_pairs_are_arranged_by_their_longer_side() -> None:
    targets = np.maximum(3, SAMPLE * np.random.default_rng(6).lognormal(0, 0.3, len(SAMPLE))).astype(int)
    data = replace(DATA, target_lengths=tuple(targets.tolist()))
    source, target = grouped_lengths(data, LIMIT, LIMIT, 16, 4)
    picked = np.random.default_rng(5).integers(0, len(SAMPLE), DATA.rows)
    keys = np.maximum(SAMPLE, targets)[picked]
    for found, side in ((source, SAMPLE), (target, targets)):
        assert found == pytest.approx(drawn(side[picked], keys, 16, 64, LIMIT) / 64, rel=0.03)


def test_a_step_takes_less_time_and_says_why() -> None:
    plain, grouped = planned(), planned(data__group_by_length=True)
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
