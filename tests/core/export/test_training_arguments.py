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


def test_the_row_of_the_2080_super(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value of the guide's row arrives in the keyword that transformers reads."""
    kwargs = training_arguments(solved_config("2080super", engine__device="cuda"))
    expected = {
        "per_device_train_batch_size": 6, "gradient_accumulation_steps": 651, "fp16": True, "bf16": False,
        "tf32": False, "dataloader_num_workers": 12, "dataloader_prefetch_factor": 8, "optim": "adamw_torch",
        "adam_beta1": 0.9, "adam_beta2": 0.98, "adam_epsilon": 1e-8, "weight_decay": 0.01, "learning_rate": 4e-4,
        "warmup_steps": 2000, "max_steps": 500_000, "lr_scheduler_type": "polynomial",
        "lr_scheduler_kwargs": {"lr_end": 4e-5}, "activation_checkpointing": True, "deepspeed": "deepspeed.json",
    }  # fmt: skip
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


def test_prefetch_without_workers_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers refuses the pair with a ValueError."""
    arguments = construct(solved_config(data__workers=0, data__prefetch=8), tmp_path, monkeypatch)
    assert arguments.dataloader_prefetch_factor is None
    with_workers = construct(
        solved_config(data__workers=2, data__prefetch=8, data__persistent_workers=True), tmp_path, monkeypatch
    )
    assert with_workers.dataloader_prefetch_factor == 8 and with_workers.dataloader_persistent_workers


def test_report_to_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert construct(solved_config(logging__report_to=["none"]), tmp_path, monkeypatch).report_to == []
    assert construct(solved_config(), tmp_path, monkeypatch).report_to == ["tensorboard"]


def test_an_unsolved_config_names_the_key() -> None:
    config = solved_config().with_values({"batch.micro_batch_size": None}, "you")
    with pytest.raises(ValueError, match=r"batch\.micro_batch_size is not solved"):
        training_arguments(config)


@each(("precision", "strategy", "fp16", "bf16"), [
    ("fp32", "single", False, False), ("tf32", "single", False, False), ("fp16", "single", True, False),
    ("bf16", "single", False, True), ("bf16-true", "single", False, False), ("bf16-true", "zero2", False, True),
])  # fmt: skip
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
