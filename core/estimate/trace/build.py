"""The model of a request as training builds it, without weights."""

from __future__ import annotations

import json
from typing import Any

import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import UsageError
from trainwiz.core.estimate.trace.problems import CannotTrace
from trainwiz.core.language import tr
from trainwiz.core.tracing.request import TraceRequest
from trainwiz.core.training.adapters import with_adapters
from trainwiz.core.training.weights import MODEL_CLASSES, loading_options
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForSequenceClassification
from transformers.initialization import no_init_weights

HALF_FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16, "bf16-true": torch.bfloat16}


def build_traced_model(request: TraceRequest) -> Any:
    """The bare model, in training mode; to be called under a FakeTensorMode. Raises CannotTrace."""
    config = run_config(request)
    architecture = _architecture(_values(request.model_config))
    try:
        with no_init_weights():
            base: Any = _class_of(request.task).from_config(architecture, **loading_options(config))
        # Left out with the rest.
        base.tie_weights()
        model: Any = with_adapters(base, config, None) if request.lora_rank else base
        if is_all_half(request):
            model.to(HALF_FORMATS[request.precision])
        if request.task == "sequence-classification" and base.config.get_text_config().pad_token_id is None:
            # Such models look for the last token that is none; where a config names no padding, users give them one.
            base.config.get_text_config().pad_token_id = 0
        model.train()
        if request.checkpointing:
            model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    except UsageError as error:
        raise CannotTrace("unsupported", error.findings[0].message) from error
    except Exception as error:
        raise _cannot_build(request, architecture, error) from error
    return model


def _cannot_build(request: TraceRequest, architecture: Any, error: Exception) -> CannotTrace:
    kind, said = architecture.model_type, said_by(error)
    if "does not support an attention implementation" in said or "does not support Flash" in said:
        message = tr(
            "A model of type {kind} has no {attention} attention in transformers; choose another one (engine.attention).",
            kind=repr(kind),
            attention=request.attention,
        )
        return CannotTrace("unsupported", message)
    if "does not support activation checkpointing" in said:
        message = tr(
            "A model of type {kind} has no checkpointing in transformers; switch it off (engine.checkpointing).",
            kind=repr(kind),
        )
        return CannotTrace("unsupported", message)
    if "Unrecognized configuration class" in said:
        message = tr(
            "A model of type {kind} has no head for {task} in transformers.", kind=repr(kind), task=request.task
        )
        return CannotTrace("unsupported", message)
    message = tr("A model of type {kind} cannot be built from this config: {reason}.", kind=repr(kind), reason=said)
    return CannotTrace("invalid_config", message)


def is_all_half(request: TraceRequest) -> bool:
    """Whether the half format holds and computes everything without autocast, as DeepSpeed has it."""
    if request.precision not in ("bf16", "fp16"):
        return False
    return request.deepspeed or (request.half_weights and not request.lora_rank)


def run_config(request: TraceRequest) -> RunConfig:
    """The settings that building a model asks for."""
    return RunConfig.model_validate(
        {
            "task": request.task,
            "engine": {"precision": request.precision, "attention": request.attention},
            "training": {"loss_chunk": request.loss_chunk},
            "peft": {
                "method": "lora" if request.lora_rank else "none",
                "rank": max(1, request.lora_rank),
                "targets": list(request.lora_targets),
                "dropout": 0.1 if request.lora_dropout else 0.0,
            },
        }
    )


def said_by(error: Exception) -> str:
    """What an exception that was not meant for users says first; a heading gives way to what stands below it."""
    if isinstance(error, KeyError) and str(error.args[0]).isidentifier():
        return tr("{name} is missing", name=repr(error.args[0]))
    lines = [line for line in map(str.strip, str(error).splitlines()) if line]
    telling = next((line for line in lines if not line.rstrip(".").endswith(":")), lines[0] if lines else "")
    return (telling or type(error).__name__).rstrip(".:")


def _class_of(task: str) -> Any:
    return AutoModelForSequenceClassification if task == "sequence-classification" else MODEL_CLASSES[task]


def _values(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError as error:
        message = tr("The model's config is not whole JSON: {reason}.", reason=said_by(error))
        raise CannotTrace("invalid_config", message) from error
    if not isinstance(values, dict):
        raise CannotTrace(
            "invalid_config", tr("The model's config is not a JSON object, so no model can be built from it.")
        )
    return values


def _architecture(values: dict[str, Any]) -> Any:
    kind = values.pop("model_type", None)
    if not isinstance(kind, str) or not kind:
        raise CannotTrace("invalid_config", tr("The config names no model_type, so no model can be built from it."))
    if kind not in CONFIG_MAPPING:
        if values.get("auto_map"):
            message = tr(
                "A model of type {kind} comes with code of its own, which is not run for a preview.", kind=repr(kind)
            )
            raise CannotTrace("remote_code", message)
        message = tr("A model of type {kind} is none that transformers knows.", kind=repr(kind))
        raise CannotTrace("unknown_model", message)
    for key in ("auto_map", "quantization_config", "_name_or_path"):
        values.pop(key, None)
    try:
        return AutoConfig.for_model(kind, **values)
    except Exception as error:
        message = tr("The config of type {kind} is not valid: {reason}.", kind=repr(kind), reason=said_by(error))
        raise CannotTrace("invalid_config", message) from error
