"""What several machines move between them in a step, and how long that takes at worst."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trainwiz.core.catalog.gpus import find_gpu
from trainwiz.core.estimate.flops import Network, network_bytes, network_time_s
from trainwiz.core.estimate.time import EXPOSED, SPREAD, gpu_rate, step_time

from tests.core.estimate.test_peak import esm650
from tests.core.plan.machines import config, finding, machine, plan

SLOW, FAST = Network(10.0, assumed=False), Network(4000.0, assumed=False)


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
    spec = find_gpu("A100 80GB SXM")
    assert spec is not None
    here = gpu_rate(spec, "bf16", tf32=True)
    apart = replace(here, network=SLOW.bytes_per_s)
    work = esm650(strategy="ddp", world_size=4)
    near, far = step_time(work, here).step, step_time(work, apart).step
    assert network_time_s(work, SLOW) == pytest.approx(network_bytes(work) / 0.75e9)
    assert step_time(work, replace(here, network=FAST.bytes_per_s)).step == near
    assert far.low > near.low
    hidden = SPREAD * EXPOSED * network_bytes(work) / here.link
    assert far.high - near.high == pytest.approx(network_time_s(work, SLOW) - hidden, rel=1e-6)


def test_the_plan_of_several_machines() -> None:
    two = plan(machine(), config(engine__strategy="ddp", engine__nodes=2))
    assert (two.time.network_assumed, two.time.network_gbit_s) == (True, 10.0)
    assert two.time.network_high_s is not None and two.time.step_high_s is not None
    assert 0 < two.time.network_high_s < two.time.step_high_s
    fast = plan(machine(), config(engine__strategy="ddp", engine__nodes=2, planning__network_gbit_s=100.0))
    assert not fast.time.network_assumed
    assert fast.time.network_high_s == pytest.approx(two.time.network_high_s / 10)


def test_a_card_that_waits_for_the_network_is_told_so_and_no_larger_micro_batch() -> None:
    """Weights of 8 GB over 1 Gbit/s: the step is all network, which no micro-batch cures."""
    cards = config(
        "qwen2.5-1.5b", task="causal-lm", engine__nodes=2, engine__strategy="ddp", planning__network_gbit_s=1.0
    )
    found = finding(plan(machine("H100 SXM"), cards.with_values({"training.max_steps": 100}, "you")), "idle")
    assert "for the network" in found.message and "at 1 Gbit/s" in found.message and not found.remedies
    assert "assumed" not in found.message
