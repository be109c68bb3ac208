"""The model of a run: from scratch, from weights that exist, or from a checkpoint; with adapters where asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.errors import usage_error
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.language import tr
from trainwiz.core.training.adapters import base_of_run, with_adapters
from trainwiz.core.training.esm import check_esm, esm_tokenizer
from trainwiz.core.training.token_ids import check_vocabulary, with_token_ids
from trainwiz.core.training.weights import MODEL_CLASSES, load_weights, loading_options, name_of_weights
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["build_esm", "build_model", "esm_tokenizer"]


def build_model(
    config: RunConfig, checkpoint: Path | None, folder: Path, tokenizer: PreTrainedTokenizerBase | None
) -> PreTrainedModel:
    """The model of any task, ready for the Trainer: a PreTrainedModel, or peft's wrapper around one.

    `folder` is the run folder; relative paths are from it. A model from scratch takes its special
    tokens from `tokenizer`. A resumed run builds all of it from the checkpoint, for the Trainer's
    own loading loses tensors in silence: `save_pretrained` renames ESM's LayerNorms to gamma and
    beta, which `from_pretrained` alone renames back (transformers 5.23).

    Weights are float32 except with bf16-true and under adapters. Raises UsageError.
    """
    if config.peft.method != "none":
        if config.task == "masked-lm":
            raise usage_error(
                "peft_not_supported", "peft.method", tr("masked-LM training has no adapters; set peft.method: none.")
            )
        base = base_of_run(config, checkpoint, folder, lambda: _base(config, folder, tokenizer))
        _check(base, tokenizer)
        return with_adapters(base, config, checkpoint)
    if checkpoint is not None:
        model = load_weights(str(checkpoint), config, tr("the checkpoint"), whole=True)
    else:
        model = _base(config, folder, tokenizer)
    _check(model, tokenizer)
    return model


def random_model(config: RunConfig) -> PreTrainedModel:
    """The model that `build_model` makes, with random weights and nothing read or saved: for measuring. Raises UsageError."""
    base = _from_scratch(config, None)
    return base if config.peft.method == "none" else with_adapters(base, config, None)


def may_skip_weights(model: PreTrainedModel) -> bool:
    """Whether a step can leave trainable weights without a gradient, which DistributedDataParallel must be told.

    ESM's contact head never takes part in masked-LM training; a mixture of experts may pass some
    over. The Trainer itself says no as soon as activations are checkpointed.
    """
    architecture, _ = read_architecture(model.config.to_dict())
    return architecture is None or architecture.kind == "encoder"


def build_esm(config: RunConfig, checkpoint: Path | None) -> PreTrainedModel:
    """The ESM-2 model with its masked-LM head; relative paths are from the working folder. Raises UsageError."""
    return build_model(config, checkpoint, Path(), None)


def _base(config: RunConfig, folder: Path, tokenizer: PreTrainedTokenizerBase | None) -> PreTrainedModel:
    if config.model.init == "pretrained":
        return load_weights(name_of_weights(config, folder), config, tr("the model"))
    return _from_scratch(config, tokenizer)


def _from_scratch(config: RunConfig, tokenizer: PreTrainedTokenizerBase | None) -> PreTrainedModel:
    values = {**(config.model.architecture or {}), **config.model.architecture_overrides}
    kind = values.pop("model_type", None)
    if kind is None:
        raise usage_error(
            "missing_model", "model.architecture", tr("run.yaml holds no model.architecture; plan the run again.")
        )
    if config.task == "masked-lm":
        check_esm(str(kind), values)
    elif tokenizer is not None:
        values = with_token_ids(values, tokenizer)
    try:
        architecture = AutoConfig.for_model(str(kind), **values)
        model: Any = MODEL_CLASSES[config.task].from_config(architecture, **loading_options(config))
    except ValueError as error:
        raise usage_error(
            "model_not_supported",
            "model.name",
            tr(
                "a model of type {kind} cannot be built for {task}: {reason}.",
                kind=repr(kind),
                task=config.task,
                reason=str(error).splitlines()[0].rstrip("."),
            ),
        ) from error
    assert isinstance(model, PreTrainedModel)
    return model


def _check(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> None:
    if tokenizer is not None:
        embeddings: Any = model.get_input_embeddings()
        # Sharded by ZeRO-3 they have no rows of their own.
        shape = getattr(embeddings.weight, "ds_shape", embeddings.weight.shape)
        check_vocabulary(int(shape[0]), tokenizer)
