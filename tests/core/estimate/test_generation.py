"""Time of generating: as many positions as the longest text, each at least a pass over the weights."""

from dataclasses import replace

from trainwiz.core.catalog.gpus import find_gpu
from trainwiz.core.estimate.generation import generation_time
from trainwiz.core.estimate.time import Range, cpu_rate, gpu_rate

from tests.core.estimate.test_evaluation import evaluating

SPEC = find_gpu("RTX 4080 Super")
assert SPEC is not None
RATE = gpu_rate(SPEC, "bf16", tf32=True)
WORK = evaluating("nllb600", 48, 256, "bf16", generation_length=256, beams=4)


def test_no_faster_than_the_weights_can_be_read() -> None:
    """Decoder and vocabulary projection of NLLB-600M are 0.46 billion fp32 weights: 2.5 ms a position at 736 GB/s."""
    time = generation_time(WORK, RATE, 48, likely_length=256)
    assert time.low > 256 * 0.0025
    assert time.high < 256 * 0.1


def test_the_likely_length_is_the_quick_end_alone() -> None:
    short, unknown = generation_time(WORK, RATE, 480, 32), generation_time(WORK, RATE, 480)
    assert short.low < unknown.low
    assert short.high == unknown.high


def test_batches_and_processes_divide_the_rows() -> None:
    one = generation_time(WORK, RATE, 960)
    assert generation_time(replace(WORK, world_size=4), RATE, 960).low == one.low / 4
    assert generation_time(WORK, RATE, 1).low == one.low / 20


def test_nothing_to_generate_takes_no_time() -> None:
    assert generation_time(WORK, RATE, 0) == Range(0.0, 0.0)
    assert generation_time(replace(WORK, generation_length=0), RATE, 100) == Range(0.0, 0.0)


def test_on_a_cpu_too() -> None:
    time = generation_time(replace(WORK, device="cpu", precision="fp32"), cpu_rate(2), 48)
    assert 0 < time.low < time.high
