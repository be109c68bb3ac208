"""The modes of the guides: smoke, dev run, overfit. Each is a set of values on top of the same config."""

from __future__ import annotations

from typing import Any

from trainwiz.core.catalog.model import ModelSpec
from trainwiz.core.config.run import RunConfig
from trainwiz.core.plan.request import PlanRequest

SMOKE_STEPS = 6
DEV_STEPS = 5
OVERFIT_STEPS = 400
OVERFIT_MICRO_BATCH = 8
"""Few sequences are known by heart sooner: ten batches of 8 real proteins fell below 1.0 in 300 steps, of 32 did not."""
SMOKE_LENGTH = 64

LAYER_KEYS: tuple[str, ...] = ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers")
"""The names under which architectures keep their depth."""

SAMPLE_DATA = "sample-proteins"


def apply_mode(config: RunConfig, request: PlanRequest, model: ModelSpec | None) -> RunConfig:
    """`config` with the values of the requested mode. Values that the user set keep theirs, except the model and the
    data of a smoke run, which are what it is about."""
    values: dict[str, Any] = {}
    always: dict[str, Any] = {"mode.kind": request.mode}
    if request.trace_steps is not None:
        always["mode.trace_steps"] = request.trace_steps
    if request.mode == "smoke":
        always |= _smoke_subject(config, model)
        values = _smoke(config)
    elif request.mode == "dev-run":
        values = _dev_run(config)
    elif request.mode == "overfit":
        always["mode.overfit_batches"] = request.overfit_batches or config.mode.overfit_batches or 1
        values = _overfit(config)
    values = {key: value for key, value in values.items() if config.origin(key).origin != "you"}
    reason = {"smoke": "smoke run", "dev-run": "dev run", "overfit": "overfitting a few batches"}.get(request.mode, "")
    chosen = {**values, **always}
    changed = config.with_values(chosen, "solved", {key: f"{reason}: {_why(key)}" for key in chosen})
    if request.mode == "train" and request.trace_steps is None:
        return config
    # What a mode leaves open, the plan solves and explains.
    origins = {key: origin for key, origin in changed.origins.items() if key not in values or values[key] is not None}
    return changed.model_copy(update={"origins": origins})


def _why(key: str) -> str:
    reasons = {
        "model.name": "the smallest model of the same family",
        "data.sources": "the sample that ships with trainwiz",
        "batch.gradient_accumulation_steps": "few micro-batches, so that a step ends soon",
        "training.max_steps": "a few steps",
    }
    return reasons.get(key, "short and complete")


def _smoke_subject(config: RunConfig, model: ModelSpec | None) -> dict[str, Any]:
    """The smallest sibling on the sample data; a model without one loses its layers but two."""
    values: dict[str, Any] = {
        "model.init": "scratch",
        "data.sources": [{"name": SAMPLE_DATA}],
        "data.validation_sources": [],
        "data.streaming": None,
    }
    if model is None or model.tokenizer == "esm" or model.smallest_sibling:
        sibling = model.smallest_sibling if model and model.smallest_sibling else None
        values["model.name"] = sibling or (model.name if model else "esm2-tiny")
        values["model.architecture_overrides"] = {}
    else:
        shallow = {key: min(2, model.architecture[key]) for key in LAYER_KEYS if _is_depth(model.architecture.get(key))}
        values["model.architecture_overrides"] = {**config.model.architecture_overrides, **shallow}
    return values


def _is_depth(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _smoke(config: RunConfig) -> dict[str, Any]:
    """Few short steps through every part: accumulation, a save, an evaluation. The engine stays as it is."""
    return {
        "data.validation_rows": 8,
        "data.workers": None if config.data.workers is None else min(config.data.workers, 2),
        "batch.target_tokens": None,
        "batch.target_samples": None,
        "batch.micro_batch_size": 2,
        "batch.gradient_accumulation_steps": 2,
        "batch.eval_micro_batch_size": 2,
        "batch.sequence_length": min(config.batch.sequence_length, SMOKE_LENGTH),
        "training.max_steps": SMOKE_STEPS,
        "training.warmup": min(config.training.warmup, 2),
        "evaluation.every_steps": SMOKE_STEPS // 2,
        "evaluation.every_epoch": False,
        "checkpoint.every_steps": SMOKE_STEPS // 2,
        "logging.every_steps": 1,
        # This machine decides how it computes: the profile's choices were made for another card.
        "engine.device": None,
        "engine.precision": None,
        "engine.tf32": None,
        "engine.attention": None,
        "engine.gpus": None,
    }


def _dev_run(config: RunConfig) -> dict[str, Any]:
    """The real model and data, a few steps of a few micro-batches."""
    steps = config.mode.dev_steps or DEV_STEPS
    return {
        "batch.target_tokens": None,
        "batch.target_samples": None,
        "batch.gradient_accumulation_steps": min(config.batch.gradient_accumulation_steps or 2, 2),
        "training.max_steps": steps,
        "training.warmup": min(config.training.warmup, 1),
        "evaluation.every_steps": steps,
        "evaluation.every_epoch": False,
        "checkpoint.every_steps": steps,
        "logging.every_steps": 1,
    }


def _overfit(config: RunConfig) -> dict[str, Any]:
    """The same micro-batches until they are known by heart: nothing held out, no decay, no regularisation."""
    return {
        "data.validation_rows": 0,
        "data.validation_sources": [],
        "batch.target_tokens": None,
        "batch.target_samples": None,
        "batch.micro_batch_size": min(config.batch.micro_batch_size or OVERFIT_MICRO_BATCH, OVERFIT_MICRO_BATCH),
        "batch.gradient_accumulation_steps": 1,
        "training.max_steps": OVERFIT_STEPS,
        "training.warmup": 10,
        "training.schedule": "constant",
        "training.final_learning_rate": 0.0,
        "training.weight_decay": 0.0,
        "training.label_smoothing": 0.0,
        "checkpoint.every_steps": OVERFIT_STEPS,
        "logging.every_steps": 1,
    }
