"""The task follows the model, and a sample that nobody asked for follows the task."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.plan.gather import gather_config, plan_run
from trainwiz.core.profile import load_profile
from trainwiz.tui.plan_words import method_words

from tests.each import each

MACHINE = catalogue_machine(gpu="RTX 3090", num_gpus=1, ram_bytes=64 * 2**30)


def test_without_its_model_nothing_is_said_that_hangs_on_the_task(tmp_path: Path) -> None:
    rows = tmp_path / "chat.jsonl"
    rows.write_text('{"prompt": "who?", "response": "me."}\n')
    chosen = {"model.name": "nosuch", "peft.method": "lora", "data.sources": [{"name": str(rows)}]}
    plan = plan_run(PlanRequest(overrides=chosen), MACHINE)
    errors = plan.errors
    assert method_words(plan) == "unknown until the model is found"
    assert [error.code for error in errors] == ["missing_model"]
    assert not errors[0].remedies[0].command
    chosen["data.sources"] = [{"name": str(tmp_path / "none.jsonl")}]
    errors = plan_run(
        PlanRequest(overrides=chosen), catalogue_machine(gpu="RTX 3090", num_gpus=1, ram_bytes=None)
    ).errors
    assert [error.code for error in errors] == ["missing_model", "missing_data"]


@each(
    ("model", "task", "sample"),
    [
        ("gpt2-tiny", "causal-lm", "sample-text"),
        ("opus-mt-tiny", "seq2seq", "sample-pairs"),
        ("esm2-tiny", "masked-lm", "sample-proteins"),
    ],
)
@each("profile", [None, "cpu-demo"])
def test_a_model_brings_its_task_and_a_sample(model: str, task: str, sample: str, profile: str | None) -> None:
    request = PlanRequest(profile=profile, overrides={"model.name": model})
    plan = plan_run(request, MACHINE)
    assert (plan.task, plan.config.data.sources[0].name) == (task, sample)
    if task != "masked-lm":
        assert plan.config.origin("task").reason == f"what {model} is made for"
    assert plan.to_json()["data"]["rows"] > 100


def test_data_that_were_asked_for_stay(tmp_path: Path) -> None:
    file = tmp_path / "mine.tsv"
    file.write_text("source\ttarget\n" + "ein Haus\ta house\n" * 300)
    overrides = {"model.name": "opus-mt-tiny", "data.sources.0.name": str(file)}
    config, _, _ = gather_config(PlanRequest(overrides=overrides), None)
    assert (config.task, config.data.sources[0].name) == ("seq2seq", str(file))
    asked = {"model.name": "opus-mt-tiny", "data.sources.0.name": "sample-text"}
    config, _, _ = gather_config(PlanRequest(overrides=asked), None)
    assert config.data.sources[0].name == "sample-text"


def test_a_profile_with_data_of_its_own_keeps_them() -> None:
    profile = load_profile("4080s", MACHINE)
    config, _, _ = gather_config(PlanRequest(profile="4080s", overrides={"model.name": "gpt2-tiny"}), profile)
    assert config.task == "causal-lm"
    assert config.data.sources[0].name == profile.values["data.sources"][0]["name"]
    kept, _, _ = gather_config(PlanRequest(overrides={"model.name": "gpt2-tiny", "task": "masked-lm"}), None)
    assert kept.task == "masked-lm"


@pytest.mark.parametrize(("model", "task"), [("esm2-tiny", "causal-lm"), ("gpt2-tiny", "seq2seq")])
def test_a_task_of_another_kind_of_model_is_an_error_with_its_cure(model: str, task: str) -> None:
    plan = plan_run(PlanRequest(overrides={"model.name": model, "task": task}), MACHINE)
    (found,) = [finding for finding in plan.errors if finding.code == "task_of_another_model"]
    assert model in found.message and task in found.message
    cured = plan_run(PlanRequest(overrides={"model.name": model, **found.remedies[0].changes}), MACHINE)
    assert not cured.errors
    assert re.search(rf"task[ =]{cured.task}", found.remedies[0].command or "")


@each(
    ("profile", "overrides", "name"),
    [
        ("cpu-demo", {}, "cpu-demo"),
        ("cpu-demo", {"training.max_steps": 7}, "cpu-demo"),
        ("cpu-demo", {"data.sources.0.name": "some/my data.csv.gz"}, "esm2-tiny-my-data"),
        (None, {"model.name": "Qwen/Qwen2.5-0.5B", "data.sources.0.name": "rows.jsonl"}, "Qwen2.5-0.5B-rows"),
        (None, {"model.name": "qwen2-tiny", "name": "mine"}, "mine"),
        (None, {"model.name": "qwen2-tiny"}, "qwen2-tiny-sample-text"),
    ],
)
def test_a_run_is_named_after_its_model_and_data_unless_both_are_the_profiles(
    profile: str | None, overrides: dict[str, object], name: str
) -> None:
    request = PlanRequest(profile=profile, overrides=overrides)
    config, _, _ = gather_config(request, load_profile(profile) if profile else None)
    assert config.name == name


@pytest.mark.parametrize(("init", "epochs"), [("pretrained", 3.0), ("scratch", 1.0)])
def test_a_fine_tuning_is_three_epochs_long_unless_somebody_says_otherwise(init: str, epochs: float) -> None:
    overrides = {"model.name": "gpt2-tiny", "model.init": init, "data.sources.0.name": "sample-text"}
    assert plan_run(PlanRequest(overrides=overrides), MACHINE).config.training.epochs == epochs
