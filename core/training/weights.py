"""Weights that exist: from a folder, the hub, or a checkpoint of this run."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import torch
from trainwiz.core.catalog.hub_cache import is_offline
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import UsageError, usage_error
from trainwiz.core.language import tr
from trainwiz.core.telemetry.paths import at_home
from trainwiz.core.training.esm import check_esm
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
)

NEW_HEAD = re.compile(r"(^|\.)(lm_head|cls|classifier|score|contact_head|final_logits_bias)(\.|$)")
"""What a task may add to a published body, by the names of transformers."""

MODEL_CLASSES: dict[str, Any] = {
    "masked-lm": AutoModelForMaskedLM,
    "causal-lm": AutoModelForCausalLM,
    "seq2seq": AutoModelForSeq2SeqLM,
}


def weights_dtype(config: RunConfig) -> torch.dtype:
    """float32 where weights train, for mixed precision keeps a float32 copy to update; the frozen
    base of adapters is held in the type that it computes in."""
    precision = config.engine.precision
    if precision == "bf16-true" or (precision == "bf16" and config.peft.method != "none"):
        return torch.bfloat16
    return torch.float16 if precision == "fp16" and config.peft.method != "none" else torch.float32


def loading_options(config: RunConfig) -> dict[str, Any]:
    """dtype and attention, for `from_pretrained` and `from_config` alike."""
    return {"dtype": weights_dtype(config), "attn_implementation": config.engine.attention or "sdpa"}


def name_of_weights(config: RunConfig, folder: Path) -> str:
    """The folder or hub id of the pretrained weights; a relative path is from the run `folder`. Raises UsageError."""
    path = (folder / at_home(Path(config.model.name))).resolve()
    if path.exists():
        return str(path if path.is_dir() else path.parent)
    from trainwiz.core.catalog.models import resolve_model

    spec, findings = resolve_model(config.model)
    if spec is None:
        raise UsageError(findings)
    return str(spec.path) if spec.path is not None and spec.path.is_dir() else spec.hub_id or spec.name


def lasting_name(name: str, config: RunConfig) -> str:
    """What an adapter remembers its base by: the hub id rather than its place in this machine's cache."""
    from trainwiz.core.catalog.models import resolve_model

    spec, _ = resolve_model(config.model)
    in_cache = spec is not None and spec.hub_id is not None and spec.path is not None and str(spec.path) == name
    return str(spec.hub_id) if spec is not None and in_cache else name


def load_weights(name: str, config: RunConfig, what: str, *, whole: bool = False) -> PreTrainedModel:
    """The model of the task with the weights of `name` (a folder or hub id).

    `whole` refuses weights that do not fill every tensor of the model. Raises UsageError with `what` it is.
    """
    offline = is_offline()
    # Left out, trust_remote_code makes transformers ask a question that nobody can answer here.
    source: dict[str, Any] = {"local_files_only": offline, "trust_remote_code": config.model.trust_remote_code}
    try:
        architecture = AutoConfig.from_pretrained(name, **source, **config.model.architecture_overrides)
        if config.task == "masked-lm":
            check_esm(architecture.model_type, architecture.to_dict())
        model, report = MODEL_CLASSES[config.task].from_pretrained(
            name,
            config=architecture,
            **source,
            # A .bin is read by torch's restricted unpickler: tensors and nothing that could run.
            weights_only=True,
            output_loading_info=True,
            **loading_options(config),
        )
    except UsageError:
        raise
    except (OSError, ValueError, RuntimeError, pickle.UnpicklingError) as error:
        raise _cannot_load(name, what, error) from error
    missing = sorted(report["missing_keys"])
    of_head = [key for key in missing if NEW_HEAD.search(key)]
    if missing and (whole or len(of_head) < len(missing)):
        # Published weights that fill a part of the model alone would be a pretraining of the rest, unasked for.
        raise usage_error(
            "broken_checkpoint" if whole else "weights_of_another_model",
            str(name) if whole else "model.name",
            tr(
                "{what} {name} lacks {n} tensors, for example {example}.",
                what=what,
                name=name,
                n=len(missing),
                example=next(key for key in missing if whole or key not in of_head),
            ),
        )
    if missing:
        print(f"{len(missing)} tensors are not in {name} and start from scratch, for example {missing[0]}", flush=True)
    return _as_pretrained(model)


def _as_pretrained(model: Any) -> PreTrainedModel:
    assert isinstance(model, PreTrainedModel)
    return model


def _cannot_load(name: str, what: str, error: Exception) -> UsageError:
    if isinstance(error, pickle.UnpicklingError):
        message = tr(
            "{what} {name} is not loaded: its .bin weights hold more than tensors, which could run code; "
            "convert them to safetensors.",
            what=what,
            name=name,
        )
        return usage_error("unsafe_weights", "model.name", message)
    detail = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
    message = tr("{what} {name} cannot be loaded: {reason}.", what=what, name=name, reason=detail)
    return usage_error("missing_model", "model.name", message)
