"""Answers about lengths against a plain count."""

import random

import pytest
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.plan.rows import lengths_of

from tests.core.plan.machines import config, machine, plan
from tests.each import each


@each("limit", [1, 5, 40, 99, 100, 500])
def test_against_a_plain_count(limit: int) -> None:
    generator = random.Random(limit)
    rows = tuple(generator.randint(5, 100) for _ in range(999))
    lengths = lengths_of(rows)
    assert lengths is not None
    assert lengths.longest == max(rows)
    assert lengths.share_above(limit) == pytest.approx(sum(row > limit for row in rows) / 999)
    assert lengths.mean_up_to(limit) == pytest.approx(sum(min(row, limit) for row in rows) / 999)
    assert lengths.quantile(9, 10) == sorted(rows)[899]
    assert lengths.quantile(10, 10) == max(rows)


def test_rows_are_sorted_once_however_often_a_plan_is_made() -> None:
    """A plan is made at every keystroke; what one costs beside as many rows is measured in tools/benchmarks."""
    generator = random.Random(7)
    lengths, targets = (tuple(generator.randint(5, 600) for _ in range(20_000)) for _ in range(2))
    data = DataSummary(5_000_000, True, lengths, target_lengths=targets, validation_rows=2000)
    here = machine("RTX 4090")
    lengths_of.cache_clear()
    for samples in (96, 192, 960):
        plan(here, config("nllb-600m", task="seq2seq", batch__target_samples=samples, evaluation__generate=True), data)
    answers = lengths_of.cache_info()
    # The sources and the targets; every question but the first two found them sorted.
    assert answers.misses == 2 and answers.hits > 10
