"""The model of a request as training builds it, without weights."""

from __future__ import annotations

import json
from typing import Any

import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import UsageError
from trainwiz.core.estimate.trace.problems import CannotTrace
from trainwiz.core.tracing.request import TraceRequest
from trainwiz.core.training.adapters import with_adapters
from trainwiz.core.training.weights import MODEL_CLASSES, loading_options
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForSequenceClassification
from transformers.initialization import no_init_weights

HALF_FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16, "bf16-true": torch.bfloat16}


def build_traced_model(request: TraceRequest) -> Any:
    """The bare model, in training mode; to be called under a FakeTensorMode. Raises CannotTrace."""
    config = run_config(request)
    values = json.loads(request.model_config)
    architecture = _architecture(values)
    try:
        with no_init_weights():
            base = _class_of(request.task).from_config(architecture, **loading_options(config))
        # Left out with the rest.
        base.tie_weights()
    except CannotTrace:
        raise
    except Exception as error:
        raise CannotTrace("invalid_config", f"The model cannot be built from its config: {first_line(error)}.") from error
    model = base
    if request.lora_rank:
        try:
            model = with_adapters(base, config, None)
        except UsageError as error:
            raise CannotTrace("unsupported", error.findings[0].message) from error
    if request.half_weights and request.precision in ("bf16", "fp16") and not request.lora_rank:
        model.to(HALF_FORMATS[request.precision])
    model.train()
    if request.checkpointing:
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    return model


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


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _class_of(task: str) -> Any:
    return AutoModelForSequenceClassification if task == "sequence-classification" else MODEL_CLASSES[task]


def _architecture(values: dict[str, Any]) -> Any:
    kind = values.pop("model_type", None)
    if not isinstance(kind, str) or not kind:
        raise CannotTrace("invalid_config", "The config names no model_type, so no model can be built from it.")
    if kind not in CONFIG_MAPPING:
        code, why = ("remote_code", "comes with code of its own") if values.get("auto_map") else ("unknown_model", "is none that transformers knows")
        raise CannotTrace(code, f"A model of type {kind!r} {why}, so it cannot be traced.")  # type: ignore[arg-type]
    for key in ("auto_map", "quantization_config", "_name_or_path"):
        values.pop(key, None)
    try:
        return AutoConfig.for_model(kind, **values)
    except Exception as error:
        raise CannotTrace("invalid_config", f"The config of type {kind!r} is not valid: {first_line(error)}.") from error
