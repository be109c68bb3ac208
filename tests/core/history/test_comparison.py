"""Gains of settings with their spread, and the file that keeps them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from trainwiz.core.history.comparison import gain_of
from trainwiz.core.history.store import append_comparison, comparisons_path, load_comparisons

from tests.core.history.comparisons import comparison
from tests.core.history.measurements import HERE


def test_a_gain_has_the_spread_of_its_turns() -> None:
    gain = gain_of([2.0, 2.2, 1.8, 2.1], [1.0, 1.0, 1.0, 1.0])
    assert gain is not None and gain.verdict == "faster"
    assert gain.likely == pytest.approx((2.0 * 2.2 * 1.8 * 2.1) ** 0.25)
    # t(3) = 3.18 times the standard error of the logarithms, 0.0430.
    assert (gain.low, gain.high) == pytest.approx((gain.likely / 1.147, gain.likely * 1.147), rel=1e-3)


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        ([0.5, 0.5, 0.51, 0.5], "faster"),
        ([2.0, 2.0, 2.1, 2.0], "slower"),
        ([0.4, 1.6, 0.5, 1.2], "no_difference"),
        ([0.99, 0.99, 0.99, 0.99], "no_difference"),
    ],
)
def test_a_spread_that_covers_one_is_no_difference(other: list[float], verdict: str) -> None:
    gain = gain_of([1.0, 1.0, 1.0, 1.0], other)
    assert gain is not None and gain.verdict == verdict


def test_what_two_processes_of_the_same_settings_differ_by_is_no_gain() -> None:
    gain = gain_of([1.14, 1.15, 1.13, 1.14], [1.0, 1.0, 1.0, 1.0])
    assert gain is not None and gain.verdict == "faster"
    assert gain.widened(1.16).verdict == gain.widened(1 / 1.16).verdict == "no_difference"


def test_one_turn_has_no_spread() -> None:
    assert gain_of([1.0], [0.5]) is None


def test_comparisons_are_kept_newest_first_and_broken_ones_left_out() -> None:
    for day in ("2026-11-20", "2026-11-21"):
        append_comparison(comparison(measured_at=f"{day}T10:00:00+00:00"))
    document = comparison().to_json()
    broken = (
        {**document, "measured_at": "yesterday\x1b"},
        {**document, "alternatives": [{**document["alternatives"][0], "verdict": "better"}]},
        {**document, "alternatives": [{**document["alternatives"][0], "gain": None}]},
        {**document, "alternatives": [{**document["alternatives"][0], "base": {}}]},
        {**document, "alternatives": [{**document["alternatives"][0], "base": {"engine.tf32": True}}]},
        {**document, "alternatives": [{**document["alternatives"][0], "changes": {"engine.attention": "newest"}}]},
        {**document, "length": "64"},
        {**document, "lora_rank": "8"},
        {**document, "versions": {"torch": 2}},
        {**document, "alternatives": None},
        [],
    )
    with comparisons_path().open("a") as file:
        file.writelines(f"{json.dumps(one)}\n" for one in broken)
    assert [one.day for one in load_comparisons(HERE)] == ["2026-11-21", "2026-11-20"]
    assert load_comparisons(HERE)[1] == comparison(measured_at="2026-11-20T10:00:00+00:00")
    assert load_comparisons(replace(HERE, cpu_model="Another")) == ()
