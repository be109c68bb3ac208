"""Expected padding against a draw of batches."""

import random
from statistics import mean

import pytest
from trainwiz.core.estimate.flops import LengthCounts, padding_of

from tests.each import each

LIMIT = 512


def drawn(rows: list[int], micro_batch: int, groups: int) -> tuple[float, float, float]:
    """(real, padded, arranged) tokens of a step, the mean over many steps of random rows."""
    generator, size = random.Random(3), micro_batch * groups
    steps = [[min(LIMIT, row) for row in generator.choices(rows, k=size)] for _ in range(max(100, 30_000 // size))]

    def padded(step: list[int]) -> int:
        return sum(micro_batch * max(step[at : at + micro_batch]) for at in range(0, size, micro_batch))

    return mean(map(sum, steps)), mean(map(padded, steps)), mean(padded(sorted(step)) for step in steps)


def rows_of(kind: str) -> list[int]:
    generator = random.Random(kind)
    draw = {
        "even": lambda: generator.randint(5, 600),
        "skewed": lambda: int(generator.lognormvariate(5.6, 0.8)) + 2,
        "two lengths": lambda: generator.choice((10, 500)),
        "one length": lambda: 100,
    }[kind]
    return [draw() for _ in range(5000)]


@each("kind", ["even", "skewed", "two lengths", "one length"])
@each(("micro_batch", "groups"), [(1, 8), (4, 16), (16, 1), (6, 100)])
def test_against_drawn_batches(kind: str, micro_batch: int, groups: int) -> None:
    rows = rows_of(kind)
    real, padded, arranged = drawn(rows, micro_batch, groups)
    found = padding_of(LengthCounts.of(sorted(rows)), LIMIT, micro_batch, groups)
    assert found.real == pytest.approx(real, rel=0.02)
    assert found.padded == pytest.approx(padded, rel=0.02)
    assert found.arranged == pytest.approx(arranged, rel=0.025)
    assert 0 <= found.arranged_waste <= found.waste < 1


def test_more_micro_batches_than_are_looked_at() -> None:
    """651 micro-batches of 6 in order of length: next to nothing is padding."""
    real, _, arranged = drawn(rows_of("skewed"), 6, 651)
    found = padding_of(LengthCounts.of(sorted(rows_of("skewed"))), LIMIT, 6, 651)
    assert found.waste > 0.3
    assert 0 < found.arranged_waste == pytest.approx(1 - real / arranged, abs=0.002)
