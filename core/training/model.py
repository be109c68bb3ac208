"""The model of a run: its inputs, built, and saved at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from accelerate import init_empty_weights
from peft import PeftModel
from trainwiz.core.config import RunConfig
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.errors import usage_error
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.files import at_home
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.batches import IGNORED
from trainwiz.core.training.best import FinalChoice, copy_model
from trainwiz.core.training.engine import forward_needs_all
from trainwiz.core.training.process import first_line
from trainwiz.core.training.quantized import fill_randomly, is_quantized, pack_random, quantize
from trainwiz.core.training.tokens import check_vocabulary, with_token_ids
from trainwiz.core.training.weights import (
    MODEL_CLASSES,
    base_of_run,
    check_esm,
    load_weights,
    loading_options,
    merged,
    name_of_weights,
    partial_of,
    put_in_place,
    with_adapters,
)
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase, Trainer
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

# What a model is called with beside a batch.

ModelInputs = Callable[[dict[str, Any], Any], dict[str, Any]]
"""(batch with labels, bare model) -> keyword arguments of the model, the labels among them."""


def batch_alone(batch: dict[str, Any], model: Any) -> dict[str, Any]:
    """For a model that takes the batch as it is."""
    return batch


def decoder_only(batch: dict[str, Any], model: Any) -> dict[str, Any]:
    """For a causal model: without the cache, which only generation needs."""
    return {**batch, "use_cache": False}


def encoder_decoder(batch: dict[str, Any], model: Any) -> dict[str, Any]:
    """For an encoder-decoder: the decoder reads the labels one place to the right, as the model itself shifts them."""
    own = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if own is not None:
        return {**batch, "decoder_input_ids": own(labels=batch["labels"]), "use_cache": False}
    # M2M100 and NLLB have no such method (transformers 5.23) and shift in `forward`, where labels are not given here.
    shifted = batch["labels"].roll(1, dims=1)
    shifted[:, 0] = model.config.decoder_start_token_id
    shifted.masked_fill_(shifted == IGNORED, model.config.pad_token_id)
    return {**batch, "decoder_input_ids": shifted, "use_cache": False}


# The model of a run: from scratch, from weights that exist, or from a checkpoint; with adapters where asked.


def build_model(
    config: RunConfig,
    checkpoint: Path | None,
    folder: Path,
    tokenizer: PreTrainedTokenizerBase | None,
    head: Mapping[str, Any] = MappingProxyType({}),
) -> PreTrainedModel:
    """The model of any task, ready for the Trainer: a PreTrainedModel, or peft's wrapper around one.

    `folder` is the run folder; relative paths are from it. A model from scratch takes its special tokens from `tokenizer`.
    `head`: keys of the model's config that its data decide. A resumed run builds all of it from the checkpoint, for the
    Trainer's own loading loses tensors in silence: `save_pretrained` renames ESM's LayerNorms to gamma and beta, which
    `from_pretrained` alone renames back (transformers 5.23).

    Weights are float32 except with bf16-true and under adapters. Raises UsageError.
    """
    if config.peft.method != "none":
        if config.row_kind == "proteins":
            message = tr("ESM-2 training does not support LoRA; set peft.method: none.")
            raise usage_error("peft_not_supported", "peft.method", message)
        base = base_of_run(config, checkpoint, folder, lambda: _base(config, folder, tokenizer, head), head)
        _check(base, tokenizer)
        begun = None if config.peft.adapter is None else folder / at_home(Path(config.peft.adapter))
        return with_adapters(base, config, checkpoint or begun)
    if checkpoint is not None:
        model = load_weights(str(checkpoint), config, tr("the checkpoint"), whole=True, head=head)
    else:
        model = _base(config, folder, tokenizer, head)
    _check(model, tokenizer)
    return model


def random_model(
    config: RunConfig, device: torch.device, head: Mapping[str, Any] = MappingProxyType({})
) -> PreTrainedModel:
    """The model that `build_model` makes, with random weights and nothing read or saved: for measuring. Raises UsageError.

    It is filled with random numbers on the `device`, where that is quick; in fewer bits matrix by matrix, for all of them
    in 16 bits may not fit there.
    """
    with init_empty_weights() if is_quantized(config) else device:
        base = _from_scratch(config, None, head)
    if is_quantized(config):
        quantize(base, config, device, pack_random)
        fill_randomly(base, device)
    return base if config.peft.method == "none" else with_adapters(base, config, None)


def may_skip_weights(model: PreTrainedModel) -> bool:
    """Whether a step can leave trainable weights without a gradient, which DistributedDataParallel must be told.

    ESM's contact head never takes part in masked-LM training; a mixture of experts may pass some
    over. The Trainer itself says no as soon as activations are checkpointed.
    """
    architecture, _ = read_architecture(model.config.to_dict())
    return architecture is None or architecture.kind == "encoder"


def _base(
    config: RunConfig, folder: Path, tokenizer: PreTrainedTokenizerBase | None, head: Mapping[str, Any]
) -> PreTrainedModel:
    if config.model.init == "pretrained":
        name, quantized = name_of_weights(config, folder), is_quantized(config)
        return load_weights(name, config, tr("the model"), quantized=quantized, head=head)
    return _from_scratch(config, tokenizer, head)


def _from_scratch(
    config: RunConfig, tokenizer: PreTrainedTokenizerBase | None, head: Mapping[str, Any]
) -> PreTrainedModel:
    values = {**(config.model.architecture or {}), **config.model.architecture_overrides}
    kind = values.pop("model_type", None)
    if kind is None:
        raise usage_error(
            "missing_model", "model.architecture", tr("run.yaml contains no model.architecture; plan the run again.")
        )
    if config.row_kind == "proteins":
        check_esm(str(kind), values)
    elif tokenizer is not None:
        values = with_token_ids(values, tokenizer)
    values.update(head)
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
                reason=first_line(error),
            ),
        ) from error
    assert isinstance(model, PreTrainedModel)
    return model


def _check(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> None:
    if tokenizer is not None:
        check_vocabulary(vocabulary_of(model), tokenizer)


def vocabulary_of(model: Any) -> int:
    """Rows of the input embeddings: with DeepSpeed's ZeRO-3 the tensor itself is empty."""
    weight = model.get_input_embeddings().weight
    return int(getattr(weight, "ds_shape", weight.shape)[0])


# final_model at the end of a run: complete or not there; with adapters alone, or merged into their base.


def save_final_model(trainer: Trainer, folder: RunFolder, config: RunConfig, final: FinalChoice) -> None:
    """Save beside the place and rename; every process must call it.

    With `peft.merge` the adapters go to RUN/adapter first, and final_model is the whole model.
    """
    model: Any = trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False)
    if not (config.peft.merge and isinstance(model, PeftModel)):
        _save(trainer, folder.final_model, final.checkpoint)
    else:
        _save(trainer, folder.adapter, final.checkpoint)
        if trainer.is_world_process_zero():
            partial = partial_of(folder.final_model)
            # Adapters are added to weights in 16 bits: in fewer the sum would be rounded to them again.
            apart = forward_needs_all(model) or is_quantized(config) or final.checkpoint is not None
            whole = _adapted_base(folder, config, model.config) if apart else model
            merged(whole).save_pretrained(str(partial))
            if trainer.processing_class is not None:
                trainer.processing_class.save_pretrained(str(partial))
            put_in_place(partial, folder.final_model)
    if trainer.is_world_process_zero():
        of = (
            ""
            if final.checkpoint is None
            else f", the weights of {final.checkpoint.name}, the best by {final.said['metric']}"
        )
        print(f"model saved in {folder.final_model}{of}", flush=True)


def _adapted_base(folder: RunFolder, config: RunConfig, trained: Any) -> Any:
    """Base and adapters read back from the disk, for one process: the live ones are shared out among all."""
    # from_pretrained would share the base out again, and wait for processes that are not here.
    unset_hf_deepspeed_config()  # type: ignore[no-untyped-call]
    own = folder.base_model
    name = str(own) if (own / "config.json").is_file() else name_of_weights(config, folder.path)
    head = {"id2label": trained.id2label, "label2id": trained.label2id} if config.task in CLASSIFIES else {}
    base: Any = load_weights(name, config, tr("the base model of the adapter"), head=head)
    return PeftModel.from_pretrained(base, str(folder.adapter))


def _save(trainer: Trainer, place: Path, checkpoint: Path | None) -> None:
    """The weights as they are, or those of a checkpoint."""
    partial = partial_of(place)
    if checkpoint is None:
        trainer.save_model(str(partial))
    elif trainer.is_world_process_zero():
        copy_model(checkpoint, partial)
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        put_in_place(partial, place)
