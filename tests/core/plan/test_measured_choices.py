"""A plan takes what was measured faster here, where nobody chose a value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.estimate.evidence import Evidence
from trainwiz.core.hardware.machine import Libraries, Machine
from trainwiz.core.history.comparison import Comparison
from trainwiz.core.history.match import model_digest
from trainwiz.core.plan.result import Choice, Plan

from tests.core.history.comparisons import comparison, faster
from tests.core.history.measurements import HERE
from tests.core.plan.machines import codes, config, finding, plan

MACHINE: Machine = replace(HERE, libraries=Libraries({"torch": "2.13.0+cpu"}), disk_free_bytes=1 << 40)
SIZES: dict[str, Any] = {
    "training__max_steps": 100,
    "batch__micro_batch_size": 8,
    "batch__gradient_accumulation_steps": 2,
    "batch__sequence_length": 64,
}


def made(*compared: Comparison, **values: Any) -> Plan:
    request = config("esm2-8m", **SIZES, **values)
    bare = plan(MACHINE, request)
    assert bare.work is not None
    digest = model_digest(bare.work.model_config)
    return plan(MACHINE, request, evidence=Evidence(comparisons=tuple(replace(one, model=digest) for one in compared)))


def choice(of: Plan, key: str) -> Choice:
    return next(one for one in of.choices if one.key == key)


def test_a_faster_value_is_taken_with_its_reason() -> None:
    got = choice(made(comparison()), "engine.attention")
    assert (got.value, got.origin) == ("eager", "detected")
    assert got.reason == "measured here on 2026-11-21: 1.40 times the pace of sdpa"


@pytest.mark.parametrize(
    "other",
    [
        {"versions": {"torch": "2.12.1"}},
        {"task": "causal-lm"},
        {"strategy": "ddp"},
        {"precision": "bf16"},
        {"threads": 2},
        {"length": 512},
        {"packed": True},
        {"machine": "cpu:Another:8 cores"},
        {"alternatives": (faster("engine.attention", "eager", "flash_attention_2"),)},
        {"alternatives": (faster("engine.attention", "eager", "sdpa", taken=False),)},
    ],
)
def test_what_was_measured_of_something_else_is_not(other: dict[str, Any]) -> None:
    assert choice(made(comparison(**other)), "engine.attention").value == "sdpa"


def test_the_newest_one_counts() -> None:
    newest = comparison(
        alternatives=(replace(faster("engine.attention", "eager", "sdpa"), verdict="slower", taken=False),)
    )
    assert choice(made(newest, comparison()), "engine.attention").value == "sdpa"


def test_what_there_was_no_time_for_does_not_undo_what_was_measured() -> None:
    later = comparison(
        alternatives=(replace(faster("engine.attention", "eager", "sdpa"), verdict="not_measured", taken=False),)
    )
    assert choice(made(later, comparison()), "engine.attention").value == "eager"


def test_what_the_user_says_is_done() -> None:
    got = choice(made(comparison(), engine__attention="sdpa"), "engine.attention")
    assert (got.value, got.origin) == ("sdpa", "you")


def test_a_faster_precision_is_offered_and_not_taken() -> None:
    bf16 = comparison(alternatives=(faster("engine.precision", "bf16", "fp32", 2.25, taken=False),))
    offered = made(bf16)
    assert choice(offered, "engine.precision").value == "fp32"
    assert "bf16 was 2.25 times as fast here on 2026-11-21" in choice(offered, "engine.precision").reason
    found = finding(offered, "faster_precision")
    assert found.severity == "note" and found.remedies[0].changes == {"engine.precision": "bf16"}
    assert "faster_precision" not in codes(made(bf16, engine__precision="fp32"))


@pytest.mark.parametrize(("once_s", "compiled"), [(30.0, True), (90.0, False)])
def test_compiling_is_taken_where_the_run_is_long_enough(once_s: float, compiled: bool) -> None:
    """100 steps of 2 s at twice the pace save 100 s; the reason says both."""
    compiling = faster("engine.compile", True, False, 1.6, once_s=once_s)
    got = choice(made(comparison(alternatives=(compiling,))), "engine.compile")
    assert got.value is compiled and got.origin == "detected"
    assert "1.60 times the pace" in got.reason and "75 s" in got.reason
    assert made(comparison(alternatives=(compiling,)), engine__compile=False).config.engine.compile is False
