"""Smoke, dev run, overfit: what they change, what they leave, and what the user's own values keep."""

from __future__ import annotations

import pytest
from trainwiz.core.catalog.models import load_models, resolve_model
from trainwiz.core.config import RunConfig
from trainwiz.core.config.build import build_config
from trainwiz.core.config.modes import OVERFIT_STEPS, SMOKE_STEPS, apply_mode
from trainwiz.core.plan.request import PlanRequest
from trainwiz.core.profile import load_profile


def in_mode(profile: str, request: PlanRequest, overrides: dict[str, object] | None = None) -> RunConfig:
    config = build_config(load_profile(profile), overrides or {})
    model, _ = resolve_model(config.model)
    return apply_mode(config, request, model)


@pytest.mark.parametrize("profile", ["2080super", "2080super-guide", "3080-10g", "3080-12g-guide"])
def test_smoke_keeps_the_engine_and_changes_its_load(profile: str) -> None:
    before = build_config(load_profile(profile), {})
    config = in_mode(profile, PlanRequest(mode="smoke"))
    for key in ("engine.strategy", "engine.offload", "engine.checkpointing", "engine.optimizer", "task"):
        assert config.value(key) == before.value(key), key
    assert config.model.name == "esm2-tiny" and config.model.init == "scratch"
    assert [source.name for source in config.data.sources] == ["sample-proteins"]
    assert config.training.max_steps == SMOKE_STEPS and config.batch.sequence_length <= 64
    assert config.batch.gradient_accumulation_steps == 2
    assert config.mode.kind == "smoke"
    # This machine decides how it computes.
    assert config.engine.precision is None and config.engine.device is None
    assert "engine.precision" not in config.origins


def test_smoke_keeps_values_of_the_users() -> None:
    config = in_mode("2080super", PlanRequest(mode="smoke"), {"training.max_steps": 3, "engine.precision": "fp32"})
    assert config.training.max_steps == 3 and config.engine.precision == "fp32"
    assert config.origin("training.max_steps").origin == "you"


def test_smoke_of_a_model_without_a_sibling_is_shallow() -> None:
    from trainwiz.core.catalog.model import ModelSpec

    model = ModelSpec("mine", {"model_type": "gpt2", "n_layer": 12}, "causal-lm", source="config")
    config = apply_mode(build_config(None, {"model.name": "mine"}), PlanRequest(mode="smoke"), model)
    assert config.model.name == "mine" and config.model.architecture_overrides == {"n_layer": 2}


def test_smoke_of_the_smallest_model_is_itself() -> None:
    assert in_mode("cpu-demo", PlanRequest(mode="smoke")).model.name == "esm2-tiny"


def test_dev_run_has_the_real_model_and_data() -> None:
    config = in_mode("2080super", PlanRequest(mode="dev-run"))
    assert config.model.name == "esm2-650m" and config.data.sources[0].name == "agemagician/uniref50"
    assert config.training.max_steps == 5 and config.batch.gradient_accumulation_steps == 2
    assert config.batch.micro_batch_size == 6 and config.batch.target_tokens is None
    assert config.engine.precision == "fp16"


def test_overfit() -> None:
    config = in_mode("cpu-demo", PlanRequest(mode="overfit", overfit_batches=10))
    assert config.mode.overfit_batches == 10 and config.mode.kind == "overfit"
    assert config.batch.micro_batch_size == 8 and config.batch.gradient_accumulation_steps == 1
    assert in_mode("2080super", PlanRequest(mode="overfit", overfit_batches=1)).batch.micro_batch_size == 6
    assert config.data.validation_rows == 0 and config.training.max_steps == OVERFIT_STEPS
    assert config.training.schedule == "constant" and config.training.weight_decay == 0
    assert config.origin("training.weight_decay").reason.startswith("overfitting a few batches")


def test_train_changes_nothing() -> None:
    config = build_config(load_profile("2080super"), {})
    assert apply_mode(config, PlanRequest(), load_models()["esm2-650m"]) is config


def test_tracing_is_noted() -> None:
    assert in_mode("cpu-demo", PlanRequest(trace_steps=4)).mode.trace_steps == 4
