"""Time of generating: as many positions as the longest text, each at least a pass over the weights."""

from dataclasses import replace

import pytest
from trainwiz.core.catalog.gpus import find_gpu
from trainwiz.core.estimate.peak import cache_bytes_per_row
from trainwiz.core.estimate.time import (
    GENERATED,
    KERNELS_A_LAYER,
    LAUNCH_S,
    SEARCH_S,
    Range,
    Rate,
    generation_time,
    gpu_rate,
)

from tests.core.estimate.test_evaluation import evaluating

SPEC = find_gpu("RTX 4080 Super")
assert SPEC is not None
RATE = gpu_rate(SPEC, "bf16", tf32=True)
WORK = evaluating("nllb600", 48, 256, "bf16", generation_length=256, beams=4)


def test_no_faster_than_the_weights_can_be_read() -> None:
    """Decoder and vocabulary projection of NLLB-600M are 0.46 billion fp32 weights: 2.5 ms a position at 736 GB/s."""
    time = generation_time(WORK, RATE, 48, likely_length=256)
    assert time.low > 256 * 0.0025
    assert time.high < 256 * 0.15


def test_the_likely_length_is_the_quick_end_alone() -> None:
    short, unknown = generation_time(WORK, RATE, 480, 32), generation_time(WORK, RATE, 480)
    assert short.low < unknown.low
    assert short.high == unknown.high
    assert generation_time(WORK, RATE, 480, 10_000) == generation_time(WORK, RATE, 480, 256), "beyond the limit"
    assert generation_time(WORK, RATE, 0) == Range(0.0, 0.0)


def test_batches_and_processes_divide_the_rows() -> None:
    one = generation_time(WORK, RATE, 960)
    assert generation_time(replace(WORK, world_size=4), RATE, 960).low == one.low / 4
    assert generation_time(WORK, RATE, 1).low == one.low / 20


def test_every_beam_reads_its_own_keys_and_values() -> None:
    """On a card whose memory is all that takes time: twice the beams move their caches twice."""
    slow = Rate(1e18, 1e9)
    weights, *times = (generation_time(replace(WORK, beams=beams), slow, 48, 256).low for beams in (0, 4, 8))
    assert times[1] - weights == pytest.approx(2 * (times[0] - weights), rel=1e-6)
    cache = cache_bytes_per_row(replace(WORK, beams=4)) / 2
    assert times[0] - weights == pytest.approx(256 * 48 * 4 * cache / 1e9 / GENERATED, rel=1e-6)


def test_each_position_is_launched_layer_by_layer() -> None:
    """What takes no time but launching and Python's part; a CPU does its reading beside that."""
    endless = Rate(1e24, 1e24)
    position = SEARCH_S + KERNELS_A_LAYER * 12 * LAUNCH_S
    for device in ("cuda", "cpu"):
        time = generation_time(replace(WORK, device=device), endless, 48, 256)
        assert time.low == pytest.approx(256 * position / GENERATED, rel=1e-3)
    slow = Rate(1e24, 1e9)
    cpu, gpu = (generation_time(replace(WORK, device=device), slow, 48, 256).low for device in ("cpu", "cuda"))
    assert cpu > gpu
