"""The settings that the tiers of the preview are compared over: every catalogue model x 12."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.catalog.models import load_models
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.workload import Workload

from tools.benchmarks.family_traces import attention_projections

LORA = {"lora_rank": 8, "lora_dropout": True}
SETTINGS: dict[str, dict[str, Any]] = {
    "fp32 1x128": {"precision": "fp32", "micro_batch": 1, "length": 128},
    "fp32 eager 4x256": {"precision": "fp32", "attention": "eager", "micro_batch": 4, "length": 256},
    "bf16 4x512": {"precision": "bf16", "micro_batch": 4, "length": 512, "eval_micro_batch": 4},
    "bf16 4x512 checkpointed": {"precision": "bf16", "micro_batch": 4, "length": 512, "checkpointing": True},
    "fp16 16x128 twice": {"precision": "fp16", "micro_batch": 16, "length": 128, "accumulation": 2},
    "fp16 eager 2x512 checkpointed": {
        "precision": "fp16", "attention": "eager", "micro_batch": 2, "length": 512, "checkpointing": True,
    },
    "bf16 foreach 8x256 twice": {
        "precision": "bf16", "optimizer": "adamw_torch", "micro_batch": 8, "length": 256, "accumulation": 2,
    },
    "bf16-true 4x512": {"precision": "bf16-true", "micro_batch": 4, "length": 512, "eval_micro_batch": 8},
    "bf16-true lora 4x384": {"precision": "bf16-true", "micro_batch": 4, "length": 384, **LORA},
    "bf16 lora 8x512 checkpointed": {
        "precision": "bf16", "micro_batch": 8, "length": 512, "checkpointing": True, **LORA,
    },
    "bf16 adafactor 8x512 checkpointed, loss by 1024": {
        "precision": "bf16", "optimizer": "adafactor", "micro_batch": 8, "length": 512, "checkpointing": True,
        "loss_chunk": 1024, "eval_micro_batch": 8,
    },
    "fp32 sgd 8x128 smoothed": {
        "precision": "fp32", "optimizer": "sgd", "micro_batch": 8, "length": 128, "label_smoothing": True,
        "clipping": False, "eval_micro_batch": 8,
    },
}  # fmt: skip
ADAPTERLESS = ("masked-lm",)
"""Tasks without adapters: all weights are trained in their place."""
GENERATES = ("seq2seq",)
QUICK_MODELS = ("esm2-35m", "gpt2-medium", "qwen2.5-0.5b", "opus-mt-zh-en", "t5-chat-0.2b")
QUICK_SETTINGS = ("fp32 eager 4x256", "bf16 4x512", "bf16 lora 8x512 checkpointed", "fp32 sgd 8x128 smoothed")


@dataclass(frozen=True)
class Case:
    """One model with one setting."""

    model: str
    setting: str
    work: Workload


def cases(*, quick: bool = False) -> Iterator[Case]:
    for name, spec in load_models().items():
        if quick and name not in QUICK_MODELS:
            continue
        for setting in QUICK_SETTINGS if quick else SETTINGS:
            yield Case(name, setting, workload(spec, SETTINGS[setting]))


def workload(spec: ModelSpec, setting: dict[str, Any]) -> Workload:
    """One process on an NVIDIA GPU. Lengths stay within the model's positions."""
    architecture, reason = read_architecture(spec.architecture)
    assert architecture is not None, reason
    values = dict(setting)
    if spec.task in ADAPTERLESS:
        values = {key: value for key, value in values.items() if key not in LORA}
    values["length"] = min(values["length"], architecture.max_positions or values["length"])
    target = values["length"] * 3 // 4
    if spec.task in GENERATES and values.get("eval_micro_batch"):
        values |= {"generation_length": target, "beams": 4 if values["precision"] == "fp32" else 1}
    if "lora_rank" in values:
        values["lora_targets"] = attention_projections(architecture)
    return Workload(
        architecture=architecture,
        target_length=target,
        task=spec.task,
        model_config=json.dumps(spec.architecture, sort_keys=True),
        device="cuda",
        **values,
    )
