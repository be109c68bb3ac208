"""Smoke, dev run, overfit: what they change, what they leave, and what the user's own values keep."""

from __future__ import annotations

import pytest
from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.catalog.models import load_models, resolve_model
from trainwiz.core.config import RunConfig
from trainwiz.core.config.build import build_config
from trainwiz.core.config.modes import OVERFIT_STEPS, apply_mode, smoke_sample
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.profile import list_profiles, load_profile

from tests.each import each


def in_mode(profile: str, request: PlanRequest, overrides: dict[str, object] | None = None) -> RunConfig:
    config = build_config(load_profile(profile), overrides or {})
    model, _ = resolve_model(config.model)
    return apply_mode(config, request, model)


EVERY = [profile.name for profile in list_profiles() if not profile.variants]


@each("profile", EVERY)
def test_smoke_of_every_profile_keeps_what_it_is_about(profile: str) -> None:
    """Task, adapters and engine stay; model, data and sizes are small, offline and of the same kind."""
    before = build_config(load_profile(profile), {})
    config = in_mode(profile, PlanRequest(mode="smoke"))
    for key in ("task", "peft", "engine.strategy", "engine.offload", "engine.checkpointing", "engine.optimizer",
                "engine.process_timeout_s", "training.schedule", "training.label_smoothing", "evaluation.generate",
                "evaluation.metric", "checkpoint.keep", "checkpoint.keep_best"):  # fmt: skip
        assert config.value(key) == before.value(key), key
    models = load_models()
    small, full = models[config.model.name], models[before.model.name]
    assert config.model.init == "scratch" and config.model.tokenizer is None
    assert small.task == before.task or before.task in CLASSIFIES
    assert small.name == (full.smallest_sibling or full.name) and small.hub_id is None
    (source,) = config.data.sources
    answers = any(one.target_column is not None for one in before.data.sources)
    of_kind = {"proteins": "sample-proteins", "seq2seq": "sample-pairs", "masked-lm": "sample-text"}
    of_kind |= {"sequence-classification": "sample-reviews", "token-classification": "sample-names"}
    assert source.name == of_kind.get(
        config.row_kind, "sample-chat" if before.peft.method == "lora" or answers else "sample-text"
    )
    assert config.data.validation_sources == [] and config.model.source_language is None
    # The rate of the profile suits its own model: 2e-5 moves nothing in a few steps.
    assert config.training.learning_rate >= 3e-3
    share = before.training.final_learning_rate / before.training.learning_rate
    assert config.training.final_learning_rate == pytest.approx(share * config.training.learning_rate)
    assert config.evaluation.beams <= 2 and (config.evaluation.generation_rows or 0) <= 4


def test_smoke_data_of_a_causal_model() -> None:
    def sample(overrides: dict[str, object]) -> dict[str, object]:
        return smoke_sample(build_config(load_profile("a6000"), overrides))

    assert sample({}) == {"name": "sample-text"}
    assert sample({"data.sources.0.target_column": "answer"})["name"] == "sample-chat"
    chat = sample({"peft.method": "lora"})
    assert (chat["text_column"], chat["target_column"]) == ("prompt", "response")


def test_smoke_of_other_models() -> None:
    config = in_mode("cpu-demo", PlanRequest(mode="smoke"), {"model.name": "t5-chat-0.2b"})
    assert (config.task, config.model.name, config.data.sources[0].name) == ("seq2seq", "t5-chat-tiny", "sample-pairs")
    # Of a model that is not known the smallest of the task; one without a sibling is shallow.
    config = build_config(load_profile("4080s"), {"model.name": "nobody/nothing"})
    assert apply_mode(config, PlanRequest(mode="smoke"), None).model.name == "t5-chat-tiny"
    model = ModelSpec("mine", {"model_type": "gpt_neox", "num_hidden_layers": 12}, "causal-lm", source="config")
    config = apply_mode(build_config(None, {"model.name": "mine"}), PlanRequest(mode="smoke"), model)
    assert config.model.name == "mine" and config.model.architecture_overrides == {"num_hidden_layers": 2}


def test_dev_run_has_the_real_model_and_data() -> None:
    config = in_mode("2080super", PlanRequest(mode="dev-run", trace_steps=4))
    assert config.model.name == "esm2-650m" and config.data.sources[0].name == "agemagician/uniref50"
    assert config.training.max_steps == 5 and config.batch.gradient_accumulation_steps == 2
    assert config.batch.micro_batch_size == 6 and config.batch.target_tokens is None
    assert config.engine.precision == "fp16" and config.mode.trace_steps == 4
    config = in_mode("4080s", PlanRequest(mode="dev-run"))
    assert config.evaluation.generate and config.evaluation.generation_rows == 16
    plain = build_config(load_profile("2080super"), {})
    assert apply_mode(plain, PlanRequest(), load_models()["esm2-650m"]) is plain


def test_overfit() -> None:
    config = in_mode("cpu-demo", PlanRequest(mode="overfit", overfit_batches=10))
    assert config.mode.overfit_batches == 10 and config.mode.kind == "overfit"
    assert config.batch.micro_batch_size == 8 and config.batch.gradient_accumulation_steps == 1
    assert in_mode("2080super", PlanRequest(mode="overfit", overfit_batches=1)).batch.micro_batch_size == 6
    assert config.data.validation_rows == 0 and config.training.max_steps == OVERFIT_STEPS
    other = in_mode("3x3080-20g", PlanRequest(mode="overfit", overfit_batches=2))
    assert not (other.evaluation.generate or other.checkpoint.keep_best or other.evaluation.every_epoch)
    assert other.data.validation_sources == [] and other.training.label_smoothing == 0
    assert config.training.schedule == "constant" and config.training.weight_decay == 0
    assert config.origin("training.weight_decay").reason.startswith("overfitting a few batches")
