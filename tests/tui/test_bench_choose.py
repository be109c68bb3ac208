"""`trainwiz bench --choose`: what is measured, what its turns say, and one real comparison."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.launch import alternatives as turns
from trainwiz.core.launch.alternatives import Alternative, Turns, alternatives_of, judged
from trainwiz.tui.cli import main
from trainwiz.tui.commands.bench import turns_words

from tests.core.plan.machines import config, machine, plan, real
from tests.each import each

EAGER = Turns({"engine.attention": "eager"}, {"engine.attention": "sdpa"}, "not_measured")


@each(
    ("pairs", "words"),
    [
        ([(2.0, 1.0)] * 7 + [(2.2, 1.0)], "2.00 times the pace (2.00 to 2.20 in 8 turns); faster: --set engine.attention=eager"),
        ([(1.0, 2.0)] * 8, "slower"),
        ([(1.0, 0.5), (0.5, 1.0)] * 4, "no difference beyond the spread"),
        ([(1.01, 1.0)] * 8, "no difference beyond the spread"),
        ([(2.0, 1.0)] * 4, "too few turns to tell"),
    ],
)  # fmt: skip
def test_the_median_with_its_range_decides(pairs: list[tuple[float, float]], words: str) -> None:
    assert words in turns_words(judged(EAGER, pairs))


def test_one_disturbed_turn_of_many_is_outside_of_the_range() -> None:
    made = judged(EAGER, [(1.4, 1.0)] * 19 + [(0.1, 1.0)])
    assert (made.gain, made.gain_low, made.verdict) == (1.4, 1.4, "faster")


def test_what_is_not_measured_says_why() -> None:
    full = plan(real(machine(gpu=None)), config("esm2-8m", batch__sequence_length=1024, engine__precision="fp32"))
    full = replace(full, machine=replace(full.machine, ram_available_bytes=int(1.2 * full.memory.host_ram_bytes)))
    notes = {one.key: one.note for one in alternatives_of(full)}
    assert notes["engine.precision"] == "you chose fp32" and notes["engine.attention"].startswith("it may take")
    packed = alternatives_of(plan(real(machine(gpu=None)), config("esm2-8m", data__packing=True)))
    assert {one.key for one in packed if "end to end" in one.note} == {"engine.attention", "engine.compile"}


@pytest.mark.real
@pytest.mark.parametrize("together", [True, False])
def test_a_real_comparison(
    together: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [Alternative("engine.attention", value, "sdpa") for value in ("eager", "flash_attention_2")]
    monkeypatch.setattr(turns, "alternatives_of", lambda plan: tuple(found))
    monkeypatch.setattr(turns, "MOST_TURNS", 2)
    monkeypatch.setattr(turns, "_fit_together", lambda plan, one: together)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"sequence": "{"MKVLAGTE" * (1 + row % 3)}"}}\n' for row in range(21)))
    sizes = ["--micro-batch", "4", "--length", "32", "--set", "batch.target_samples=8"]
    command = ["bench", "--choose", "--profile", "cpu-demo", "--dataset", str(rows), *sizes]
    assert main([*command, "--seconds", "300", "--json"]) == 0
    eager, flash = json.loads(capsys.readouterr().out)["comparison"]["alternatives"]
    assert (eager["turns"], eager["verdict"]) == (2, "unclear") and eager["gain_low"] <= eager["gain_high"]
    assert flash["verdict"] == "failed" and "flash" in flash["note"].lower()


def test_another_machine_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--choose", "--gpu", "RTX 3090"]) == 2
    assert "it plans for another machine" in capsys.readouterr().err
