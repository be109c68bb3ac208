"""What a run begins with and at which rate, where nobody chose: never random weights in the place of published ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.plan.gather import plan_run
from trainwiz.core.plan.result import Plan

from tests.core.plan.machines import machine
from tests.each import each

CPU, THERE = machine(None), machine()


def planned(profile: str | None = None, **values: Any) -> Plan:
    overrides = {key.replace("__", "."): value for key, value in values.items()}
    return plan_run(PlanRequest(profile=profile, overrides=overrides), CPU)


def codes(plan: Plan, severity: str = "error") -> set[str]:
    return {finding.code for finding in plan.findings if finding.severity == severity}


def choices(plan: Plan) -> dict[str, Any]:
    return {choice.key: choice for choice in plan.choices}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with weights, as far as a plan looks."""
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_embd": 64, "n_head": 2}
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "vocab_size": 500, "n_positions": 512}))
    (tmp_path / "model" / "model.safetensors").touch()
    (tmp_path / "model" / "tokenizer.json").touch()
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("profile", "values", "init", "words"),
    [
        (None, {"model__name": "FOLDER"}, "pretrained", "fine-tunes the weights in FOLDER"),
        ("cpu-demo", {"model__name": "FOLDER"}, "pretrained", "fine-tunes the weights in FOLDER"),
        (
            None,
            {"model__name": "FOLDER", "peft__method": "lora"},
            "pretrained",
            "LoRA adapters on the weights in FOLDER",
        ),
        (None, {"model__name": "FOLDER/config.json"}, "scratch", "from scratch"),
        (None, {"model__name": "FOLDER", "model__init": "scratch"}, "scratch", "from scratch"),
        (None, {"model__name": "qwen2.5-0.5b"}, "pretrained", "the published weights of Qwen/Qwen2.5-0.5B"),
        (None, {"model__name": "Qwen/Qwen2.5-0.5B"}, "pretrained", "the published weights of Qwen/Qwen2.5-0.5B"),
        ("2080super", {"model__name": "esm2-8m"}, "pretrained", "facebook/esm2_t6_8M_UR50D"),
        ("2080super", {}, "scratch", "from scratch"),
        (None, {"model__name": "qwen2-tiny"}, "scratch", "from scratch"),
        ("cpu-demo", {}, "scratch", "from scratch"),
    ],
)
def test_what_a_run_begins_with(
    folder: Path, profile: str | None, values: dict[str, Any], init: str, words: str
) -> None:
    plan = planned(profile, **{key: str(value).replace("FOLDER", str(folder)) for key, value in values.items()})
    assert plan.config.model.init == init
    assert words.replace("FOLDER", str(folder)) in plan.model.learnt
    for key in ("model.init", "training.learning_rate"):
        assert key in choices(plan) and (choices(plan)[key].reason or choices(plan)[key].origin == "profile")


@each(
    ("values", "rate"),
    [
        ({"model__name": "qwen2.5-1.5b"}, 2e-5),
        ({"model__name": "qwen2.5-0.5b"}, 5e-5),
        ({"model__name": "qwen2.5-0.5b", "peft__method": "lora"}, 2e-4),
        ({"model__name": "gpt2-medium", "model__init": "scratch"}, 2.5e-4),
        ({"model__name": "nllb-600m"}, 5e-5),
        ({"model__name": "esm2-8m", "model__init": "scratch"}, 4e-4),
    ],
)
def test_the_rate_goes_with_the_kind_of_training(values: dict[str, Any], rate: float) -> None:
    plan = planned(**values)
    assert plan.config.training.learning_rate == rate and plan.config.training.warmup > 0
    assert choices(plan)["training.learning_rate"].origin == "solved" and not codes(plan, "warning") & {
        "unusual_learning_rate"
    }


def test_the_recipe_of_a_profile_does_not_stick_to_another_model_or_kind(folder: Path) -> None:
    assert planned("cpu-demo").config.training.learning_rate == 1e-3
    other = planned("cpu-demo", model__name=str(folder))
    assert other.config.training.learning_rate == 5e-5 and other.config.training.final_learning_rate == 0
    assert planned("full-4090", peft__method="lora").config.training.learning_rate == 2e-4
    assert planned("2080super", model__init="pretrained").config.training.learning_rate == 5e-5


@pytest.mark.parametrize(
    ("values", "code", "severity"),
    [
        ({"model__name": "qwen2-tiny", "peft__method": "lora"}, "adapters_on_random_weights", "error"),
        ({"model__name": "qwen2-tiny", "training__learning_rate": 5}, "learning_rate_wipes", "error"),
        ({"model__name": "FOLDER", "training__learning_rate": 0.1}, "learning_rate_wipes", "error"),
        ({"model__name": "FOLDER", "training__learning_rate": 2e-3}, "unusual_learning_rate", "warning"),
        ({"model__name": "FOLDER", "training__learning_rate": 1e-9}, "unusual_learning_rate", "warning"),
    ],
)
def test_what_cannot_be_meant_is_said_and_its_remedies_mend_it(
    folder: Path, values: dict[str, Any], code: str, severity: str
) -> None:
    values = {key: str(folder) if value == "FOLDER" else value for key, value in values.items()}
    plan = planned(**values)
    assert code in codes(plan, severity)
    remedies = next(finding for finding in plan.findings if finding.code == code).remedies
    assert remedies
    for remedy in remedies:
        changed = {key.replace(".", "__"): value for key, value in remedy.changes.items()}
        assert code not in codes(planned(**{**values, **changed}), severity)


def test_weights_that_are_not_here_matter_where_the_run_is() -> None:
    here = planned(model__name="qwen2.5-0.5b")
    assert "missing_model" in codes(here)
    there = plan_run(PlanRequest(overrides={"model.name": "qwen2.5-0.5b"}, gpu="RTX 4090"), CPU)
    assert "missing_model" in codes(there, "note") and "missing_model" not in codes(there)


@pytest.mark.real
def test_training_goes_on_from_the_weights_of_a_finished_run(tmp_path: Path) -> None:
    def losses(name: str, *words: str) -> list[float]:
        command = [sys.executable, "-m", "trainwiz.tui.cli", *words, "--yes", "--plain", "--output-dir", name]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        return [row["loss"] for row in map(json.loads, lines) if row.get("loss") is not None]

    first = losses("first", "--profile", "cpu-demo", "--max-steps", "60")
    data = ("--dataset", "sample-proteins", "--length", "64", "--set", "logging.every_steps=1")
    second = losses("second", "--model", "first/final_model", "--max-steps", "2", *data)
    assert second[0] < (first[0] + first[-1]) / 2, (first, second)


def test_a_fine_tuning_says_that_nobody_named_its_data(folder: Path) -> None:
    """Where the weights are random it is a try; a profile keeps its data for its own task."""
    unnamed = {
        (name, sample): codes(planned(profile, model__name=str(model), **given)) & {"no_data_named"}
        for name, profile, model in (
            ("alone", None, folder),
            ("config alone", None, folder / "config.json"),
            ("a sample by default", "cpu-demo", folder),
            ("another task's data", "2080super", "qwen2.5-0.5b"),
            ("its own task's data", "2080super", "esm2-8m"),
        )
        for sample, given in ((False, {}), (True, {"data__sources__0__name": "sample-text"}))
    }
    assert {key for key, found in unnamed.items() if found} == {
        ("alone", False),
        ("a sample by default", False),
        ("another task's data", False),
    }


def test_the_batch_of_a_fine_tuning_follows_its_rows_and_not_the_card(folder: Path, tmp_path: Path) -> None:
    def samples(rows: int, gpu: str | None, **values: Any) -> int:
        data = tmp_path / f"{rows}.txt"
        data.write_text("".join(f"a line of text, number {row}\n" for row in range(rows)))
        named = {
            "model.name": str(folder),
            "data.sources.0.name": str(data),
            "data.validation_rows": 0,
            "data.concatenate": False,
        }
        return plan_run(PlanRequest(gpu=gpu, overrides={**named, **values})).batch.effective_samples

    cards = [None, "RTX 3080 10GB", "H100 80GB"]
    assert [samples(2000, gpu) for gpu in cards] == [16, 16, 16]
    assert [samples(45, gpu) for gpu in cards] == [4, 4, 4]
    assert samples(2000, "H100 80GB", **{"batch.micro_batch_size": 2}) == 2
    assert samples(2000, "H100 80GB", **{"batch.target_samples": 64}) == 64
    assert samples(2000, "H100 80GB", **{"model.init": "scratch"}) > 16
