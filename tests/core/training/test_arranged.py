"""Trainings whose rows are arranged by length: less padding, the same rows and gradient, exact resumes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file
from trainwiz.core.config import RunConfig
from trainwiz.core.training.batches import FILLER
from trainwiz.core.training.tasks import build_task

from tests.core.training.runs import metrics, start, tiny_config, train, write_run
from tests.core.training.text_runs import text_config
from tests.each import each

ROOT = Path(__file__).parents[3]

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
@pytest.mark.parametrize("processes", [1, 2])
def test_the_gradient_of_a_step_is_that_of_the_drawn_order_and_of_the_plain_trainer(
    processes: int, tmp_path: Path
) -> None:
    """fp32, dropout off, label smoothing on, three tasks, each rank with its share; DDP where there are two."""
    launched = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={processes}", "--standalone"]
    words = [*launched, "-m", "tests.core.training.window_gradients", str(tmp_path), str(processes)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "gradients.json").read_text())
    assert len(found["orders"]) == 3
    for model, of_model in found["orders"].items():
        assert of_model["arranged"] < of_model["plain"], f"{model}: the order changed nothing"
        assert of_model["norm"] > 0 and of_model["apart"] <= 1e-5, (model, of_model)
        assert of_model["short"] <= 1e-5, (model, of_model)
    # For ESM the Trainer of transformers takes the mean of the means of micro-batches, for T5 that over all labels.
    esm, t5 = found["stock"]["esm2-tiny"], found["stock"]["t5-chat-tiny"]
    assert esm["micro_batches"] <= 1e-5 < 1e-3 < esm["tokens"], esm
    assert t5["tokens"] <= 1e-5 < 1e-3 < t5["micro_batches"], t5


def tensors_differ(a: Path, b: Path) -> list[str]:
    first, second = load_file(a / "model.safetensors"), load_file(b / "model.safetensors")
    assert first.keys() == second.keys() and first
    return [name for name in first if not torch.equal(first[name], second[name])]


def seen(folder: Path) -> dict[int, tuple[float, int, int]]:
    lines = [line for line in metrics(folder) if "loss" in line]
    return {line["step"]: (line["loss"], line["tokens"], line["real_tokens"]) for line in lines}


def stop_all_at(folder: Path, process: subprocess.Popen[bytes], step: int) -> None:
    """SIGTERM to every training process, which torch starts in sessions of their own where there are several."""
    deadline = time.monotonic() + 200
    while not any(line.get("step", 0) >= step for line in metrics(folder)):
        assert process.poll() is None and time.monotonic() < deadline, (folder / "train.log").read_text()[-4000:]
        time.sleep(0.02)
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()


@pytest.mark.real
@pytest.mark.parametrize(
    ("task", "changes"),
    [
        pytest.param("masked-lm", {"data__workers": 2}, marks=pytest.mark.all),
        ("causal-lm", {"data__streaming": True, "engine__processes": 2, "engine__strategy": "ddp"}),
    ],
)
def test_stopped_and_resumed_equals_uninterrupted(task: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """The stop falls into the middle of a pool and of an epoch."""
    config = config_of(task, training__max_steps=24, checkpoint__every_steps=24, **changes, **GROUPED)
    whole, folder = write_run(tmp_path / "whole", config), write_run(tmp_path / "stopped", config)
    assert train(whole, config)["outcome"] == "finished"
    process = start(folder, config)
    stop_all_at(folder, process, 7)
    assert process.wait(60) == 0, (folder / "train.log").read_text()[-4000:]
    stopped = json.loads((folder / "outcome.json").read_text())["step"]
    assert 7 <= stopped < 24
    assert train(folder, config, "--resume", f"checkpoint-{stopped}")["outcome"] == "finished"
    assert tensors_differ(whole / "checkpoint-24", folder / "checkpoint-24") == []
    assert seen(folder) == seen(whole)


@pytest.mark.real
@pytest.mark.all
def test_a_smaller_micro_batch_goes_on_with_the_same_steps(tmp_path: Path) -> None:
    """As after a start with half the micro-batch: the steps keep their rows, so their losses stay what they were."""
    losses = []
    for micro, accumulation in ((4, 2), (2, 4)):
        sizes = {"batch__micro_batch_size": micro, "batch__gradient_accumulation_steps": accumulation}
        config = tiny_config(training__max_steps=9, **sizes, **GROUPED)
        folder = write_run(tmp_path / f"{micro}", config)
        train(folder, config)
        losses.append([seen(folder)[step] for step in range(1, 10)])
    assert [real for *_, real in losses[0]] == [real for *_, real in losses[1]]
    assert [loss for loss, *_ in losses[0]] == pytest.approx([loss for loss, *_ in losses[1]], rel=1e-4)
