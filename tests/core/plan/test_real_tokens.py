"""Real and padded tokens of a step, and a target of real ones."""

from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.batch import MOST_ACCUMULATION
from trainwiz.core.config import RunConfig
from trainwiz.core.data.summary import DataSummary, summarize_data

from tests.core.plan.machines import codes, config, finding, machine, plan

LENGTHS = (100,) * 75 + (500,) * 25
DATA = DataSummary(rows=1_000_000, rows_exact=True, lengths=LENGTHS)


def test_the_guides_batch_on_real_proteins(shared_data: Path) -> None:
    """1,999,872 tokens of UniRef at length 512 hold about 1.13 million real ones."""
    request = config(
        "esm2-650m",
        data__sources=[{"name": str(shared_data / "uniref90_10k.parquet")}],
        batch__sequence_length=512,
        batch__micro_batch_size=6,
        batch__gradient_accumulation_steps=651,
    )
    batch = plan(machine("RTX 2080 Super"), request, summarize_data(request)).batch
    assert batch.effective_tokens == 1_999_872
    assert batch.real_tokens == pytest.approx(1_130_000, rel=0.03)
    assert batch.padded_tokens is not None and batch.padding_waste is not None and batch.arranged_waste is not None
    assert batch.real_tokens < batch.padded_tokens < batch.effective_tokens
    assert batch.padding_waste == pytest.approx(1 - batch.real_tokens / batch.padded_tokens, abs=1e-4)
    assert batch.drawn_waste is not None
    assert batch.padding_waste == batch.arranged_waste < 0.02 < 0.2 < batch.drawn_waste


def test_time_is_of_the_padded_tokens() -> None:
    made = plan(
        machine(), config(batch__micro_batch_size=8, batch__target_samples=64, batch__sequence_length=512), DATA
    )
    assert made.batch.padded_tokens is not None and made.time.tokens_per_s and made.time.step_s
    assert made.time.tokens_per_s * made.time.step_s == pytest.approx(made.batch.padded_tokens, rel=0.01)


def test_a_target_of_real_tokens() -> None:
    """Rows of 200 tokens on average: 100,000 real tokens are 500 sequences."""
    request = config(batch__target_real_tokens=100_000, batch__sequence_length=512)
    batch = plan(machine(), request, DATA).batch
    assert batch.effective_samples == pytest.approx(500, rel=0.01)
    assert batch.real_tokens == pytest.approx(100_000, rel=0.01)
    assert batch.target_real_tokens == 100_000
    assert batch.deviation == pytest.approx((batch.real_tokens or 0) / 100_000 - 1, abs=0.001)


def test_real_tokens_of_a_shorter_length_are_fewer() -> None:
    """Cut at 200 a row has 125 tokens."""
    request = config(batch__target_real_tokens=100_000, batch__sequence_length=200)
    assert plan(machine(), request, DATA).batch.effective_samples == pytest.approx(800, rel=0.01)


def test_joined_texts_have_no_padding() -> None:
    data = replace(DATA, lengths=(1024,) * 10)
    made = plan(
        machine(),
        config("gpt2-medium", task="causal-lm", batch__target_real_tokens=65_536, batch__sequence_length=1024),
        data,
    )
    assert made.batch.effective_samples == 64
    assert made.batch.real_tokens == made.batch.padded_tokens == made.batch.effective_tokens == 65_536
    assert made.batch.padding_waste == made.batch.arranged_waste == 0


@pytest.mark.parametrize("target", [1, 10**13])
def test_absurd_targets_have_a_plan(target: int) -> None:
    made = plan(machine(), config(batch__target_real_tokens=target, batch__sequence_length=512), DATA)
    assert 1 <= made.batch.accumulation <= MOST_ACCUMULATION
    assert "batch_deviation" in codes(made)
    assert f"target of {target:,} real tokens" in finding(made, "batch_deviation").message


def test_your_target_takes_the_place_of_the_profiles() -> None:
    from trainwiz.core.config.build import yielding_values

    profile = {"batch.target_tokens": 1_999_872, "batch.gradient_accumulation_steps": 651}
    changes = yielding_values(profile, {"batch.target_real_tokens": 1_000_000})
    assert changes["batch.target_tokens"][0] is None
    assert changes["batch.gradient_accumulation_steps"][0] is None


@pytest.mark.parametrize("mode", ["smoke", "dev-run", "overfit"])
def test_short_modes_have_no_target(mode: str) -> None:
    from trainwiz.core.config.modes import apply_mode
    from trainwiz.core.config.request import PlanRequest

    request = RunConfig().with_values({"batch.target_real_tokens": 1_000_000}, "profile")
    moded = apply_mode(request, PlanRequest(mode=mode, overfit_batches=1 if mode == "overfit" else None), None)
    assert moded.batch.target_real_tokens is None
