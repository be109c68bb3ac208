"""A DeepSpeed JSON of the user's own: used as it is, and checked against the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.config.run import RunConfig
from trainwiz.core.errors import UsageError, usage_error
from trainwiz.core.export.solved import mixed_precision, processes, solved
from trainwiz.core.findings import Finding
from trainwiz.core.json_text import parse_json

KEY = "engine.deepspeed_file"


def read_deepspeed_file(path: Path) -> dict[str, Any]:
    """The document. Raises UsageError with one sentence when it cannot be read or has no ZeRO section."""
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise usage_error("missing_file", KEY, f"The DeepSpeed file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise usage_error("broken_file", KEY, f"The DeepSpeed file {path} is not UTF-8 text.") from None
    except json.JSONDecodeError as error:
        message = f"{path}, line {error.lineno}, column {error.colno}: this is not valid JSON ({error.msg})."
        raise usage_error("broken_file", KEY, message) from None
    except ValueError as error:
        raise usage_error("broken_file", KEY, f"The DeepSpeed file {path} cannot be read: {error}.") from None
    if not isinstance(document, dict) or not isinstance(document.get("zero_optimization"), dict):
        message = f"The DeepSpeed file {path} has no `zero_optimization` section, which accelerate needs."
        raise usage_error("broken_file", KEY, message)
    return document


def mismatches(document: Mapping[str, Any], config: RunConfig) -> list[Finding]:
    """One finding for each key that says something else than the run; transformers would refuse to start."""
    micro = solved(config.batch.micro_batch_size, "batch.micro_batch_size")
    accumulation = solved(config.batch.gradient_accumulation_steps, "batch.gradient_accumulation_steps")
    mixed = mixed_precision(config)
    training = config.training
    expected: dict[str, tuple[Any, str]] = {
        "train_micro_batch_size_per_gpu": (micro, "batch.micro_batch_size"),
        "gradient_accumulation_steps": (accumulation, "batch.gradient_accumulation_steps"),
        "train_batch_size": (micro * accumulation * processes(config), "the effective batch"),
        "gradient_clipping": (training.max_grad_norm, "training.max_grad_norm"),
        "optimizer.params.lr": (training.learning_rate, "training.learning_rate"),
        "optimizer.params.betas": ([training.adam_beta1, training.adam_beta2], "training.adam_beta1 and adam_beta2"),
        "optimizer.params.eps": (training.adam_epsilon, "training.adam_epsilon"),
        "optimizer.params.weight_decay": (training.weight_decay, "training.weight_decay"),
        "fp16.enabled": (mixed == "fp16", "engine.precision"),
        "bf16.enabled": (mixed == "bf16", "engine.precision"),
    }
    findings: list[Finding] = []
    for path, (value, key) in expected.items():
        found = _at(document, path)
        if found is not None and found != "auto" and found != value:
            message = (
                f'The DeepSpeed file has {path} {found!r} where the run has {value!r} ({key}); write "auto" there '
                "or change the run."
            )
            findings.append(Finding("deepspeed_mismatch", "error", KEY, message))
    return findings


def _at(document: Mapping[str, Any], path: str) -> Any:
    node: Any = document
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def checked_deepspeed_file(config: RunConfig) -> dict[str, Any] | None:
    """The user's document for this run, or None when there is none. Raises UsageError with all mismatches."""
    if config.engine.deepspeed_file is None:
        return None
    document = read_deepspeed_file(Path(config.engine.deepspeed_file).expanduser())
    findings = mismatches(document, config)
    if findings:
        raise UsageError(findings)
    return document
