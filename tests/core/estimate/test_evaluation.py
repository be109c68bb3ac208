"""Memory of evaluation against traces of the real models and of trainwiz's own sums; keys and values by hand."""

from dataclasses import replace

import pytest
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.memory import estimate_evaluation, worse_verdict
from trainwiz.core.estimate.peak import Peak, cache_bytes_per_row, evaluation_peak, generation_peak, weight_copies
from trainwiz.core.estimate.workload import Workload

from tests.core.estimate.test_peak import DOCUMENT, GIB
from tests.each import each

# (model, rows, length, precision, GiB): one evaluation after two steps, traced as in test_peak.
TRACES = [
    ("nllb600", 8, 128, "bf16", 8.728),
    ("nllb600", 8, 128, "bf16-true", 4.139),
    ("gpt2medium", 4, 512, "bf16", 5.024),
    ("esm650", 8, 512, "bf16", 8.710),
    ("llama1b", 2, 512, "fp32", 14.467),
]


def evaluating(model: str, rows: int, length: int, precision: str, **more: object) -> Workload:
    architecture, reason = read_architecture(DOCUMENT["models"][model]["config"])
    assert architecture is not None, reason
    work = Workload(architecture, rows, length, length, precision=precision, eval_micro_batch=rows)
    return replace(work, **more)  # type: ignore[arg-type]


@each(("model", "rows", "length", "precision", "gib"), TRACES)
def test_an_evaluation(model: str, rows: int, length: int, precision: str, gib: float) -> None:
    peak = evaluation_peak(evaluating(model, rows, length, precision))
    assert peak is not None and peak.allocated_bytes / GIB == pytest.approx(gib, rel=0.02)


def parts(peak: Peak | None) -> dict[str, int]:
    assert peak is not None
    return peak.moment.parts


def test_eager_scores_can_be_the_fullest_of_an_evaluation() -> None:
    """Two fp32 tensors of rows x heads x length x length, where the fused kernel has none."""
    assert estimate_evaluation(evaluating("esm650", 8, 512, "bf16", eval_micro_batch=0)) is None, "nothing held out"
    plain, eager = (
        parts(evaluation_peak(evaluating("tinyllama", 1, 4096, "bf16-true", attention=name)))
        for name in ("sdpa", "eager")
    )
    assert eager["temporary"] == pytest.approx(2 * 4 * 32 * 4096**2, rel=0.1)
    assert plain["temporary"] < eager["temporary"] and eager["logits"] == 0


def test_fsdp_evaluates_without_copies_of_autocast() -> None:
    """What it gathers is in half precision already."""
    alone = evaluating("llama1b", 2, 512, "bf16")
    shared = replace(alone, strategy="fsdp", world_size=4)
    copies = weight_copies(alone)
    found, two, eight = (
        evaluation_peak(one) for one in (alone, replace(shared, world_size=2), replace(shared, world_size=8))
    )
    assert parts(found)["temporary"] - parts(two)["temporary"] == copies > GIB
    assert sum(parts(two).values()) > sum(parts(eight).values())


def test_keys_and_values_of_every_beam() -> None:
    """TinyLlama: 22 layers of 4 key heads of 64 in half precision, for prompt and answer. NLLB-600M: 12 decoder layers of
    width 1024, for the text itself and for the source; and the source's states."""
    causal = evaluating("tinyllama", 1, 128, "bf16-true", generation_length=28)
    assert cache_bytes_per_row(causal) == 2 * 22 * (4 * 64) * 128 * 2, "they share the sequence"
    pair = evaluating("nllb600", 1, 200, "bf16-true", generation_length=50)
    assert cache_bytes_per_row(pair) == 2 * 12 * 1024 * (50 + 200) * 2 + 200 * 1024 * 2
    fuller = estimate_evaluation(evaluating("tinyllama", 64, 2048, "bf16-true", generation_length=1024, beams=8))
    assert fuller is not None and "generating" in fuller.peak_moment
    assert [worse_verdict(one, "tight") for one in ("fits", "does_not_fit", None)] == ["tight", "does_not_fit", None]
    work = evaluating("nllb600", 8, 256, "bf16-true", generation_length=256)
    one, four = (parts(generation_peak(replace(work, beams=beams))) for beams in (1, 4))
    assert four["activations"] == 4 * one["activations"]
    assert four["logits"] == 4 * one["logits"] == 4 * 8 * 256_206 * 16
