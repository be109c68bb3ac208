"""Choices -> PlanRequest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config.keys import is_settable
from trainwiz.core.errors import UsageError
from trainwiz.tui.choices import Choices, parse_choices
from trainwiz.tui.cli import resume_without_value
from trainwiz.tui.options import OPTIONS

from tests.each import each

G = 2**30


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def choices(**values: Any) -> Choices:
    absent: dict[str, Any] = {
        option.name: False if option.kind == "flag" else [] if option.kind == "repeated" else None for option in OPTIONS
    }
    return parse_choices({**absent, **values})


@each("option", [option for option in OPTIONS if option.key])
def test_every_option_sets_a_key_that_exists(option: Any) -> None:
    assert is_settable(option.key)


@each(
    ("values", "overrides"),
    [
        (
            {"micro_batch": "6", "accumulation": "651"},
            {"batch.micro_batch_size": 6, "batch.gradient_accumulation_steps": 651},
        ),
        ({"target_tokens": "2M"}, {"batch.target_tokens": 2_000_000}),
        ({"target_tokens": "1.5k"}, {"batch.target_tokens": 1_500}),
        ({"learning_rate": "4e-4", "epochs": "0.5"}, {"training.learning_rate": 4e-4, "training.epochs": 0.5}),
        ({"attention": "auto", "strategy": "auto"}, {"engine.attention": None, "engine.strategy": None}),
        ({"checkpointing": True}, {"engine.checkpointing": True}),
        ({"checkpointing": False}, {"engine.checkpointing": False}),
        ({"gpus": "0, 1"}, {"engine.gpus": ["0", "1"]}),
        ({"report_to": "tensorboard,wandb"}, {"logging.report_to": ["tensorboard", "wandb"]}),
        ({"peft": "lora", "lora_rank": "64"}, {"peft.method": "lora", "peft.rank": 64}),
        ({"dataset": "my.fasta", "model": "esm2-8m"}, {"data.sources.0.name": "my.fasta", "model.name": "esm2-8m"}),
        ({"set": ["training.seed=7", "model.name=a=b"]}, {"training.seed": "7", "model.name": "a=b"}),
    ],
)
def test_overrides(values: dict[str, Any], overrides: dict[str, Any]) -> None:
    assert choices(**values).request.overrides == overrides


def test_another_machine() -> None:
    request = choices(gpu="RTX 3080 10GB", num_gpus="3", ram="64G", gpu_memory="10 GiB", tflops="59.5").request
    assert (request.gpu, request.num_gpus, request.ram_bytes) == ("RTX 3080 10GB", 3, 64 * G)
    assert (request.gpu_memory_bytes, request.tflops) == (10 * G, 59.5)


@pytest.mark.parametrize(
    ("values", "mode", "batches"),
    [
        ({}, "train", None),
        ({"smoke": True}, "smoke", None),
        ({"dev_run": True}, "dev-run", None),
        ({"overfit": "10"}, "overfit", 10),
    ],
)
def test_modes(values: dict[str, Any], mode: str, batches: int | None) -> None:
    request = choices(**values).request
    assert (request.mode, request.overfit_batches) == (mode, batches)


def test_the_profile_is_the_one_in_use_else_the_demo() -> None:
    assert choices().request.profile == "cpu-demo"
    assert choices(model="esm2-8m").request.profile is None
    Path(".trainwiz.yaml").write_text("profile: 2080super\n")
    assert choices().request.profile == "2080super"
    assert choices(model="esm2-8m").request.profile == "2080super"
    assert choices(profile="3080-10g").request.profile == "3080-10g"


def test_words_repeat_what_was_asked_and_not_how_it_is_started() -> None:
    asked = choices(profile="a b", micro_batch="6", checkpointing=False, set=["x.y=1"], yes=True, json=True, smoke=True)
    assert asked.words == ("--profile", "a b", "--micro-batch", "6", "--no-checkpointing", "--set", "x.y=1", "--smoke")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--resume"], ["--resume", "auto"]),
        (["--resume", "--yes"], ["--resume", "auto", "--yes"]),
        (["--resume", "checkpoint-60"], ["--resume", "checkpoint-60"]),
        (["--yes"], ["--yes"]),
    ],
)
def test_resume_with_and_without_a_value(given: list[str], expected: list[str]) -> None:
    assert resume_without_value(given) == expected


@each("text", ["nan", "inf", "1e400", "-5", "0", "four"])
def test_numbers_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        choices(learning_rate=text)
