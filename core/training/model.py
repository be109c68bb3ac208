"""The model of a run: its inputs, built with its adapters, and saved at the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from peft import LoraConfig, PeftConfig, PeftModel, TaskType, get_peft_model, set_peft_model_state_dict
from peft.utils import load_peft_weights
from trainwiz.core.catalog.models import resolve_model
from trainwiz.core.config import RunConfig
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.errors import usage_error
from trainwiz.core.estimate.architecture import ALL_LINEAR, lora_targets
from trainwiz.core.estimate.families import is_guessed, read_architecture
from trainwiz.core.files import at_home
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.batches import IGNORED
from trainwiz.core.training.best import FinalChoice, copy_model
from trainwiz.core.training.engine import forward_needs_all, gathered
from trainwiz.core.training.process import first_line, rank_of_this_process
from trainwiz.core.training.tokens import check_vocabulary, with_token_ids
from trainwiz.core.training.weights import (
    MODEL_CLASSES,
    check_esm,
    is_quantized,
    load_weights,
    loading_options,
    name_of_weights,
    partial_of,
    put_in_place,
)
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, Trainer
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from transformers.pytorch_utils import Conv1D

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


INPUTS: dict[str, ModelInputs] = {"causal-lm": decoder_only, "seq2seq": encoder_decoder}
"""By task; the batch alone for all others."""


# The model of a run: from scratch, from weights that exist, or from a checkpoint; with adapters where asked.


def build_model(
    config: RunConfig, checkpoint: Path | None, folder: Path, tokenizer: PreTrainedTokenizerBase | None
) -> PreTrainedModel:
    """The model of any task, ready for the Trainer: a PreTrainedModel, or peft's wrapper around one.

    `folder` is the run folder; relative paths are from it. A model from scratch takes its special tokens from `tokenizer`.
    A resumed run builds all of it from the checkpoint, for the Trainer's own loading loses tensors in silence:
    `save_pretrained` renames ESM's LayerNorms to gamma and beta, which `from_pretrained` alone renames back
    (transformers 5.23).

    Weights are float32 except with bf16-true and under adapters. Raises UsageError.
    """
    adapted = config.peft.method != "none"
    if adapted and config.row_kind == "proteins":
        message = tr("ESM-2 training does not support LoRA; set peft.method: none.")
        raise usage_error("peft_not_supported", "peft.method", message)
    if adapted:
        model = _base_of_adapters(config, checkpoint, folder, tokenizer)
    elif checkpoint is not None:
        model = load_weights(str(checkpoint), config, tr("the checkpoint"), whole=True)
    else:
        model = _begun(config, folder, tokenizer)
    if tokenizer is not None:
        check_vocabulary(vocabulary_of(model), tokenizer)
    if not adapted:
        return model
    begun = None if config.peft.adapter is None else folder / at_home(Path(config.peft.adapter))
    return with_adapters(model, config, checkpoint or begun)


def measured_model(config: RunConfig, folder: Path, device: torch.device) -> PreTrainedModel:
    """The model that `build_model` makes, for measuring: with random weights, made on the `device`, where that is quick; in
    fewer bits with its own, for all of them in 16 bits may not fit there. Raises UsageError."""
    if is_quantized(config):
        return build_model(config, None, folder, None)
    with device:
        base = _from_scratch(config, None)
    return base if config.peft.method == "none" else with_adapters(base, config, None)


def may_skip_weights(model: PreTrainedModel) -> bool:
    """Whether a step can leave trainable weights without a gradient, which DistributedDataParallel must be told.

    ESM's contact head never takes part in masked-LM training; a mixture of experts may pass some
    over. The Trainer itself says no as soon as activations are checkpointed.
    """
    architecture, _ = read_architecture(model.config.to_dict())
    return architecture is None or architecture.kind == "encoder"


def _begun(config: RunConfig, folder: Path, tokenizer: PreTrainedTokenizerBase | None) -> PreTrainedModel:
    """As a training begins, without adapters."""
    if config.model.init == "pretrained":
        return load_weights(name_of_weights(config, folder), config, tr("the model"), quantized=is_quantized(config))
    return _from_scratch(config, tokenizer)


def _from_scratch(config: RunConfig, tokenizer: PreTrainedTokenizerBase | None) -> PreTrainedModel:
    own = config.model.architecture or {}
    values = {**own, **config.model.architecture_overrides}
    kind = values.pop("model_type", None)
    if kind is None:
        message = tr("run.yaml contains no model.architecture; plan the run again.")
        raise usage_error("missing_model", "model.architecture", message)
    if config.row_kind == "proteins":
        check_esm(str(kind), values)
    elif tokenizer is not None:
        # Other keys may name the padding of the architecture itself.
        values = with_token_ids({**values, "pad_token_id": own.get("pad_token_id")}, tokenizer)
    try:
        architecture = AutoConfig.for_model(str(kind), **values)
        model: Any = MODEL_CLASSES[config.task].from_config(architecture, **loading_options(config))
    except ValueError as error:
        message = tr(
            "a model of type {kind} cannot be built for {task}: {reason}.",
            kind=repr(kind),
            task=config.task,
            reason=first_line(error),
        )
        raise usage_error("model_not_supported", "model.name", message) from error
    assert isinstance(model, PreTrainedModel)
    return model


def vocabulary_of(model: Any) -> int:
    """Rows of the input embeddings: with DeepSpeed's ZeRO-3 the tensor itself is empty."""
    weight = model.get_input_embeddings().weight
    return int(getattr(weight, "ds_shape", weight.shape)[0])


# LoRA adapters by peft: put onto a frozen base, taken up again from a checkpoint, merged at the end.

TASK_TYPES = {
    "causal-lm": TaskType.CAUSAL_LM,
    "seq2seq": TaskType.SEQ_2_SEQ_LM,
    "sequence-classification": TaskType.SEQ_CLS,
    "token-classification": TaskType.TOKEN_CLS,
}


def _base_of_adapters(
    config: RunConfig, checkpoint: Path | None, folder: Path, tokenizer: PreTrainedTokenizerBase | None
) -> PreTrainedModel:
    """The base that the adapters sit on: pretrained weights, or RUN/base_model.

    A base from scratch exists nowhere else, so the first process saves it there before the first
    step, in the type that it computes in. A resumed run loads it back; so does the first one where it is held in
    fewer bits, so that both quantise the same numbers. Raises UsageError.
    """
    saved = RunFolder(folder.resolve()).base_model
    quantized = is_quantized(config)
    if config.model.init == "pretrained":
        base = _begun(config, folder, tokenizer)
        name = str(base.name_or_path)
        spec, _ = resolve_model(config.model)
        if spec is not None and spec.hub_id is not None and str(spec.path) == name:
            # An adapter remembers its base by the hub id rather than by its place in this machine's cache.
            name = spec.hub_id
    else:
        name = str(saved)
        if checkpoint is None:
            base = _begun(config, folder, tokenizer)
            with gathered(base):
                if rank_of_this_process() == 0:
                    base.save_pretrained(str(partial_of(saved)))
                    put_in_place(partial_of(saved), saved)
            PartialState().wait_for_everyone()
        elif not (saved / "config.json").is_file():
            message = tr(
                "{path} is missing: the adapter of {name} needs that base model, which was initialized from scratch.",
                path=saved,
                name=checkpoint.name,
            )
            raise usage_error("missing_base_model", str(saved), message)
        if checkpoint is not None or quantized:
            base = load_weights(name, config, tr("the base model of the adapter"), whole=True, quantized=quantized)
    base.config._name_or_path = base.name_or_path = name
    return base


def with_adapters(base: PreTrainedModel, config: RunConfig, checkpoint: Path | None) -> PreTrainedModel:
    """`base`, frozen, with trainable adapters in float32 (Hu et al. 2021): new ones, or those of the checkpoint,
    which is a folder of adapters as peft saves them."""
    model: Any
    if checkpoint is None:
        model = in_single(get_peft_model(base, lora_config(base, config)), config)
    else:
        try:
            adapters = PeftConfig.from_pretrained(str(checkpoint))
            adapters.inference_mode = False
            # In fp32 before they are filled: peft makes what is trained whole as the base is held, which would round it.
            model = in_single(get_peft_model(base, adapters), config)
            set_peft_model_state_dict(model, load_peft_weights(str(checkpoint), device="cpu"))
        except (OSError, ValueError, RuntimeError) as error:
            message = tr("The adapter of {path} cannot be loaded: {reason}.", path=checkpoint, reason=first_line(error))
            raise usage_error("broken_checkpoint", str(checkpoint), message) from error
    # On "auto" each save asks the hub whether the vocabulary was changed.
    object.__setattr__(model, "save_pretrained", partial(model.save_pretrained, save_embedding_layers=False))
    return model  # type: ignore[no-any-return]


def in_single(model: Any, config: RunConfig) -> Any:
    """`model` with all that trains in fp32, under mixed precision: GradScaler refuses gradients in fp16."""
    if config.engine.precision != "bf16-true":
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
    return model


def lora_config(base: PreTrainedModel, config: RunConfig) -> LoraConfig:
    """peft's settings. Raises UsageError for a target that the model does not have, with the names that it has."""
    peft = config.peft
    targets = _targets(base, peft.targets)
    linear = {name for name, module in base.named_modules() if isinstance(module, torch.nn.Linear | Conv1D)}
    unknown = [target for target in peft.targets if not any(f".{name}".endswith(f".{target}") for name in linear)]
    if unknown and targets == peft.targets:
        message = tr(
            "The model has no module {unknown}; modules that can get an adapter are {names} (peft.targets).",
            unknown=", ".join(map(repr, unknown)),
            names=", ".join(sorted({name.rsplit(".", 1)[-1] for name in linear})),
        )
        raise usage_error("unknown_lora_target", "peft.targets", message)
    return LoraConfig(
        task_type=TASK_TYPES.get(config.task),
        r=peft.rank,
        lora_alpha=peft.alpha if peft.alpha is not None else 2 * peft.rank,  # type: ignore[arg-type]
        lora_dropout=peft.dropout,
        target_modules=targets,
        use_rslora=peft.rslora,
        use_dora=peft.dora,
        modules_to_save=[*peft.modules_to_save, *_heads(base, config)] or None,
        # One copy where the head is the token table.
        ensure_weight_tying=bool(peft.modules_to_save) and bool(getattr(base.config, "tie_word_embeddings", False)),
        fan_in_fan_out=any(isinstance(base.get_submodule(name), Conv1D) for name in linear),
        bias="none",
    )


def _heads(base: Any, config: RunConfig) -> list[str]:
    """What stands on the body of a model that classifies, which is new: trained whole, for adapters on it would adapt
    random weights."""
    if config.task not in CLASSIFIES:
        return []
    children = base.named_children()
    # peft adds these two automatically.
    body = (base.base_model_prefix, "classifier", "score")
    heads = [name for name, part in children if name not in body and list(part.parameters())]
    return [*heads, "pooler"] if any(name.endswith(".pooler") for name, _ in base.named_modules()) else heads


def _targets(base: PreTrainedModel, named: list[str]) -> list[str] | str:
    """The same names that the plan counts; of an architecture that no plan knows, what peft takes for linear layers."""
    if named and tuple(named) != ALL_LINEAR:
        return named
    architecture, _ = read_architecture(base.config.to_dict())
    if architecture is None or is_guessed(architecture.model_type):
        return "all-linear"
    return list(lora_targets(architecture))


def merged(model: PeftModel) -> PreTrainedModel:
    """The base with the adapters added to its weights, in place: W + alpha / rank x B A, rounded once to W's type."""
    base = model.merge_and_unload()
    assert isinstance(base, PreTrainedModel)
    return base


# final_model at the end of a run: complete or not there; with adapters alone, or merged into their base.


def save_final_model(trainer: Trainer, folder: RunFolder, config: RunConfig, final: FinalChoice) -> None:
    """Save beside the place and rename; every process must call it.

    With `peft.merge` the adapters go to RUN/adapter first, and final_model is the whole model.
    """
    model: Any = trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False)
    head = model.config if isinstance(model, PeftModel) and config.task in CLASSIFIES else None
    if not (config.peft.merge and isinstance(model, PeftModel)):
        _save(trainer, folder.final_model, final.checkpoint, head)
    else:
        _save(trainer, folder.adapter, final.checkpoint, head)
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
    if config.task in CLASSIFIES:
        config = with_head(config, {"id2label": trained.id2label, "label2id": trained.label2id})
    return PeftModel.from_pretrained(
        load_weights(name, config, tr("the base model of the adapter")), str(folder.adapter)
    )


def with_head(config: RunConfig, head: dict[str, Any]) -> RunConfig:
    """`config` with keys of the model's config that its data decide."""
    overrides = {**config.model.architecture_overrides, **head}
    return config.with_values({"model.architecture_overrides": overrides}, "solved")


def _save(trainer: Trainer, place: Path, checkpoint: Path | None, head: PretrainedConfig | None) -> None:
    """The weights as they are, or those of a checkpoint. `head`: the config of a model with classes, beside its adapter."""
    partial = partial_of(place)
    if checkpoint is None:
        trainer.save_model(str(partial))
    elif trainer.is_world_process_zero():
        copy_model(checkpoint, partial)
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        if head is not None:
            # An adapter's own files do not say how many classes its new head has, and what they are called.
            head.save_pretrained(str(partial))
        put_in_place(partial, place)
