"""What the text tasks settle, and what contradicts them."""

from typing import Any

import pytest
from trainwiz.core.data.lengths import longest_generation
from trainwiz.core.data.summary import DataSummary

from tests.core.plan.machines import CAUSAL, CHAT, PAIRS, codes, config, finding, machine, plan
from tests.each import each


def seq2seq(**values: Any) -> Any:
    return config(**{**PAIRS, **values})


@each(("asked", "planned", "cut"), [(None, 128, False), (100, 100, False), (200, 200, True)])
def test_an_answer_shares_its_sequence_with_the_prompt(asked: int | None, planned: int, cut: bool) -> None:
    values = {"data__sources": CHAT, "batch__sequence_length": 256, "evaluation__generate": True}
    made = plan(machine(), config(**CAUSAL, **values, evaluation__generation_length=asked))
    assert made.config.evaluation.generation_length == planned
    assert longest_generation(made.config) == min(planned, 128)
    assert ("generation_cut" in codes(made)) is cut


def test_measured_rows_bound_the_estimate_and_guessed_ones_by_their_bytes() -> None:
    """A guessed token may turn out to be up to four."""

    def logits(unit: str, longest: int) -> int:
        lengths = (longest // 2, longest)
        data = DataSummary(rows=2, rows_exact=True, lengths=lengths, target_lengths=lengths, length_unit=unit)
        request = seq2seq(batch__micro_batch_size=32, batch__sequence_length=1024)
        return plan(machine("H100 SXM"), request, data).memory.breakdown["logits"]

    assert 0 < logits("tokens", 400) == logits("tokens (estimated)", 100) < logits("tokens (estimated)", 200)
    assert logits("tokens (estimated)", 400) == logits("tokens", 1024)


def test_rows_of_data_that_is_not_here_come_from_its_limits() -> None:
    pairs = PAIRS["data__sources"][0]
    sources = [{**pairs, "max_rows": 5_000_000}, {**pairs, "name": "more.tsv", "max_rows": 500_000}]
    made = plan(machine(), seq2seq(data__sources=sources, training__epochs=2, batch__target_samples=96))
    assert made.time.steps == 2 * -(-(5_500_000 - 2000) // 96)
    assert made.config.training.max_steps is None
    assert made.time.epochs == pytest.approx(2)
    assert "5,498,000" in finding(made, "rows_assumed").message
    assert made.to_json()["data"] is None
    # Not where one source has no limit, nor where the steps are given.
    made = plan(machine(), seq2seq(data__sources=[sources[0], pairs], training__epochs=2))
    assert made.time.steps is None and "rows_assumed" not in codes(made)
    assert "rows_assumed" not in codes(plan(machine(), seq2seq(training__max_steps=100)))


def test_evaluation_and_generation_take_their_time() -> None:
    lengths = {"lengths": (100,) * 10, "target_lengths": (60,) * 10}
    data = DataSummary(rows=100_000, rows_exact=True, validation_rows=2000, **lengths)
    values = {"batch__target_samples": 96, "training__max_steps": 1000, "evaluation__prompts": "none"}

    def time(generate: bool = True, **more: Any) -> Any:
        asked = seq2seq(**values, evaluation__every_steps=100, evaluation__generate=generate, **more)
        return plan(machine(), asked, data).time

    without, with_it = time(False), time(evaluation__beams=4)
    once, few = time(evaluation__generate_at="end"), time(evaluation__generation_rows=200)
    assert without.generation_s == 0.0 and (without.evaluation_s or 0) > 0
    assert (with_it.generation_s or 0) > (with_it.evaluation_s or 0)
    assert 0 < (once.generation_s or 0) < 0.2 * (with_it.generation_s or 0)
    assert 0 < (few.generation_s or 0) < 0.3 * (with_it.generation_s or 0)
