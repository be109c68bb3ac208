"""The steps of a probe inside one process: the clock, running out of memory, the search, and the rows that it takes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from trainwiz.core.catalog.models import load_models
from trainwiz.core.data.lengths import LengthOrder, StepShape
from trainwiz.core.launch.probe_order import ANSWERS_JSONL, ProbeOrder
from trainwiz.core.training.batches import EpochSampler, PaddedBatch
from trainwiz.core.training.metrics import StepMeter
from trainwiz.core.training.probe import Answers, ProbeClock, ProbeTrainer, search_largest
from trainwiz.core.training.probe_rows import GeneratedRows, SpreadSampler, longest_rows, probe_parts
from transformers import PrinterCallback, ProgressCallback, TrainingArguments

from tests.core.export.solved_config import solved_config
from tests.each import each

ORDER = ProbeOrder(
    ends_s=0.0, accumulation=6, micro_batch=8, length=32, target_length=0, rows="lengths", lengths=(10, 20, 30, 400),
    measured_s=0.05,
)  # fmt: skip


@pytest.fixture
def probe(tmp_path: Path) -> Callable[..., ProbeTrainer]:
    """A trainer of esm2-tiny with a micro-batch of 8, accumulating 2 of the plan's 6, with its clock."""

    def make(most_rows: int = 1 << 30, **changes: Any) -> ProbeTrainer:
        order = replace(ORDER, ends_s=time.monotonic() + 900.0, **changes)
        config = solved_config(
            model__architecture=dict(load_models()["esm2-tiny"].architecture), batch__sequence_length=32,
            batch__micro_batch_size=8, batch__gradient_accumulation_steps=2,
        )  # fmt: skip
        args = TrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=8, gradient_accumulation_steps=2, max_steps=10_000,
            use_cpu=True, report_to=[], save_strategy="no", logging_steps=10_000, disable_tqdm=True,
            remove_unused_columns=False,
        )  # fmt: skip
        answers = Answers(tmp_path, writes=True)
        trainer = ProbeTrainer(args, probe_parts(config, tmp_path, order, args.device, answers.say), StepMeter())
        for printing in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(printing)
        trainer.micro_batch = order.micro_batch
        trainer.longest = lambda rows: PaddedBatch(0)(longest_rows(order, "masked-lm", 33, rows))
        limited(trainer.model, most_rows)
        trainer.order = order  # type: ignore[attr-defined]
        trainer.answers = answers  # type: ignore[attr-defined]
        trainer.add_callback(ProbeClock(trainer, order, answers))
        return trainer

    return make


def limited(model: Any, most_rows: int) -> None:
    """A device whose memory holds so many rows, which no CPU has: it says so as torch does."""
    forward = model.forward

    def checked(*args: Any, **inputs: Any) -> Any:
        if len(inputs["input_ids"]) > most_rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB")
        return forward(*args, **inputs)

    model.forward = checked


def lines(folder: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for text in (folder / ANSWERS_JSONL).read_text().splitlines():
        line = json.loads(text)
        found.setdefault(line["event"], []).append(line)
    return found


def test_two_warm_steps_then_measured_ones(tmp_path: Path, probe: Callable[..., ProbeTrainer]) -> None:
    # Long enough for many steps: that a busy machine holds some of them up decides nothing.
    trainer = probe(measured_s=1.5)
    trainer.train()
    said = lines(tmp_path)
    assert [line["step"] for line in said["warm"]] == [1, 2] and len(said["memory"]) == 1
    steps = said["step"]
    assert len(steps) == trainer.state.global_step - 2 >= 2
    # A step of the plan has 6 micro-batches, the measured ones 2: about three times as long.
    # The median: one that is held up within its first micro-batch counts that for each of the missing four.
    walls = np.diff([line["time_s"] for line in [*said["memory"], *steps]])
    assert 1.8 < np.median([line["seconds"] for line in steps] / walls) < 3.3
    # Rows of 10, 20, 30 and (cut) 32 tokens, 8 in each of 6 micro-batches, each padded to its longest.
    assert all(6 * 8 * 20 <= line["tokens"] <= 6 * 8 * 32 for line in steps)


def test_another_error_is_not_taken_for_memory(probe: Callable[..., ProbeTrainer]) -> None:
    trainer: Any = probe()
    trainer.train()
    trainer.model.forward = Mock(side_effect=RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        search_largest(trainer, trainer.order, trainer.answers, 0.1)


def test_the_search_doubles_and_then_halves_the_gap(tmp_path: Path, probe: Callable[..., ProbeTrainer]) -> None:
    trainer = probe(most_rows=45)
    trainer.train()
    search_largest(trainer, trainer.order, trainer.answers, 0.1)  # type: ignore[attr-defined]
    said = lines(tmp_path)
    tried = [(line["micro_batch"], line["fits"]) for line in said["trial"]]
    assert tried == [(16, True), (32, True), (64, False), (48, False), (40, True), (44, True)]
    assert [line["micro_batch"] for line in said["largest"]] == [8, 16, 32, 32, 32, 40, 44]
    assert said["largest"][-1]["why"] == "48 does not fit"


def test_the_search_ends_with_the_time(tmp_path: Path, probe: Callable[..., ProbeTrainer]) -> None:
    trainer: Any = probe()
    trainer.train()
    order = replace(trainer.order, ends_s=time.monotonic() + 1.0)
    search_largest(trainer, order, trainer.answers, 2.0)
    (largest,) = lines(tmp_path)["largest"]
    assert (largest["micro_batch"], largest["why"], largest["fails"]) == (8, "the time limit was reached", None)


@each(("task", "targets"), [("masked-lm", None), ("causal-lm", None), ("seq2seq", (5, 7))])
def test_generated_rows_have_the_lengths_of_the_data(task: str, targets: tuple[int, ...] | None) -> None:
    order = replace(ORDER, target_length=6 if targets else 0, target_lengths=targets or ())
    rows = GeneratedRows.of(order, task, 500, seed=1)
    made = [rows[(0, index)] for index in range(len(rows))]
    assert {len(tokens) for tokens, _ in made} == {10, 20, 30, 32}
    assert {len(labels) for _, labels in made} == ({5, 6} if targets else {10, 20, 30, 32})
    assert all(tokens.min() >= 0 and tokens.max() < 500 for tokens, _ in made[:50])
    assert all((labels != -100).any() for _, labels in made[:50])
    again = GeneratedRows(task, 500, rows._lengths, rows._targets, seed=1)
    assert (again[(0, 3)][0] == made[3][0]).all()


LENGTHS = np.random.default_rng(3).lognormal(5, 0.6, 8_000).astype(np.uint32)


def padded(rows: list[int], micro_batch: int) -> float:
    """Tokens of a micro-batch on average."""
    whole = len(rows) // micro_batch * micro_batch
    return float(LENGTHS[rows[:whole]].reshape(-1, micro_batch).max(axis=1).mean())


@each(("accumulation", "rounds", "processes"), [(16, 4, 1), (5, 4, 2), (40, 2, 1), (4, 4, 2)])
def test_a_few_micro_batches_are_as_long_as_all_of_them(accumulation: int, rounds: int, processes: int) -> None:
    step = StepShape(8 * processes * accumulation, 8, processes)
    whole = EpochSampler(len(LENGTHS), 1, lengths=LengthOrder(LENGTHS, step))
    some = SpreadSampler(len(LENGTHS), 1, LengthOrder(LENGTHS, step), step, rounds)
    found, all_rows = ([row for _, row in sampler] for sampler in (some, whole))
    assert len(some) == len(found) == len({*found} & {*range(len(LENGTHS))})
    steps = len(LENGTHS) // step.rows
    assert padded(found[: steps * rounds * 8 * processes], 8) == pytest.approx(padded(all_rows, 8), rel=0.05)
