"""`trainwiz bench`, with and without --choose, as it is typed; the probes themselves are tested in tests/core/launch."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from itertools import starmap
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.errors import CannotRunError, Finding
from trainwiz.core.history.measurement import history_path, load
from trainwiz.core.history.run import Benchmark
from trainwiz.core.launch import alternatives as turns
from trainwiz.core.launch.alternatives import Turns, alternatives_of, judged
from trainwiz.core.launch.probe_order import ProbeResult
from trainwiz.core.plan.result import Plan
from trainwiz.tui.cli import main
from trainwiz.tui.commands.bench import bench_rows, keep, turns_words
from trainwiz.tui.headless.ending import benchmark_rows
from trainwiz.tui.output import interrupted_by_signals, labelled

from tests.core.history.measurements import HERE, measurement
from tests.core.plan.machines import config, machine, plan, real
from tests.each import each

pytestmark = pytest.mark.usefixtures("here")
GIB = 1024**3
EAGER, _ = ALTERNATIVES = tuple(
    Turns({"engine.attention": value}, {"engine.attention": "sdpa"}, "not_measured")
    for value in ("eager", "flash_attention_2")
)
MEASURED = measurement(
    tokens_per_step=1000.0, host_rss_bytes=3 * GIB, largest_micro_batch=64, largest_note="the time limit was reached"
)
PLAIN = ProbeResult(MEASURED, "data", "", ({"micro_batch": 16, "fits": True},), True, "", 31.4)
ON_A_GPU = measurement(
    peak_allocated_bytes=5 * GIB, peak_reserved_bytes=6 * GIB, device_used_bytes=7 * GIB, world_size=2
)


def test_each_figure_stands_beside_the_one_of_the_plan() -> None:
    made = plan(real(machine(gpu=None)), config("esm2-8m", training__max_steps=10, batch__micro_batch_size=8))

    def said(**changes: Any) -> str:
        return "\n".join(starmap(labelled, bench_rows(made, replace(PLAIN, **changes))))

    text = said()
    assert "8 × 2 sequences of at most 64 tokens; dataset rows" in text and "peak 3.0 GiB" in text
    assert "over 20 steps), 1,000 tokens/s including padding" in text and "a rough estimate for this processor" in text
    assert "micro-batch 64 fits; the time limit was reached" in text
    text = said(measurement=ON_A_GPU, searched=False, problem="out of memory")
    assert "5.0 GiB; planned " in text and "8 × 2 × 2 sequences" in text
    assert "fits; larger ones were not tried" in text and "the probe ended early: out of memory" in text
    assert "synthetic rows of full length" in said(rows="longest")
    note = "with the lengths of the dataset\n          no tokenizer"
    assert note in said(rows="lengths", rows_note="no \x1b[31mtokenizer")


def test_what_was_measured_is_kept_or_it_is_said_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep(PLAIN) == "" and len(load(HERE)) == 1
    (tmp_path / "trainwiz").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert keep(PLAIN).startswith(f"Could not save the measurement to {history_path()}: ")


def test_signals_end_it_as_ctrl_c_does_and_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is before[1]
    finally:
        signal.signal(signal.SIGHUP, before[0])


@each(
    ("pairs", "words"),
    [
        ([(2.0, 1.0)] * 7 + [(2.2, 1.0)], "2.00x the speed (2.00x to 2.20x over 8 rounds); faster: --set engine.attention=eager"),
        ([(1.4, 1.0)] * 19 + [(0.1, 1.0)], "1.40x the speed (1.40x to 1.40x over 20 rounds); faster"),
        ([(1.0, 2.0)] * 8, "slower"),
        ([(1.0, 0.5), (0.5, 1.0)] * 4, "no difference beyond the spread"),
        ([(1.01, 1.0)] * 8, "no difference beyond the spread"),
        ([(2.0, 1.0)] * 4, "too few rounds to tell"),
    ],
)  # fmt: skip
def test_the_median_of_the_turns_with_its_range_decides(pairs: list[tuple[float, float]], words: str) -> None:
    assert words in turns_words(judged(EAGER, pairs))


def test_what_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def notes(**changes: Any) -> dict[str, str]:
        made = plan(real(machine(gpu=None)), config("esm2-8m", **changes))
        return {one.key: one.note for one in alternatives_of(made)}

    here = {"engine.precision": "", "engine.optimizer": "", "engine.compile": ""}
    assert notes() == here, "sdpa is what it has, the other needs a GPU"
    chosen = notes(engine__optimizer="adamw_torch", engine__attention="eager", data__packing=True)
    said = {"engine.attention": "you chose eager", "engine.optimizer": "you chose adamw_torch"}
    assert chosen == {**said, "engine.precision": ""}


class FakeProbe:
    """Steps of 1 s with the plan's own attention, of 2 s with another; FlashAttention does not load."""

    def __init__(self, plan: Plan, data: object, seconds: float, *, in_turns: bool) -> None:
        attention = plan.config.engine.attention
        self.step_s = 1.0 if attention == "sdpa" else 2.0
        self.problem = "no flash-attn" if attention == "flash_attention_2" else ""

    def __enter__(self) -> FakeProbe:
        return self

    def __exit__(self, *error: object) -> None: ...

    def take(self, steps: int) -> float:
        if self.problem:
            raise CannotRunError(Finding("probe_failed", "error", "bench", self.problem))
        return steps * self.step_s


@each("together", [True, False])
def test_turns_go_on_side_by_side_or_one_after_the_other(together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "alternatives_of", lambda plan: ALTERNATIVES)
    monkeypatch.setattr(turns, "_fit_together", lambda plan: together)
    monkeypatch.setattr(turns, "Probe", FakeProbe)
    made = plan(real(machine(gpu=None)), config("esm2-8m"))
    eager, flash = turns.compare(made, None, 60.0, lambda words: None)
    assert (eager.gain, eager.step_s, eager.verdict, eager.turns) == (0.5, 1.0, "slower", 20)
    assert (flash.verdict, flash.note) == ("failed", "no flash-attn")


@pytest.mark.real
def test_a_real_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(turns, "alternatives_of", lambda plan: ALTERNATIVES[:1])
    monkeypatch.setattr(turns, "MOST_TURNS", 2)
    monkeypatch.setattr(turns, "_fit_together", lambda plan: True)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"sequence": "{"MKVLAGTE" * (1 + row % 3)}"}}\n' for row in range(21)))
    sizes = ["--micro-batch", "4", "--length", "32", "--set", "batch.target_samples=8"]
    command = ["bench", "--choose", "--profile", "cpu-demo", "--dataset", str(rows), *sizes]
    assert main([*command, "--seconds", "300", "--json"]) == 0
    (eager,) = json.loads(capsys.readouterr().out)["comparison"]["alternatives"]
    assert (eager["turns"], eager["verdict"]) == (2, "unclear") and eager["gain_low"] <= eager["gain_high"]


STEPS = {"steps": 8, "step_s": 0.4, "step_low_s": 0.37, "step_high_s": 0.42, "planned_step_s": 0.3}
PACE = {"tokens_per_s": 10_261.0, "real_tokens_per_s": 8_130.0, "planned_tokens_per_s": 13_452.0}
PACE |= {"data_wait_share": 0.03}
SIZES = {"peak_allocated_bytes": 3, "peak_reserved_bytes": 4, "device_used_bytes": 5, "host_ram_bytes": 1}
SIZES |= {"planned_allocated_bytes": 2, "planned_device_used_bytes": 6, "planned_host_ram_bytes": 1}
PLANNED = {"planned_step_low_s": 0.12, "planned_step_high_s": 0.8, "planned_basis": "formula"}
BENCHMARK = Benchmark(**STEPS, **PACE, **PLANNED, **{name: GIB * size for name, size in SIZES.items()})  # type: ignore[arg-type]


def test_a_benchmark_stands_beside_the_plan_and_what_is_not_known_is_left_out() -> None:
    assert benchmark_rows(BENCHMARK) == [
        ("Step", "0.4 s (0.37 to 0.42 s over 8 steps); planned 0.12 to 0.8 s"),
        ("Speed", "10,261 tokens/s, 8,130 non-padding; planned 13,452"),
        ("Memory", "3.0 GiB; planned 2.0 GiB"),
        ("RAM", "1.0 GiB; planned 1.0 GiB"),
    ]
    on_cpu = replace(BENCHMARK, peak_allocated_bytes=None, planned_host_ram_bytes=None, planned_step_low_s=None)
    assert [row[0] for row in benchmark_rows(on_cpu)] == ["Step", "Speed", "RAM"]
    assert "planned" not in benchmark_rows(on_cpu)[0][1] + benchmark_rows(on_cpu)[-1][1]
    assert benchmark_rows(None) == []
