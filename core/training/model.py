"""The model of a run: from scratch, from weights that exist, or from a checkpoint."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.data.proteins import ESM_VOCABULARY, MASK, PAD
from trainwiz.core.errors import UsageError, usage_error
from trainwiz.core.findings import Finding, Remedy
from transformers import AutoConfig, AutoModelForMaskedLM, EsmTokenizer, PreTrainedModel


def build_esm(config: RunConfig, checkpoint: Path | None) -> PreTrainedModel:
    """The ESM-2 model with its masked-LM head.

    A resumed run builds it from the checkpoint: `save_pretrained` renames ESM's LayerNorms to
    gamma and beta, and the Trainer's own loading drops them in silence (transformers 5.23), while
    `from_pretrained` renames them back. Weights are float32 except with bf16-true: mixed
    precision keeps a float32 copy to update. Raises UsageError.
    """
    loading: dict[str, Any] = {
        "dtype": torch.bfloat16 if config.engine.precision == "bf16-true" else torch.float32,
        "attn_implementation": config.engine.attention or "sdpa",
    }
    if checkpoint is not None:
        return _from_folder(str(checkpoint), loading, config, "the checkpoint")
    if config.model.init == "pretrained":
        return _from_folder(_weights_of(config), loading, config, "the model")
    model: PreTrainedModel = AutoModelForMaskedLM.from_config(_architecture(config), **loading)  # type: ignore[no-untyped-call]
    return model


def esm_tokenizer() -> EsmTokenizer:
    """ESM-2's tokenizer with the alphabet that is built in; saved beside the weights."""
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocab.txt"
        vocabulary.write_text("\n".join(ESM_VOCABULARY), encoding="utf-8")
        return EsmTokenizer(str(vocabulary))  # type: ignore[no-untyped-call]


def _architecture(config: RunConfig) -> Any:
    values = {**(config.model.architecture or {}), **config.model.architecture_overrides}
    kind = values.pop("model_type", None)
    if kind is None:
        raise usage_error(
            "missing_model", "model.architecture", "run.yaml holds no model.architecture; plan the run again."
        )
    _check_esm(str(kind), values)
    return AutoConfig.for_model(kind, **values)


def _check_esm(kind: str, values: dict[str, Any]) -> None:
    if kind != "esm":
        raise usage_error(
            "model_not_supported",
            "model.name",
            f"masked-LM training knows ESM-2 models; this one is of type {kind!r}. Choose an ESM-2 model (--model).",
        )
    expected = {"vocab_size": len(ESM_VOCABULARY), "pad_token_id": PAD, "mask_token_id": MASK}
    wrong = [f"{key} is {values.get(key)}, not {value}" for key, value in expected.items() if values.get(key) != value]
    if wrong:
        raise usage_error(
            "alphabet_mismatch", "model.architecture", f"the model does not use ESM-2's alphabet: {'; '.join(wrong)}."
        )


def _weights_of(config: RunConfig) -> str:
    """The folder or hub id of the pretrained weights."""
    path = Path(config.model.name).expanduser()
    if path.exists():
        return str(path if path.is_dir() else path.parent)
    from trainwiz.core.catalog.models import resolve_model

    spec, findings = resolve_model(config.model)
    if spec is None:
        raise UsageError(findings)
    return str(spec.path) if spec.path is not None and spec.path.is_dir() else spec.hub_id or spec.name


def _from_folder(name: str, loading: dict[str, Any], config: RunConfig, what: str) -> PreTrainedModel:
    pickle_allowed = config.model.allow_pickle
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    # Left out, trust_remote_code makes transformers ask a question that nobody can answer here.
    source: dict[str, Any] = {"local_files_only": offline, "trust_remote_code": config.model.trust_remote_code}
    try:
        architecture = AutoConfig.from_pretrained(name, **source, **config.model.architecture_overrides)
        _check_esm(architecture.model_type, architecture.to_dict())
        model: PreTrainedModel = AutoModelForMaskedLM.from_pretrained(
            name,
            config=architecture,
            **source,
            use_safetensors=None if pickle_allowed else True,
            **loading,
        )
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise _cannot_load(name, what, error, pickle_allowed) from error
    return model


def _cannot_load(name: str, what: str, error: Exception, pickle_allowed: bool) -> UsageError:
    folder = Path(name)
    pickled = sorted(path.name for path in folder.glob("*.bin")) if folder.is_dir() else []
    if pickled and not pickle_allowed and not any(folder.glob("*.safetensors")):
        return UsageError(
            Finding(
                "pickled_weights",
                "error",
                "model.allow_pickle",
                f"{name} holds its weights as {pickled[0]}, which can run code when it is loaded; "
                "allow it with --set model.allow_pickle=true, or convert it to safetensors.",
                (Remedy("allow it", changes={"model.allow_pickle": True}),),
            )
        )
    detail = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
    return usage_error("missing_model", "model.name", f"{what} {name} cannot be loaded: {detail}.")
