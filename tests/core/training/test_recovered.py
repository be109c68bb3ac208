"""After recovery each optimizer step sees the samples, the rate and the loss that it would have seen undisturbed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.launch.start import changed_config, prepare_again, setup_of
from trainwiz.core.run.attempts import Recovery, write_recoveries
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.supervise.attempt import put_away_last_attempt
from trainwiz.core.supervise.recovery import Retry, Situation, decide

from tests.core.training.recording import samples
from tests.core.training.runs import metrics, start, tiny_config, train, write_run
from tests.core.training.test_engines import needs_deepspeed
from tests.site import FAULTS_VARIABLE

pytestmark = pytest.mark.real
STEPS, SAVED, FAILS = 9, 4, 5
"""107 rows: with 40 to 48 a step, an epoch is three steps, the last one short."""


def lines(folder: Path) -> dict[int, dict[str, Any]]:
    return {line["step"]: line for line in metrics(folder) if "loss" in line}


SETUPS = {
    "one process, 6 x 8": (1, 6, 8, 3, {}),
    "one process, 5 x 8": (1, 5, 8, 4, {}),
    "two processes, 5 x 4": (2, 5, 4, 4, {"engine__strategy": "ddp"}),
    "two processes, ZeRO-2, 6 x 4": (2, 6, 4, 3, {"engine__strategy": "zero2"}),
}


MARKS = {
    "two processes, ZeRO-2, 6 x 4": [needs_deepspeed, pytest.mark.all],
    "two processes, 5 x 4": [pytest.mark.all],
    "one process, 5 x 8": [pytest.mark.all],
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, [])) for name in SETUPS])
def test_every_step_sees_what_it_would_have_seen(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes, micro, accumulation, smaller, engine = SETUPS[name]
    config = tiny_config(
        engine__processes=processes,
        batch__micro_batch_size=micro,
        batch__gradient_accumulation_steps=accumulation,
        training__max_steps=STEPS,
        training__schedule="cosine",
        training__warmup=0.25,
        checkpoint__every_steps=SAVED,
        **engine,
    )
    whole = write_run(tmp_path / "whole", config)
    train(whole, config, recording=True)

    folder = write_run(tmp_path / "recovered", config)
    monkeypatch.setenv(FAULTS_VARIABLE, f"oom@{FAILS}:above={smaller}")
    assert start(folder, config, recording=True).wait(600) != 0
    run = RunFolder(folder)
    failure = read_json(run.failure_json(0)) or {}
    assert failure["type"] == "OutOfMemoryError" and failure["phase"] == "training"
    setup = setup_of(config)
    assert setup is not None
    retry = decide("cuda_oom", Situation(setup))
    assert isinstance(retry, Retry)
    put_away_last_attempt(run, 1)
    write_recoveries(run, [Recovery(2, "cuda_oom", SAVED, 0.0, retry.changes)])
    monkeypatch.chdir(folder)
    answer = prepare_again(run)
    assert answer["setup"]["micro_batch_size"] == smaller
    now = changed_config(run)
    train(folder, now, "--resume", f"checkpoint-{SAVED}", recording=True)

    for path in (whole, folder):
        outcome = json.loads((path / "outcome.json").read_text())
        assert (outcome["outcome"], outcome["step"]) == ("finished", STEPS)
    planned, found = samples(whole), samples(folder)
    assert sorted(planned) == sorted(found) == list(range(1, STEPS + 1))
    assert found == planned
    assert sum(len(step["rows"]) for step in found.values()) == 3 * 107
    rows = micro * accumulation * processes
    assert len(planned[1]["rows"]) == rows and len(planned[3]["rows"]) == 107 - 2 * rows
    told, expected = lines(folder), lines(whole)
    for step in range(1, STEPS + 1):
        assert told[step]["learning_rate"] == pytest.approx(expected[step]["learning_rate"], rel=1e-12)
        assert told[step]["loss"] == pytest.approx(expected[step]["loss"], rel=2e-4)
    engine_json = json.loads((folder / "engine.json").read_text())
    assert engine_json["micro_batch_size"] == smaller
    assert engine_json["gradient_accumulation_steps"] == micro * accumulation // smaller
