"""Rows arranged by length: less padding, the same rows and gradient; after recovery each step sees what it would have seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.export.training_arguments import training_arguments
from trainwiz.core.launch.start import prepare_again, setup_of
from trainwiz.core.run.attempts import Recovery, write_recoveries
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.supervise.attempt import put_away_last_attempt
from trainwiz.core.supervise.recovery import Retry, Situation, decide
from trainwiz.core.training.batches import FILLER, FILLER_TOKENS
from trainwiz.core.training.metrics import StepMeter
from trainwiz.core.training.tasks import build_task
from trainwiz.core.training.trainer import RunTrainer
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

from tests.core.training.recording import samples
from tests.core.training.runs import CHAT, PAIRS, TINY, start, steps_of, text_config, tiny_config, train, write_run
from tests.each import each
from tests.site import FAULTS_VARIABLE

GROUPED = {"data__group_by_length": True}
PLAIN, ARRANGED = ({"data__arrange_by_length": arranged} for arranged in (False, True))
MODELS = ("gpt2-tiny", "t5-chat-tiny", "esm2-tiny")


def of_model(model: str, **changes: Any) -> RunConfig:
    return tiny_config(**changes) if model == "esm2-tiny" else text_config(model, **changes)


def tokens_of_an_epoch(config: RunConfig, folder: Path, processes: int = 1) -> tuple[list[int], int, int]:
    """(rows in their order, real tokens, tokens with padding) of epoch 0, inputs and labels together."""
    parts = build_task(config, folder, None, processes)
    micro = config.batch.micro_batch_size or 1
    parts.sampler.fill_up(micro * processes)
    keys = list(parts.sampler)
    real = padded = 0
    for start_at in range(0, len(keys), micro):
        rows = [parts.train[key] for key in keys[start_at : start_at + micro]]
        batch = parts.collate(rows)
        real += sum(len(tokens) + len(labels) for tokens, labels in rows)
        padded += batch["input_ids"].numel() + batch["labels"].numel()
    return [row for _, row in keys], real, padded


@each("streaming", [False, True])
@each("model", MODELS)
def test_micro_batches_hold_rows_of_like_length(model: str, streaming: bool, tmp_path: Path) -> None:
    changes = {"data__streaming": streaming, "data__concatenate": False}
    rows, real, padded = tokens_of_an_epoch(of_model(model, **changes, **PLAIN), tmp_path / "plain", processes=2)
    grouped, same, less = tokens_of_an_epoch(of_model(model, **changes, **GROUPED), tmp_path / "grouped", processes=2)
    count = len(rows) - rows.count(FILLER)
    assert sorted(grouped) == sorted(rows) and set(grouped) - {FILLER} == set(range(count))
    assert abs(same - real) <= 0.02 * real
    assert less - same < 0.5 * (padded - real)


@pytest.mark.real
def test_the_gradient_of_a_step_is_that_of_the_drawn_order_and_of_the_plain_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fp32, dropout off, label smoothing on, three tasks. tests/engines compares several processes with one."""
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    for model in NO_DROPOUT:
        plain, arranged = (config_of(model, arranged=arranged) for arranged in (False, True))
        drawn, padded = gradients_of(plain, tmp_path / f"{model}-plain")
        other = {"gpt2-tiny": {"data.packing": True}, "t5-chat-tiny": {"data.pad_to_multiple_of": 8}}.get(model, {})
        for number, config in enumerate([arranged, arranged.with_values(other, "you")][: 2 if other else 1]):
            gradient, tokens = gradients_of(config, tmp_path / f"{model}-{number}")
            assert drawn.norm() > 0 and (drawn - gradient).norm() <= 1e-5 * drawn.norm(), (model, number)
            limit = 0.95 if config.data.packing else 1
            assert (number and model == "t5-chat-tiny") or tokens < limit * padded, model
    # For ESM the Trainer of transformers takes the mean of the means of micro-batches, for T5 that over all labels.
    for model, same in (("esm2-tiny", "micro_batches"), ("t5-chat-tiny", "tokens")):
        config = config_of(model, arranged=False)
        stock = stock_gradient(config, tmp_path / f"{model}-stock")
        for mean in ("tokens", "micro_batches"):
            asked = config.with_values({"training.loss_mean": mean}, "you")
            ours, _ = gradients_of(asked, tmp_path / f"{model}-{mean}")
            apart = (ours - stock).norm() / stock.norm()
            assert apart <= 1e-5 if mean == same else apart > 1e-3, (model, mean, apart)


# After recovery each optimizer step sees the samples, the rate and the loss that it would have seen undisturbed.

STEPS, SAVED, FAILS, MICRO, ACCUMULATION, SMALLER = 6, 2, 3, 6, 8, 3
"""107 rows: with 48 a step, an epoch is three steps, the last one short."""


@pytest.mark.real
def test_every_step_sees_what_it_would_have_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config(
        batch__micro_batch_size=MICRO, batch__gradient_accumulation_steps=ACCUMULATION, training__max_steps=STEPS,
        training__schedule="cosine", training__warmup=0.25, checkpoint__every_steps=SAVED,
    )  # fmt: skip
    whole = write_run(tmp_path / "whole", config)
    train(whole, config, recording=True)

    folder = write_run(tmp_path / "recovered", config)
    monkeypatch.setenv(FAULTS_VARIABLE, f"oom@{FAILS}:above={SMALLER}")
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
    now = prepare_again(run)
    assert now.batch.micro_batch_size == SMALLER
    train(folder, now, "--resume", f"checkpoint-{SAVED}", recording=True)

    for path in (whole, folder):
        outcome = json.loads((path / "outcome.json").read_text())
        assert (outcome["outcome"], outcome["step"]) == ("finished", STEPS)
    planned, found = samples(whole), samples(folder)
    assert sorted(planned) == sorted(found) == list(range(1, STEPS + 1))
    assert found == planned
    rows = MICRO * ACCUMULATION
    assert [len(found[step]["rows"]) for step in found] == [rows, rows, 107 - 2 * rows] * 2
    told, expected = steps_of(folder), steps_of(whole)
    for step in range(1, STEPS + 1):
        assert told[step]["learning_rate"] == pytest.approx(expected[step]["learning_rate"], rel=1e-12)
        assert told[step]["loss"] == pytest.approx(expected[step]["loss"], rel=2e-4)
    engine_json = json.loads((folder / "engine.json").read_text())
    assert engine_json["micro_batch_size"] == SMALLER
    assert engine_json["gradient_accumulation_steps"] == MICRO * ACCUMULATION // SMALLER


# One optimizer step of each task: as drawn, arranged (and padded to a multiple), packed, and by the plain Trainer.


ROWS = {"gpt2-tiny": CHAT, "t5-chat-tiny": PAIRS}
NO_DROPOUT: dict[str, dict[str, float]] = {
    "esm2-tiny": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "gpt2-tiny": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "t5-chat-tiny": {"dropout_rate": 0.0},
}


def config_of(model: str, *, arranged: bool) -> RunConfig:
    changes: dict[str, Any] = {
        "batch__micro_batch_size": 4, "batch__gradient_accumulation_steps": 3, "batch__sequence_length": 200,
        "data__arrange_by_length": arranged,
        "data__sources": [{**ROWS.get(model, TINY["data.sources"])[0], "max_rows": 60}],
        "data__pad_to_multiple_of": 1, "data__concatenate": False, "training__label_smoothing": 0.1,
        "training__max_grad_norm": 0.0, "training__max_steps": 1,
    }  # fmt: skip
    config = of_model(model, **changes)
    overrides = {**config.model.architecture_overrides, **NO_DROPOUT[model]}
    return config.with_values({"model.architecture_overrides": overrides}, "you")


class Gradients(TrainerCallback):
    """Keeps the gradients of the first optimizer step."""

    def __init__(self) -> None:
        self.whole = torch.empty(0)

    def on_pre_optimizer_step(self, *args: Any, model: torch.nn.Module, **kwargs: Any) -> None:
        given = [one.grad.flatten().double() for one in model.parameters() if one.grad is not None]
        self.whole = torch.cat(given)


def gradients_of(config: RunConfig, folder: Path) -> tuple[torch.Tensor, int]:
    """(gradient of the first step, tokens with padding that this process computed in it)."""
    folder.mkdir()
    set_seed(1)
    args = TrainingArguments(**{**training_arguments(config), "output_dir": str(folder)})
    parts = build_task(config, folder, None, args.world_size)
    meter, kept = StepMeter(), Gradients()
    trainer = RunTrainer(args, parts, meter)
    trainer.add_callback(kept)
    trainer.train()
    meter.step_done()
    return kept.whole, meter.counts()["tokens"]


def stock_gradient(config: RunConfig, folder: Path) -> torch.Tensor:
    """By the Trainer of transformers and the model's own loss, of the same rows."""
    set_seed(1)
    args = TrainingArguments(
        **{**training_arguments(config), "output_dir": str(folder), "save_strategy": "no", "eval_strategy": "no"},
        train_sampling_strategy="sequential",
    )
    parts = build_task(config, folder, None, args.world_size)
    rows = [parts.train[key] for key in parts.sampler]
    kept = Gradients()

    def collate(some: list[Any]) -> dict[str, Any]:
        batch = parts.collate(some)
        batch.pop(FILLER_TOKENS, None)
        return parts.inputs(batch, parts.model)

    trainer = Trainer(model=parts.model, args=args, train_dataset=rows, data_collator=collate)  # type: ignore[arg-type]
    trainer.add_callback(kept)
    trainer.train()
    return kept.whole
