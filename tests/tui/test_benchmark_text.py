"""A benchmark in words."""

from __future__ import annotations

from dataclasses import replace

from trainwiz.core.history.benchmark import Benchmark
from trainwiz.tui.choices import parse_choices
from trainwiz.tui.headless.benchmark_text import benchmark_lines, memory_words

MEASURED = Benchmark(
    steps=8,
    step_s=0.4,
    step_low_s=0.37,
    step_high_s=0.42,
    tokens_per_s=10_261.0,
    real_tokens_per_s=8_130.0,
    data_wait_share=0.03,
    peak_allocated_bytes=3 * 2**30,
    peak_reserved_bytes=4 * 2**30,
    device_used_bytes=5 * 2**30,
    host_ram_bytes=2**30,
    planned_step_s=0.3,
    planned_step_low_s=0.12,
    planned_step_high_s=0.8,
    planned_tokens_per_s=13_452.0,
    planned_basis="roofline",
    planned_allocated_bytes=2 * 2**30,
    planned_device_used_bytes=6 * 2**30,
    planned_host_ram_bytes=2**30,
)


def test_each_figure_stands_beside_the_plans() -> None:
    step, pace, memory = (line.split(maxsplit=1)[1] for line in benchmark_lines(MEASURED))
    assert step == "0.4 s (0.37 to 0.42 s in 8 steps); planned 0.12 to 0.8 s (roofline)"
    assert pace == "10,261 tokens/s, 8,130 of them real; planned 13,452; 3 % of the time waits for data"
    assert memory.startswith("3.0 GiB allocated at most, planned 2.0 GiB; 1.0 GiB host RAM at most")


def test_what_is_not_known_is_left_out() -> None:
    on_cpu = replace(MEASURED, peak_allocated_bytes=None, planned_host_ram_bytes=None, data_wait_share=None)
    assert memory_words(on_cpu) == "1.0 GiB host RAM at most"
    bare = replace(on_cpu, host_ram_bytes=None, planned_step_low_s=None, tokens_per_s=None)
    assert len(benchmark_lines(bare)) == 1 and "planned" not in benchmark_lines(bare)[0]
    assert benchmark_lines(None) == []


def test_the_option_asks_for_the_mode() -> None:
    request = parse_choices({"benchmark": "30", "profile": "cpu-demo"}).request
    assert (request.mode, request.benchmark_steps) == ("benchmark", 30)
