"""A benchmark in words."""

from __future__ import annotations

from dataclasses import replace

from trainwiz.core.history.run import Benchmark
from trainwiz.core.language import use_language
from trainwiz.tui.choices import parse_choices
from trainwiz.tui.headless.ending import benchmark_rows

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
    step, pace, memory, host = (text for _, text in benchmark_rows(MEASURED))
    assert step == "0.4 s (0.37 to 0.42 s in 8 steps); planned 0.12 to 0.8 s (roofline)"
    assert pace == "10,261 tokens/s, 8,130 of them real; planned 13,452; 3 % of the time waits for data"
    assert memory == "3.0 GiB allocated at most, planned 2.0 GiB"
    assert host == "1.0 GiB at most, planned 1.0 GiB" and benchmark_rows(MEASURED)[3][0] == "Host RAM"


def test_in_chinese_host_ram_is_no_memory_of_a_card() -> None:
    """What the plan's time rested on is recorded as a word of programs, and read in the language of the reader."""
    use_language("zh")
    try:
        measured = replace(MEASURED, peak_allocated_bytes=None, planned_basis="probe")
        lines = [" ".join(row) for row in benchmark_rows(measured)]
    finally:
        use_language("en")
    assert not any("显存" in line for line in lines) and "probe" not in lines[0] and "实测" in lines[0]


def test_what_is_not_known_is_left_out() -> None:
    on_cpu = replace(MEASURED, peak_allocated_bytes=None, planned_host_ram_bytes=None, data_wait_share=None)
    assert benchmark_rows(on_cpu)[-1] == ("Host RAM", "1.0 GiB at most")
    bare = replace(on_cpu, host_ram_bytes=None, planned_step_low_s=None, tokens_per_s=None)
    ((_, text),) = benchmark_rows(bare)
    assert "planned" not in text
    assert benchmark_rows(None) == []


def test_the_option_asks_for_the_mode() -> None:
    request = parse_choices({"benchmark": "30", "profile": "cpu-demo"}).request
    assert (request.mode, request.benchmark_steps) == ("benchmark", 30)
