"""The time of a step, of generating and of networks, and padding: figures by hand, traces, published paces."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from statistics import mean

import pytest
import trainwiz
from trainwiz.core.catalog.gpus import find_gpu
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.flops import (
    LengthCounts,
    cost_of,
    forward_flops,
    network_bytes,
    network_bytes_per_s,
    padding_of,
)
from trainwiz.core.estimate.peak import cache_bytes_per_row
from trainwiz.core.estimate.time import (
    EXPOSED,
    GENERATED,
    HIDDEN_TRIPS,
    IMPLAUSIBLE_SHARE,
    PCIE,
    SPREAD,
    WIDER,
    Range,
    Rate,
    evaluation_time,
    generation_time,
    gpu_rate,
    share_of_peak,
    step_time,
    verdict_of,
)
from trainwiz.core.estimate.workload import Workload

from tests.core.estimate.test_evaluation import evaluating
from tests.core.estimate.test_peak import esm650
from tests.core.plan.machines import config, finding, machine, plan
from tests.each import each
from tools.benchmarks.family_traces import FILE
from tools.benchmarks.family_traces import workload as workload_of
from tools.benchmarks.published.time_rows import planned, read_time_rows


def rate(name: str = "RTX 2080 Super", precision: str = "fp16"):
    spec = find_gpu(name)
    assert spec is not None
    return gpu_rate(spec, precision, tf32=True)


def test_the_guides_step_on_a_2080_super() -> None:
    """6 x 651 sequences of 512 with checkpointing: 11,400 TFLOP at 63 % of 44.6 TFLOP/s take 405 s, moving bytes and the
    host's share make it half as much again."""
    work = esm650(micro_batch=6, accumulation=651, checkpointing=True, strategy="zero2", offload="optimizer")
    time = step_time(work, rate())
    assert 405 < time.step.likely < 700
    assert time.step.high / time.step.likely == pytest.approx(WIDER)
    assert time.verdict == "plausible"


@each(("share", "word"), [(1.2, "impossible"), (0.7, "implausible"), (0.35, "plausible"), (0.05, "idle")])
def test_verdicts(share: float, word: str) -> None:
    assert verdict_of(share) == word
    # The peak of a CPU is a guess by the number of its cores.
    assert verdict_of(share, on_cpu=True) == ("impossible" if share > 1 else "plausible")


def test_bytes_and_kernels_against_traces() -> None:
    """Recorded by a tracer that counted them, for 47 families in full, half and adapted training: operations as counted there,
    bytes and kernels nearly so."""
    found = []
    for one in json.loads(FILE.read_text(encoding="utf-8")):
        for setting, trace in one["traces"].items():
            cost = cost_of(workload_of(one["config"], one["task"], setting))
            assert cost.flops == pytest.approx(trace["flops"], rel=0.12), (one["family"], setting)
            found += [trace["moved_bytes"] / cost.moved_bytes, trace["kernels"] / cost.kernels]
    assert sum(1 / 1.4 < ratio < 1.4 for ratio in found) > 0.9 * len(found), sorted(found)


def test_a_range_ends_where_a_pace_is_implausible() -> None:
    """One count of operations for both: what is computed twice is work."""
    for name in ("RTX 3090", "A100 80GB SXM"):
        work = replace(esm650(micro_batch=16, precision="bf16", checkpointing=True), length=1024)
        time = step_time(work, rate(name, "bf16"))
        assert time.step.high / time.step.low < SPREAD**2 + 1e-9
        fast = work.tokens / time.step.low
        assert share_of_peak(work, rate(name, "bf16"), fast) <= IMPLAUSIBLE_SHARE + 1e-9
        assert verdict_of(share_of_peak(work, rate(name, "bf16"), 0.999 * fast)) == "plausible"


def test_offload_moves_the_gradients_as_deepspeed_does() -> None:
    """Accumulated: once out, then in and out for each further micro-batch; always fp32 out at the end, new weights in."""
    one, two, three = (
        step_time(esm650(accumulation=n, strategy="zero2", offload="optimizer"), rate()).step.high
        - WIDER / SPREAD * step_time(esm650(accumulation=n, strategy="zero2"), rate()).step.high
        for n in (1, 2, 3)
    )
    trip = WIDER * HIDDEN_TRIPS * 2 * esm650().trainable_parameters / PCIE
    assert two - one == pytest.approx(3 * trip, rel=0.01)
    assert three - two == pytest.approx(2 * trip, rel=0.01)


def test_a_token_meets_only_its_own_experts() -> None:
    config = {
        "model_type": "mixtral", "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 4,
        "num_attention_heads": 16, "num_key_value_heads": 4, "num_local_experts": 8, "num_experts_per_tok": 2,
    }  # fmt: skip
    few, many = (read_architecture({**config, "num_local_experts": experts})[0] for experts in (2, 16))
    assert few is not None and many is not None
    flops = [forward_flops(Workload(architecture, 1, 512, 512)) for architecture in (few, many)]
    assert flops[1] == pytest.approx(flops[0], rel=0.02)


def test_nvlink_ends_at_the_board() -> None:
    here, work = rate("A100 80GB SXM", "bf16"), esm650(micro_batch=64, precision="bf16", strategy="ddp")
    alone, eight, sixteen = (step_time(replace(work, world_size=n), here).step.high for n in (1, 8, 16))
    assert sixteen - alone > 5 * (eight - alone) > 0


def test_rows_are_evaluated_in_whole_batches_of_their_own_size() -> None:
    work = replace(esm650(), micro_batch=2, eval_micro_batch=8)
    one, two = (evaluation_time(work, rate(), rows).low for rows in (8, 9))
    assert two == pytest.approx(2 * one)
    assert one == pytest.approx(evaluation_time(replace(work, eval_micro_batch=0, micro_batch=8), rate(), 8).low)


def test_published_paces_are_within_the_range() -> None:
    """Nine of ten that can be planned, by formulas alone. docs/estimator.md judges each source without its own rows."""
    rows = [row for row in read_time_rows() if not row.left_out]
    if not rows:
        pytest.skip("the table of published paces is not here")
    ranges = [planned(row) for row in rows]
    held = sum(one.low <= row.step_s <= one.high for one, row in zip(ranges, rows, strict=True))
    assert len(rows) > 40 and held >= 0.9 * len(rows)
    assert all(one.high / one.low <= WIDER**2 + 1e-9 for one in ranges)


@each(
    ("profile", "allocated_gib", "used_gib", "step_s"),
    [("esm2-h100", 59.5, 61.1, 41.6), ("lora-r64-h100", 30.5, 34.9, 3.13), ("qlora-8b-24g", 16.9, 17.8, 6.8)],
)
def test_what_an_h100_measured(profile: str, allocated_gib: float, used_gib: float, step_s: float) -> None:
    """By formulas alone; docs/estimator.md, "On an H100"."""
    made = trainwiz.plan(profile=profile, gpu="H100 SXM", tier="analytic")
    memory, time = made["memory"], made["time"]
    assert memory["allocated_bytes"] / 2**30 == pytest.approx(allocated_gib, rel=0.05)
    assert memory["low_bytes"] < used_gib * 2**30 < memory["high_bytes"]
    assert time["step_low_s"] < step_s < time["step_high_s"]


RATE = rate("RTX 4080 Super", "bf16")
WORK = evaluating("nllb600", 48, 256, "bf16", generation_length=256, beams=4)


def test_batches_and_processes_divide_the_rows_and_the_likely_length_is_the_quick_end_alone() -> None:
    short, unknown = generation_time(WORK, RATE, 480, 32), generation_time(WORK, RATE, 480)
    assert short.low < unknown.low and short.high == unknown.high
    assert generation_time(WORK, RATE, 480, 10_000) == generation_time(WORK, RATE, 480, 256), "beyond the limit"
    assert generation_time(WORK, RATE, 0) == Range(0.0, 0.0)
    one = generation_time(WORK, RATE, 960)
    assert generation_time(replace(WORK, world_size=4), RATE, 960).low == one.low / 4
    assert generation_time(WORK, RATE, 1).low == pytest.approx(one.low / 20)


def test_every_beam_reads_its_own_keys_and_values() -> None:
    """On a card whose memory is all that takes time: twice the beams move their caches twice."""
    slow = Rate(1e18, 1e9)
    weights, *times = (generation_time(replace(WORK, beams=beams), slow, 48, 256).low for beams in (0, 4, 8))
    assert times[1] - weights == pytest.approx(2 * (times[0] - weights), rel=1e-6)
    cache = cache_bytes_per_row(replace(WORK, beams=4)) / 2
    assert times[0] - weights == pytest.approx(256 * 48 * 4 * cache / 1e9 / GENERATED, rel=1e-6)


SLOW, FAST = network_bytes_per_s(10.0), network_bytes_per_s(4000.0)


def test_ddp_moves_the_gradients_twice_whatever_the_accumulation() -> None:
    """651.6M fp32 gradients round a ring of 4: 3/4 x 2 x 4 bytes each."""
    work = esm650(strategy="ddp", world_size=4)
    assert network_bytes(work) == pytest.approx(1.5 * work.trainable_parameters * work.formats.weights)
    assert network_bytes(replace(work, accumulation=50)) == network_bytes(work)
    # DeepSpeed holds gradients and weights in 16 bits. ZeRO-2 sums after each micro-batch, and both gather the new weights.
    assert network_bytes(replace(work, strategy="zero1", accumulation=50)) == pytest.approx(0.75 * network_bytes(work))
    assert network_bytes(replace(work, strategy="zero2", accumulation=50)) == pytest.approx(25.25 * network_bytes(work))


def test_a_step_over_a_slow_network_takes_as_much_longer() -> None:
    """10 Gbit/s are 1.25 GB/s, of which a ring over TCP has 0.75 at worst; one faster than the bus does not help."""
    here = rate("A100 80GB SXM", "bf16")
    apart = replace(here, network=SLOW)
    work = esm650(strategy="ddp", world_size=4)
    near, far = step_time(work, here).step, step_time(work, apart).step
    assert pytest.approx(0.75e9) == SLOW
    assert step_time(work, replace(here, network=FAST)).step == near
    assert far.low > near.low
    hidden = SPREAD * EXPOSED * network_bytes(work) / here.link
    assert far.high - near.high == pytest.approx(network_bytes(work) / SLOW - hidden, rel=1e-6)


def test_the_plan_of_several_machines() -> None:
    two, fast = (
        plan(machine(), config(engine__strategy="ddp", engine__nodes=2, **said)).time
        for said in ({}, {"planning__network_gbit_s": 100.0})
    )
    assert (two.network_assumed, two.network_gbit_s, fast.network_assumed) == (True, 10.0, False)
    assert 0 < (two.network_high_s or 0) < (two.step_high_s or 0)
    assert fast.network_high_s == pytest.approx((two.network_high_s or 0) / 10)


def test_a_card_that_waits_for_the_network_is_told_so_and_no_larger_micro_batch() -> None:
    """Weights of 8 GB over 1 Gbit/s: the step is all network, which no micro-batch cures."""
    cards = {"engine__nodes": 2, "engine__strategy": "ddp", "planning__network_gbit_s": 1.0, "training__max_steps": 100}
    found = finding(plan(machine("H100 SXM"), config("qwen2.5-1.5b", task="causal-lm", **cards)), "idle")
    assert "for the network" in found.message and "at 1 Gbit/s" in found.message and not found.remedies
    assert "assumed" not in found.message


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
    assert found.waste > 0.3 and 0 < found.arranged_waste == pytest.approx(1 - real / arranged, abs=0.002)
