"""Measurements on held-out rows and the engine that ran: the same figures wherever a run is shown."""

from __future__ import annotations

import json
from itertools import starmap
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import Attempt, RunState
from trainwiz.core.telemetry.run_source import RunSource
from trainwiz.tui.commands.monitor import summary_rows
from trainwiz.tui.commands.runs import run_show
from trainwiz.tui.headless.ending import ending_of, ending_rows
from trainwiz.tui.output import labelled
from trainwiz.tui.run_words import engine_problems, evaluation_parts
from trainwiz.tui.screens.monitor_cards import plan_lines

from tests.core.telemetry.written_run import NOW_S, write_json, write_lines, write_run
from tests.tui.wizard_parts import make_frozen_plan

EVALUATION = {"eval_loss": 2.611, "eval_perplexity": 13.61, "eval_accuracy": 0.452, "eval_bleu": 24.07}
WORDS = ["loss 2.61", "perplexity 13.6", "accuracy 45.2%", "BLEU 24.1"]
SINGLE = {"code": "engine_not_as_planned", "severity": "warning", "message": "The engine is single."}
OTHER_ENGINE = {"planned": "ddp", "actual": "single", "findings": [SINGLE]}


@pytest.fixture
def run(here: Path) -> Path:
    """A finished translation that was measured twice."""
    folder = write_run(here / "runs" / "translation", status="finished", steps=4, gpus=0, max_steps=16)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    training = [row for row in rows if "loss" in row]
    measured = [{"time_s": NOW_S, "step": step, **EVALUATION} for step in (8, 16)]
    write_lines(folder / "metrics.jsonl", [*training, *measured])
    state = json.loads((folder / "state.json").read_text())
    write_json(folder / "state.json", {**state, "outcome": {"step": 16, **EVALUATION}, "engine": OTHER_ENGINE})
    return folder


def test_the_end_runs_show_and_the_text_monitor_agree(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = {"eval_loss": float("nan"), "eval_accuracy": True, "eval_perplexity": 2191.6}
    assert evaluation_parts(odd) == ["loss NaN", "perplexity 2,192"]
    state = RunState(status="finished", outcome=dict(EVALUATION), engine=OTHER_ENGINE)
    rows, document = dict(ending_rows(RunFolder(run), state)), ending_of(RunFolder(run), state)
    assert (rows["Eval"], rows["Engine"]) == (", ".join(WORDS), "! The engine is single.")
    assert document["evaluation"] == EVALUATION
    assert (document["engine"]["planned"], document["engine"]["actual"]) == ("ddp", "single")
    run_show("translation", as_json=False)
    shown = capsys.readouterr().out
    text = "\n".join(starmap(labelled, summary_rows(RunSource(RunFolder(run), clock=lambda: NOW_S).poll())))
    for said in (shown, text):
        for words in (
            "eval_perplexity 13.6",
            "eval_accuracy 45.2%",
            "eval_bleu 24.1",
            "warning: The engine is single.",
        ):
            assert words in said


def test_an_engine_that_was_not_planned_is_always_said() -> None:
    other = {"planned": "ddp", "actual": "single", "findings": ["x", {"message": 3}]}
    assert engine_problems(other) == ["The engine is single, but ddp was planned."]
    assert engine_problems(OTHER_ENGINE) == ["The engine is single."]
    assert engine_problems({}) == engine_problems({"planned": "ddp", "actual": "ddp", "findings": []}) == []


def test_the_plan_card_names_the_engine_and_what_recovery_changed() -> None:
    document = make_frozen_plan(PlanRequest(profile="2080super", overrides={"engine.device": "cuda"})).to_json()
    changes = {"batch.micro_batch_size": 3, "batch.gradient_accumulation_steps": 1302}
    attempt = Attempt(2, 0.0, resume="checkpoint-5", because="cuda_oom", changes=changes)

    def said(engine: dict[str, Any], *attempts: Attempt) -> str:
        state = RunState(engine=engine, attempts=[*attempts])
        return " ".join(word for line in plan_lines(document, state) for word in line.plain.split())

    text = said({"planned": "ddp", "actual": "ddp"}, attempt)
    assert "651,000,000 parameters" in text and "The engine" not in text
    for words in (
        "6 × 651 = 3,906 sequences, 1,999,872 tokens per step (−0.01% from the target)",
        "✓ fits 5.4 of 7.8 GiB",
        "RAM 21.4 GiB of 62.7 GiB ✓ fits Disk 18.9 GiB of 181.0 GiB ✓ fits",
        "! 7.3 to 18 years, implausible 500,000 steps, 7.7 to 19 min per step",
    ):
        assert words in text, words
    assert "attempt 2, because GPU memory ran out; from step 5: 3 × 1,302 instead of 6 × 651" in text
    assert "instead of" not in said({}, Attempt(2, 0.0))
    assert "! The engine is single." in said(OTHER_ENGINE)
    # Of another version what it found is told.
    document["memory"] = {"device_used_bytes": "5 GiB"}
    assert "The plan takes years." in said({}) and "sequences" not in said({})
