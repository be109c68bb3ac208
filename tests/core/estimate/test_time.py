"""The roofline range against worked figures."""

import pytest
from trainwiz.core.catalog.gpus import find_gpu
from trainwiz.core.estimate.flops import forward_flops, micro_batch_flops
from trainwiz.core.estimate.time import (
    Range,
    cpu_rate,
    evaluation_time,
    gpu_rate,
    share_of_peak,
    step_time,
    verdict_of,
)

from tests.core.estimate.test_peak import DOCUMENT, esm650, workload


def rate(name: str = "RTX 2080 Super", precision: str = "fp16"):
    spec = find_gpu(name)
    assert spec is not None
    return gpu_rate(spec, precision, tf32=True)


def test_flops_equal_the_traced_ones() -> None:
    """8.613 TFLOP were counted in the trace of 4 x 512; its fused attention counts 5 products in the backward pass."""
    assert micro_batch_flops(esm650()) / 1e12 == pytest.approx(8.613, rel=0.02)


def test_checkpointing_computes_the_forward_pass_again() -> None:
    work = esm650()
    again = micro_batch_flops(esm650(checkpointing=True))
    assert again == pytest.approx(micro_batch_flops(work) + forward_flops(work))


def test_the_guides_step_on_a_2080_super() -> None:
    """6 x 651 sequences of 512 with checkpointing: 11,200 TFLOP at 20 to 50 % of 44.6 TFLOP/s."""
    work = esm650(micro_batch=6, accumulation=651, checkpointing=True, strategy="zero2", offload="optimizer")
    time = step_time(work, rate())
    assert 480 < time.step.low < 560
    assert 1150 < time.step.high < 1700
    assert time.verdict == "plausible"


def test_offload_costs_time() -> None:
    kept = step_time(esm650(accumulation=100), rate())
    away = step_time(esm650(accumulation=100, strategy="zero2", offload="optimizer"), rate())
    assert away.step.low > kept.step.low
    assert away.step.high > 1.05 * kept.step.high


@pytest.mark.parametrize(
    ("share", "word"), [(1.2, "impossible"), (0.7, "implausible"), (0.35, "plausible"), (0.05, "idle")]
)
def test_verdicts(share: float, word: str) -> None:
    assert verdict_of(share) == word


def test_a_claimed_pace_as_a_share_of_the_peak() -> None:
    """900 tokens/s of a 651M model are about 3.8 TFLOP/s."""
    assert share_of_peak(esm650(), rate(), 900) == pytest.approx(3.8 / 44.6, rel=0.05)


def test_a_format_that_the_card_lacks_runs_at_its_fp32_rate() -> None:
    assert rate(precision="bf16").flops == rate(precision="fp32").flops == pytest.approx(11.2e12, rel=0.01)


def test_a_tiny_batch_on_a_large_card_idles() -> None:
    trace = next(one for one in DOCUMENT["traces"] if one["model"] == "esm2_t6_8M")
    work = workload(trace).with_micro_batch(1)
    assert step_time(work, rate("H100 SXM", "bf16")).verdict == "idle"


def test_more_cpu_threads_are_quicker_but_not_in_proportion() -> None:
    trace = next(one for one in DOCUMENT["traces"] if one["model"] == "esm2_t6_8M")
    from dataclasses import replace

    work = replace(workload(trace), device="cpu", precision="fp32", micro_batch=2)
    one, four = (step_time(work, cpu_rate(threads)).step for threads in (1, 4))
    assert one.low / 4 < four.low < one.low
    assert one.high / 2.1 < four.high < one.high


def test_evaluation_is_cheaper_than_training() -> None:
    work = esm650()
    assert evaluation_time(work, rate(), 4).low < step_time(work, rate()).step.low / 2
    assert evaluation_time(work, rate(), 0) == Range(0.0, 0.0)


def test_ranges_add() -> None:
    assert Range(1, 4).likely == 2
    assert Range(1, 4) + Range(2, 3).times(2) == Range(5, 10)
