"""TrainingArguments: every keyword is one that transformers takes, and comes back as it was meant; the learning rates."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.export.accelerate import accelerate_config
from trainwiz.core.export.training_arguments import rate_schedule, scheduler_arguments, training_arguments

from tests.core.export.solved_config import solved_config
from tests.each import each


def construct(config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real TrainingArguments, made in the run folder as the training makes it."""
    from transformers import TrainingArguments

    monkeypatch.chdir(folder)
    return TrainingArguments(**training_arguments(config))


def test_every_keyword_is_a_field_of_training_arguments() -> None:
    from transformers import TrainingArguments

    fields = {field.name for field in dataclasses.fields(TrainingArguments)}
    for config in (
        solved_config("2080super", engine__device="cuda", training__empty_cache_steps=50),
        solved_config("3080-10g-guide", engine__device="cuda", checkpoint__keep_best=True),
        solved_config("cpu-demo", data__workers=2, data__prefetch=4, evaluation__every_epoch=True),
    ):
        assert set(training_arguments(config)) <= fields


def test_what_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # transformers refuses a prefetch without workers with a ValueError.
    arguments = construct(solved_config(data__workers=0, data__prefetch=8), tmp_path, monkeypatch)
    assert arguments.dataloader_prefetch_factor is None and arguments.report_to == ["tensorboard"]
    workers = {"data__workers": 2, "data__prefetch": 8, "data__persistent_workers": True}
    arguments = construct(solved_config(logging__report_to=["none"], **workers), tmp_path, monkeypatch)
    assert arguments.dataloader_prefetch_factor == 8 and arguments.dataloader_persistent_workers
    assert arguments.report_to == []
    unsolved = solved_config().with_values({"batch.micro_batch_size": None}, "you")
    with pytest.raises(ValueError, match=r"batch\.micro_batch_size is not solved"):
        training_arguments(unsolved)


@each(("precision", "strategy", "mixed"), [
    ("fp32", "single", "no"), ("tf32", "single", "no"), ("fp16", "single", "fp16"), ("bf16", "single", "bf16"),
    ("bf16-true", "single", "no"), ("bf16-true", "zero2", "bf16"),
])  # fmt: skip
def test_precision_flags_are_those_of_accelerate(precision: str, strategy: str, mixed: str) -> None:
    config = solved_config(engine__device="cuda", engine__precision=precision, engine__strategy=strategy)
    kwargs = training_arguments(config)
    assert (kwargs["fp16"], kwargs["bf16"]) == (mixed == "fp16", mixed == "bf16")
    assert kwargs.get("tf32") is (True if precision == "tf32" else None)
    # Beside DeepSpeed's file accelerate refuses it.
    assert accelerate_config(config).get("mixed_precision") == (None if strategy == "zero2" else mixed)


@each("pinned", [False, True])
def test_pinned_batches_are_copied_without_waiting(
    pinned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the loader that the real Trainer makes has it, on a GPU; there is no copy on a CPU."""
    import torch
    from transformers import Trainer

    changes = {"data__pin_memory": pinned, "data__validation_rows": 0}
    config = solved_config("cpu-demo", engine__device="cuda", **changes)
    rows: Any = [{"x": 1}] * 100
    trainer = Trainer(model=torch.nn.Linear(1, 1), args=construct(config, tmp_path, monkeypatch), train_dataset=rows)
    loader: Any = trainer.get_train_dataloader()
    assert loader._non_blocking is loader.base_dataloader.pin_memory is pinned
    assert "accelerator_config" not in training_arguments(solved_config("cpu-demo", data__pin_memory=pinned))


def rates_of_transformers(config: RunConfig, steps: int) -> list[float]:
    """The rates that a Trainer's optimizer has before each step, and after the last one."""
    import torch
    import transformers

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=config.training.learning_rate)
    arguments = transformers.TrainingArguments(output_dir="unused", **scheduler_arguments(config))
    scheduler = transformers.get_scheduler(
        arguments.lr_scheduler_type,
        optimizer,
        num_warmup_steps=arguments.get_warmup_steps(steps),
        num_training_steps=steps,
        scheduler_specific_kwargs=dict(arguments.lr_scheduler_kwargs or {}),
    )
    rates = []
    for _ in range(steps + 1):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return rates


@each(("final", "warmup", "steps"), [
    (0.0, 0, 120), (0.0, 0.3333, 7), (4e-5, 0.02, 120), (4e-5, 10, 7), (4e-4, 1, 120), (4e-5, 2000, 120), (0.0, 1, 1),
])  # fmt: skip
def test_every_step_has_the_rate_of_transformers(final: float, warmup: float, steps: int) -> None:
    for schedule in ("linear", "cosine", "constant", "polynomial"):
        values = {"learning_rate": 4e-4, "schedule": schedule, "final_learning_rate": final, "warmup": warmup}
        config = RunConfig().with_values(
            {f"training.{key}": value for key, value in {**values, "max_steps": steps}.items()}, "you"
        )
        ours = rate_schedule(config, steps)
        theirs = rates_of_transformers(config, steps)
        assert [ours.at(step) for step in range(steps + 1)] == pytest.approx(theirs, rel=1e-9, abs=1e-15)
        assert ours.highest == pytest.approx(max(theirs[:-1]), rel=1e-9, abs=1e-15)


def test_a_run_that_ends_in_its_warmup() -> None:
    """transformers' polynomial decay divides by the steps after the warm-up."""
    for warmup in (1, 10, 0.999):
        values = {"training.learning_rate": 1e-3, "training.final_learning_rate": 1e-4, "training.warmup": warmup}
        steps = max(1, int(warmup))
        config = RunConfig().with_values({**values, "training.max_steps": steps}, "you")
        assert len(rates_of_transformers(config, steps)) == steps + 1
    config = RunConfig().with_values({"training.learning_rate": 1e-3, "training.warmup": 100}, "you")
    assert rate_schedule(config, 50).highest == pytest.approx(4.9e-4)
    assert rate_schedule(config, 1).highest == 0.0
    assert rate_schedule(config, 200).highest == pytest.approx(1e-3)
    assert rate_schedule(config, 200).at(200) == 0.0
