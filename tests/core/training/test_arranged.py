"""Trainings whose rows are arranged by length: less padding, the same rows and gradient, exact resumes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.launch.start import changed_config, prepare_again, setup_of
from trainwiz.core.run.attempts import Recovery, write_recoveries
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.supervise.attempt import put_away_last_attempt
from trainwiz.core.supervise.recovery import Retry, Situation, decide
from trainwiz.core.training.batches import FILLER
from trainwiz.core.training.tasks import build_task

from tests.conftest import REPOSITORY
from tests.core.training.gradients import measured
from tests.core.training.recording import samples
from tests.core.training.runs import (
    different_tensors,
    start,
    steps_of,
    stop_at,
    text_config,
    tiny_config,
    train,
    write_run,
)
from tests.core.training.test_engines import needs_deepspeed
from tests.each import each
from tests.site import FAULTS_VARIABLE

GROUPED = {"data__group_by_length": True}
PLAIN, ARRANGED = ({"data__arrange_by_length": arranged} for arranged in (False, True))
MAKERS: dict[str, Any] = {"masked-lm": tiny_config, "causal-lm": text_config, "seq2seq": text_config}
MODELS = {"causal-lm": ("gpt2-tiny",), "seq2seq": ("t5-chat-tiny",), "masked-lm": ()}


def config_of(task: str, **changes: Any) -> RunConfig:
    config: RunConfig = MAKERS[task](*MODELS[task], **changes)
    return config


def tokens_of_an_epoch(config: RunConfig, folder: Path, processes: int = 1) -> tuple[list[int], int, int]:
    """(rows in their order, real tokens, tokens with padding) of epoch 0, inputs and labels together."""
    parts = build_task(config, folder, None, processes)
    parts.sampler.fill_up((config.batch.micro_batch_size or 1) * processes)
    keys = list(parts.sampler)
    micro = config.batch.micro_batch_size or 1
    real = padded = 0
    for start_at in range(0, len(keys), micro):
        rows = [parts.train[key] for key in keys[start_at : start_at + micro]]
        batch = parts.collate(rows)
        real += sum(len(tokens) + len(labels) for tokens, labels in rows)
        padded += batch["input_ids"].numel() + batch["labels"].numel()
    return [row for _, row in keys], real, padded


@each("streaming", [False, True])
@each("task", sorted(MAKERS))
def test_micro_batches_hold_rows_of_like_length(task: str, streaming: bool, tmp_path: Path) -> None:
    changes = {"data__streaming": streaming, "data__concatenate": False}
    rows, real, padded = tokens_of_an_epoch(config_of(task, **changes, **PLAIN), tmp_path / "plain", processes=2)
    grouped, same, less = tokens_of_an_epoch(config_of(task, **changes, **GROUPED), tmp_path / "grouped", processes=2)
    count = len(rows) - rows.count(FILLER)
    assert sorted(grouped) == sorted(rows) and set(grouped) - {FILLER} == set(range(count))
    assert abs(same - real) <= 0.02 * real
    assert less - same < 0.5 * (padded - real)


@pytest.mark.real
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.all)])
def test_the_gradient_of_a_step_is_that_of_the_drawn_order_and_of_the_plain_trainer(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fp32, dropout off, label smoothing on, three tasks, each rank with its share; DDP where there are two."""
    if processes == 1:
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
        found = measured(tmp_path, 1)
    else:
        launched = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={processes}", "--standalone"]
        words = [*launched, "-m", "tests.core.training.gradients", str(tmp_path), str(processes)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False, cwd=REPOSITORY)
        assert done.returncode == 0, done.stderr[-3000:]
        found = json.loads((tmp_path / "gradients.json").read_text())
    assert len(found["orders"]) == 3
    for model, of_model in found["orders"].items():
        tokens = of_model["tokens"]
        assert tokens["arranged"] < tokens["plain"], f"{model}: the order changed nothing"
        assert of_model["norm"] > 0 and max(of_model["apart"].values()) <= 1e-5, (model, of_model)
    packed = found["orders"]["gpt2-tiny"]["tokens"]
    assert packed["packed"] < 0.95 * packed["plain"], "nothing was packed"
    # For ESM the Trainer of transformers takes the mean of the means of micro-batches, for T5 that over all labels.
    esm, t5 = found["stock"]["esm2-tiny"], found["stock"]["t5-chat-tiny"]
    assert esm["micro_batches"] <= 1e-5 < 1e-3 < esm["tokens"], esm
    assert t5["tokens"] <= 1e-5 < 1e-3 < t5["micro_batches"], t5


@pytest.mark.real
@pytest.mark.parametrize(
    "engine", [{}, pytest.param({"engine__processes": 2, "engine__strategy": "ddp"}, marks=pytest.mark.all)]
)
def test_stopped_and_resumed_equals_uninterrupted(engine: dict[str, Any], tmp_path: Path) -> None:
    """The stop falls into the middle of a pool and of an epoch of streamed rows."""
    changes = {**GROUPED, **engine, "data__streaming": True}
    config = config_of("causal-lm", training__max_steps=14, checkpoint__every_steps=14, **changes)
    whole, folder = write_run(tmp_path / "whole", config), write_run(tmp_path / "stopped", config)
    train(whole, config)
    stopped = stop_at(folder, start(folder, config), 7)["step"]
    assert 7 <= stopped < 14
    train(folder, config, "--resume", f"checkpoint-{stopped}")
    assert different_tensors(whole / "checkpoint-14", folder / "checkpoint-14") == []
    keys = ("loss", "tokens", "real_tokens")
    (before, after) = ([[line[key] for key in keys] for line in steps_of(run).values()] for run in (whole, folder))
    assert len(after) == 14 and after == before


# After recovery each optimizer step sees the samples, the rate and the loss that it would have seen undisturbed.

STEPS, SAVED, FAILS = 9, 4, 5
"""107 rows: with 40 to 48 a step, an epoch is three steps, the last one short."""


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


@pytest.mark.real
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
    told, expected = steps_of(folder), steps_of(whole)
    for step in range(1, STEPS + 1):
        assert told[step]["learning_rate"] == pytest.approx(expected[step]["learning_rate"], rel=1e-12)
        assert told[step]["loss"] == pytest.approx(expected[step]["loss"], rel=2e-4)
    engine_json = json.loads((folder / "engine.json").read_text())
    assert engine_json["micro_batch_size"] == smaller
    assert engine_json["gradient_accumulation_steps"] == micro * accumulation // smaller
