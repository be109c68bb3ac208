"""Run folders of the text tasks: the tiny models of the catalogue, made smaller, on a few rows of the samples."""

from __future__ import annotations

from typing import Any

from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig

from tests.core.training.runs import TINY

CHAT = [{"name": "sample-chat", "text_column": "prompt", "target_column": "response", "max_rows": 150}]
PAIRS = [{"name": "sample-pairs", "text_column": "source", "target_column": "target", "max_rows": 150}]


def text_config(model: str, **changes: Any) -> RunConfig:
    """A complete config for a tiny model of the catalogue; keys of `changes` are paths with "__" for "."."""
    spec = load_models()[model]
    chat = spec.task == "causal-lm"
    values = {
        **TINY,
        "task": spec.task,
        "model.name": model,
        "model.architecture": spec.architecture,
        "data.sources": CHAT if chat else PAIRS,
        "batch.target_length": None if chat else 24,
        "training.max_steps": 8,
        "checkpoint.every_steps": 4,
        **{key.replace("__", "."): value for key, value in changes.items()},
    }
    values.pop("model.architecture_overrides")
    return RunConfig().with_values(values, "you")
