"""TrainingArguments: every keyword is one that transformers takes, and comes back as it was meant."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.export.training_arguments import training_arguments

from tests.core.export.solved_config import solved_config
from tests.each import each


def construct(config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real TrainingArguments, made in the run folder as the training makes it."""
    from transformers import TrainingArguments

    monkeypatch.chdir(folder)
    return TrainingArguments(**training_arguments(config))


def learning_rates(arguments: Any, steps: list[int]) -> list[float]:
    """The rate that the Trainer's own scheduler gives at each step."""
    import torch
    from transformers import get_scheduler

    optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=arguments.learning_rate)
    scheduler = get_scheduler(
        arguments.lr_scheduler_type,
        optimizer,
        arguments.get_warmup_steps(arguments.max_steps),
        arguments.max_steps,
        arguments.lr_scheduler_kwargs,
    )
    rates = []
    for step in range(max(steps) + 1):
        if step in steps:
            rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return rates


def test_demo_profile_constructs_with_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = construct(solved_config("cpu-demo"), tmp_path, monkeypatch)
    assert (arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps) == (32, 3)
    assert arguments.use_cpu and not arguments.fp16 and not arguments.bf16
    assert arguments.max_steps == 120
    assert arguments.logging_nan_inf_filter is False
    assert arguments.eval_strategy.value == "steps" and arguments.eval_steps == 60
    assert arguments.output_dir == "."


def test_the_row_of_the_2080_super(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value of the guide's row arrives in the keyword that transformers reads."""
    kwargs = training_arguments(solved_config("2080super", engine__device="cuda"))
    expected = {
        "per_device_train_batch_size": 6,
        "gradient_accumulation_steps": 651,
        "fp16": True,
        "bf16": False,
        "tf32": False,
        "dataloader_num_workers": 12,
        "dataloader_prefetch_factor": 8,
        "optim": "adamw_torch",
        "adam_beta1": 0.9,
        "adam_beta2": 0.98,
        "adam_epsilon": 1e-8,
        "weight_decay": 0.01,
        "learning_rate": 4e-4,
        "warmup_steps": 2000,
        "max_steps": 500_000,
        "lr_scheduler_type": "polynomial",
        "lr_scheduler_kwargs": {"lr_end": 4e-5},
        "activation_checkpointing": True,
        "deepspeed": "deepspeed.json",
    }
    assert {key: kwargs[key] for key in expected} == expected


def test_every_keyword_is_a_field_of_training_arguments() -> None:
    from transformers import TrainingArguments

    fields = {field.name for field in dataclasses.fields(TrainingArguments)}
    many = [
        solved_config("2080super", engine__device="cuda", training__empty_cache_steps=50),
        solved_config("3080-10g-guide", engine__device="cuda", checkpoint__keep_best=True),
        solved_config("cpu-demo", data__workers=2, data__prefetch=4, evaluation__every_epoch=True),
    ]
    for config in many:
        assert set(training_arguments(config)) <= fields


@each(
    ("schedule", "final", "expected"),
    [
        ("linear", 4e-5, [0.0, 4e-4, 2.2e-4, 4e-5]),
        ("linear", 0.0, [0.0, 4e-4, 2e-4, 0.0]),
        ("cosine", 4e-5, [0.0, 4e-4, 2.2e-4, 4e-5]),
        ("cosine", 0.0, [0.0, 4e-4, 2e-4, 0.0]),
        ("polynomial", 1e-5, [0.0, 4e-4, 2.05e-4, 1e-5]),
        ("constant", 0.0, [0.0, 4e-4, 4e-4, 4e-4]),
        ("linear", 4e-4, [0.0, 4e-4, 4e-4, 4e-4]),
    ],
)
def test_schedules_end_where_they_should(
    schedule: str, final: float, expected: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read off the scheduler itself: at the start, at the end of the warm-up, halfway down, at the last step."""
    config = solved_config(
        training__schedule=schedule,
        training__learning_rate=4e-4,
        training__final_learning_rate=final,
        training__warmup=20,
        training__max_steps=120,
    )
    arguments = construct(config, tmp_path, monkeypatch)
    assert learning_rates(arguments, [0, 20, 70, 120]) == pytest.approx(expected, abs=1e-9)


def test_warmup_below_one_is_a_share_of_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = construct(solved_config(training__warmup=0.06, training__max_steps=1000), tmp_path, monkeypatch)
    assert arguments.get_warmup_steps(1000) == 60


def test_prefetch_without_workers_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers refuses the pair with a ValueError."""
    arguments = construct(solved_config(data__workers=0, data__prefetch=8), tmp_path, monkeypatch)
    assert arguments.dataloader_prefetch_factor is None
    with_workers = construct(
        solved_config(data__workers=2, data__prefetch=8, data__persistent_workers=True), tmp_path, monkeypatch
    )
    assert with_workers.dataloader_prefetch_factor == 8 and with_workers.dataloader_persistent_workers


def test_no_held_out_rows_means_no_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = construct(solved_config(data__validation_rows=0), tmp_path, monkeypatch)
    assert arguments.eval_strategy.value == "no"


def test_report_to_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert construct(solved_config(logging__report_to=["none"]), tmp_path, monkeypatch).report_to == []
    assert construct(solved_config(), tmp_path, monkeypatch).report_to == ["tensorboard"]


def test_an_unsolved_config_names_the_key() -> None:
    config = solved_config().with_values({"batch.micro_batch_size": None}, "you")
    with pytest.raises(ValueError, match=r"batch\.micro_batch_size is not solved"):
        training_arguments(config)


@each(
    ("precision", "strategy", "fp16", "bf16"),
    [
        ("fp32", "single", False, False),
        ("tf32", "single", False, False),
        ("fp16", "single", True, False),
        ("bf16", "single", False, True),
        ("bf16-true", "single", False, False),
        ("bf16-true", "zero2", False, True),
    ],
)
def test_precision_flags(precision: str, strategy: str, fp16: bool, bf16: bool) -> None:
    config = solved_config(engine__device="cuda", engine__precision=precision, engine__strategy=strategy)
    kwargs = training_arguments(config)
    assert (kwargs["fp16"], kwargs["bf16"]) == (fp16, bf16)
    assert kwargs.get("tf32") is (True if precision == "tf32" else None)


@pytest.mark.parametrize("pinned", [False, True])
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
