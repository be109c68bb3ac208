"""The solver against the guides' own figures and against brute force."""

from random import Random

import pytest
from trainwiz.core.batch import Factorisation, solve_batch


def test_what_is_given_stays() -> None:
    solved = solve_batch(target_samples=2_000_000 / 512, world_size=1, largest_micro_batch=6, micro_batch=6)
    assert solved.chosen == Factorisation(6, 651, 1) and solved.deviation == pytest.approx(-0.000064)
    solved = solve_batch(target_samples=192, world_size=3, largest_micro_batch=99, micro_batch=24, accumulation=2)
    assert solved.chosen.samples == 144 and solved.deviation == pytest.approx(-0.25)
    assert any(one.samples == 192 for one, _ in solved.alternatives)
    for largest, micro in ((64, 24), (16, 16)):
        chosen = solve_batch(target_samples=96, world_size=1, largest_micro_batch=largest, accumulation=4).chosen
        assert chosen.micro_batch == micro
    solved = solve_batch(target_samples=None, world_size=2, largest_micro_batch=12)
    assert (solved.chosen, solved.deviation, solved.alternatives) == (Factorisation(12, 1, 2), None, ())


def test_random_batches_are_nearest_and_their_alternatives_honest() -> None:
    random = Random(11)
    for _ in range(1500):
        world, largest = random.choice([1, 2, 3, 7, 8]), random.choice([1, 3, 6, 20, 33, 256])
        target = random.choice([random.randint(1, 9000), random.randint(1, 4_000_000) / 512])
        micro = random.choice([None, random.randint(1, 40)])
        solved = solve_batch(target_samples=target, world_size=world, largest_micro_batch=largest, micro_batch=micro)
        chosen = solved.chosen
        assert solved.deviation == pytest.approx((chosen.samples - target) / target)
        for other, off in solved.alternatives:
            assert other != chosen and off == pytest.approx((other.samples - target) / target)
            assert other.micro_batch <= max(largest, chosen.micro_batch)
        if micro is not None:
            either = [micro * world * count for count in range(1, int(target / (micro * world)) + 3)]
            assert abs(chosen.samples - target) == pytest.approx(min(abs(one - target) for one in either))
        elif target % world == 0:
            assert chosen.samples == target, "one sequence at once always hits a whole target"


def test_an_exact_batch_wins_over_a_faster_one_and_accumulation_has_a_bound() -> None:
    solved = solve_batch(target_samples=3907, world_size=1, largest_micro_batch=6)
    assert (solved.chosen, solved.alternatives[0][0]) == (Factorisation(1, 3907, 1), Factorisation(6, 651, 1))
    solved = solve_batch(target_samples=1e12, world_size=1, largest_micro_batch=4)
    assert solved.chosen == Factorisation(4, 1_048_576, 1) and (solved.deviation or 0) < -0.99
