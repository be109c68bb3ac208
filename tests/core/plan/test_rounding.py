"""data.pad_to_multiple_of: what the plan settles, and what the rounding costs in it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.rows import usual_lengths

from tests.core.plan.machines import config, machine, plan

KEY = "data.pad_to_multiple_of"
SAMPLE = np.maximum(5, np.random.default_rng(4).lognormal(4.6, 0.8, 4000)).astype(int)
DATA = DataSummary(rows=4000, rows_exact=True, lengths=tuple(SAMPLE.tolist()))
LIMIT, MICRO, ACCUMULATION = 509, 16, 4


def chosen(made: Plan) -> tuple[int | None, str]:
    return made.config.data.pad_to_multiple_of, next(one.reason for one in made.choices if one.key == KEY)


def planned(multiple: int, **changes: Any) -> Plan:
    sizes = {"batch__micro_batch_size": MICRO, "batch__gradient_accumulation_steps": ACCUMULATION}
    values = {**sizes, "batch__sequence_length": LIMIT, "data__pad_to_multiple_of": multiple, **changes}
    return plan(machine(), config(**values), DATA)


@pytest.mark.parametrize("arranged", [False, True])
def test_the_tokens_of_a_step_are_those_of_rounded_lengths(arranged: bool) -> None:
    of_steps = np.minimum(np.random.default_rng(1).choice(SAMPLE, (2000, MICRO * ACCUMULATION)), LIMIT)
    if arranged:
        of_steps = -np.sort(-of_steps, axis=1)
    longest = of_steps.reshape(2000, ACCUMULATION, MICRO).max(axis=2)
    for multiple in (8, 64):
        batch = planned(multiple, data__arrange_by_length=arranged).batch
        rounded = np.minimum(-(-longest // multiple) * multiple, LIMIT)
        assert batch.padded_tokens == pytest.approx(rounded.sum(axis=1).mean() * MICRO, rel=0.02)
        assert batch.real_tokens == planned(1).batch.real_tokens
        assert batch.padding_waste == pytest.approx(1 - of_steps.sum() / rounded.sum() / MICRO, abs=0.02)


def test_memory_and_time_are_of_rounded_lengths_and_never_beyond_the_limit() -> None:
    short = replace(DATA, lengths=tuple(np.minimum(SAMPLE, 130).tolist()))
    sizes = {"batch__micro_batch_size": MICRO, "batch__sequence_length": LIMIT}
    lengths = {}
    for multiple in (1, 64, 4096):
        made = plan(machine(), config(**sizes, data__pad_to_multiple_of=multiple), short)
        assert made.work is not None and made.usual is not None
        lengths[multiple] = made.work.length, made.usual.length
        assert usual_lengths(made.work, short, "drawn", multiple)[0] <= made.work.length
    assert lengths[1][0] == 130 and lengths[64][0] == 192 and lengths[4096] == (LIMIT, LIMIT)
    assert lengths[1][1] <= 130 < lengths[64][1] <= 192
