"""data.packing in the plan: what it saves, and what is in its way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from trainwiz.core.data.lengths import LengthOrder, StepShape
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.plan.result import Plan

from tests.core.plan.machines import codes, config, finding, machine, plan

LENGTHS = np.maximum(5, np.random.default_rng(4).lognormal(4.6, 0.8, 2000)).astype(int)
DATA = DataSummary(rows=100_000, rows_exact=True, lengths=tuple(LENGTHS.tolist()))
SIZES = {"batch__micro_batch_size": 16, "batch__gradient_accumulation_steps": 1, "batch__sequence_length": 512}


def planned(model: str = "gpt2-tiny", **changes: Any) -> Plan:
    return plan(
        machine(), config(model, **{**SIZES, "data__packing": True, "data__concatenate": False, **changes}), DATA
    )


def test_a_step_of_one_micro_batch_computes_what_is_real() -> None:
    packed, padded = planned(), planned(data__packing=False)
    assert (
        packed.batch.padded_tokens
        == packed.batch.real_tokens
        == pytest.approx(16 * np.minimum(LENGTHS, 512).mean(), abs=1)
    )
    assert packed.batch.drawn_tokens == padded.batch.padded_tokens and packed.batch.padding_waste == 0
    assert f"{packed.batch.padded_tokens:,}" in finding(packed, "packed").message
    assert "packed" not in codes(padded)


def test_sdpa_pays_for_the_square_of_a_micro_batch_and_flash_attention_does_not() -> None:
    kept: dict[str, Any] = {"engine__checkpointing": False}
    packed, padded = (planned("qwen2.5-0.5b", data__packing=packs, **kept) for packs in (True, False))
    alone = planned("qwen2.5-0.5b", engine__attention="flash_attention_2", **kept)
    steps = [one.time.step_s for one in (alone, packed)]
    peaks = [one.memory.allocated_bytes for one in (alone, packed, padded)]
    assert None not in (*steps, *peaks)
    assert steps[0] < steps[1] and peaks[0] < peaks[1] and peaks[2] < peaks[1]
    assert "computes each token with all" in finding(packed, "packed").message
    assert "each row alone" in finding(alone, "packed").message


def test_micro_batches_of_a_step_get_as_many_tokens() -> None:
    drawn = np.random.default_rng(1).permutation(len(LENGTHS))
    step = StepShape(rows=80, micro_batch=10, processes=2)
    arranged = np.concatenate(list(LengthOrder(LENGTHS, step, even=True).arranged([drawn], 1, 0)))
    whole = len(LENGTHS) // 80 * 80
    for start in range(0, whole, 80):
        assert set(arranged[start : start + 80]) == set(drawn[start : start + 80])
    tokens = LENGTHS[arranged[:whole]].reshape(-1, 8, 10).sum(axis=2)
    plain = LENGTHS[drawn[:whole]].reshape(-1, 8, 10).sum(axis=2)
    assert np.median(np.ptp(tokens, axis=1)) < 0.35 * np.median(np.ptp(plain, axis=1))
