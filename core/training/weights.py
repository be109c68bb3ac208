"""The weights of a model, loaded: as they are, or in 4 or 8 bits under adapters (QLoRA, Dettmers et al. 2023)."""

from __future__ import annotations

import os
import pickle
import re
import tempfile
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from trainwiz.core.catalog.hub import is_offline
from trainwiz.core.catalog.model_config import TEXT_CLASSES, quantized_as
from trainwiz.core.catalog.models import quantized_message, resolve_model
from trainwiz.core.config import RunConfig
from trainwiz.core.config.values import CLASSIFIES
from trainwiz.core.data.text_store import ESM_VOCABULARY, MASK, PAD
from trainwiz.core.errors import UsageError, usage_error
from trainwiz.core.export.training_arguments import runs_on_cpu
from trainwiz.core.files import at_home
from trainwiz.core.language import tr, trn
from trainwiz.core.run.folder import PARTIAL
from trainwiz.core.training.process import first_line
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BitsAndBytesConfig,
    EsmTokenizer,
    PreTrainedModel,
)
from transformers.pytorch_utils import Conv1D
from transformers.quantizers.base import get_keys_to_not_convert
from transformers.quantizers.quantizers_utils import should_convert_module
from transformers.utils.quantization_config import Mxfp4Config

# What is special about ESM-2: its alphabet, which is built in and must be the model's own.


def esm_tokenizer() -> EsmTokenizer:
    """ESM-2's tokenizer with the alphabet that is built in; saved beside the weights."""
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocab.txt"
        vocabulary.write_text("\n".join(ESM_VOCABULARY), encoding="utf-8")
        return EsmTokenizer(str(vocabulary))  # type: ignore[no-untyped-call]


def check_esm(kind: str, values: Mapping[str, Any]) -> None:
    """Raises UsageError for a model that is no ESM-2 or counts its letters otherwise."""
    if kind != "esm":
        message = tr(
            "masked-LM training supports ESM-2 models; this one is of type {kind}. Choose an ESM-2 model (--model).",
            kind=repr(kind),
        )
        raise usage_error("model_not_supported", "model.name", message)
    expected = {"vocab_size": len(ESM_VOCABULARY), "pad_token_id": PAD, "mask_token_id": MASK}
    for key, wanted in expected.items():
        if values.get(key) != wanted:
            problem = tr("{key} is {value}, not {wanted}", key=key, value=values.get(key), wanted=wanted)
            message = tr("the model does not use the ESM-2 alphabet: {problems}.", problems=problem)
            raise usage_error("alphabet_mismatch", "model.architecture", message)


# In fewer bits than it computes in, by bitsandbytes.

MIXED: dict[str | None, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Precisions under autocast."""
COMPUTED: dict[str | None, torch.dtype] = {**MIXED, "bf16-true": torch.bfloat16}


def is_quantized(config: RunConfig) -> bool:
    """Whether the base is held in fewer bits than it computes in."""
    return config.engine.base_precision in ("nf4", "int8") and config.peft.method != "none"


def _bits(config: RunConfig) -> BitsAndBytesConfig:
    """Weights in 4 bits of NF4 with their scales in 8 (double quantisation: 0.37 bits a weight less, the same scores in
    the paper), or in 8; products in the precision of the run. Outliers of LLM.int8 are bitsandbytes' own."""
    if config.engine.base_precision == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)  # type: ignore[no-untyped-call]
    return BitsAndBytesConfig(  # type: ignore[no-untyped-call]
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=COMPUTED.get(config.engine.precision, torch.float32),
    )


def quantization(config: RunConfig) -> dict[str, Any]:
    """For `from_pretrained`: it reads one tensor after the other and quantises it on the device of this process."""
    place: str | int = "cpu" if runs_on_cpu(config) else int(os.environ.get("LOCAL_RANK", "0"))
    return {"quantization_config": _bits(config), "device_map": {"": place}}


def norms_in_single(model: PreTrainedModel, config: RunConfig) -> None:
    """What peft's prepare_model_for_kbit_training does for the numbers: under autocast norms are held in fp32, and with
    them the stream between the blocks. It makes embeddings and head fp32 too, which autocast rounds back before they
    are used: those stay as they are, for half the memory."""
    for module in model.modules():
        if config.engine.precision in MIXED and "norm" in type(module).__name__.lower():
            for parameter in module.parameters(recurse=False):
                parameter.data = parameter.data.float()
        if hasattr(module, "support_avx512bf16_for_cpu"):
            # bitsandbytes 0.50 packs weights anew where such a CPU evaluates, and computes no gradient through them after.
            vars(module)["support_avx512bf16_for_cpu"] = False


def quantize(
    model: PreTrainedModel,
    config: RunConfig,
    packed: Callable[[torch.Tensor, RunConfig], torch.nn.Parameter],
) -> None:
    """A model of fake weights as `from_pretrained` would have loaded it; `packed` makes of those of a layer the same in
    fewer bits."""
    import bitsandbytes

    layers: Any = bitsandbytes.nn
    kept = get_keys_to_not_convert(model) + list(model._keep_in_fp32_modules or ())
    bits, eight = _bits(config), config.engine.base_precision == "int8"
    for name, module in list(model.named_modules()):
        if not ((type(module) is torch.nn.Linear or isinstance(module, Conv1D)) and should_convert_module(name, kept)):
            continue
        weight = (module.weight.T if isinstance(module, Conv1D) else module.weight).data
        outputs, inputs = weight.shape
        # The layer's own parameters, which give way, cannot be made of fake tensors.
        with unset_fake_temporarily():
            if eight:
                layer = layers.Linear8bitLt(
                    inputs, outputs, False, has_fp16_weights=False, threshold=bits.llm_int8_threshold, device="meta"
                )
            else:
                layer = layers.Linear4bit(
                    inputs, outputs, False, bits.bnb_4bit_compute_dtype, True, "nf4", device="meta"
                )
        layer.weight, layer.bias = packed(weight, config), module.bias
        model.set_submodule(name, layer.requires_grad_(False))
    # By this peft knows its layers.
    setattr(model, f"is_loaded_in_{8 if eight else 4}bit", True)
    norms_in_single(model, config)


# Weights that exist: from a folder, the hub, or a checkpoint of this run.

NEW_HEAD = re.compile(r"(^|\.)(lm_head|cls|classifier|score|contact_head|final_logits_bias)(\.|$)")
"""What a task may add to a published body, by the names of transformers."""
NEW_CLASSES = re.compile(r"(^|\.)pooler\.|^(pre_classifier|classification_head|head)\.")
"""Likewise of classes. BERT's pooler is published; a masked language model that was trained on has none."""

MODEL_CLASSES: dict[str, Any] = {
    "masked-lm": AutoModelForMaskedLM,
    "causal-lm": AutoModelForCausalLM,
    "seq2seq": AutoModelForSeq2SeqLM,
    "sequence-classification": AutoModelForSequenceClassification,
    "token-classification": AutoModelForTokenClassification,
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
    spec, findings = resolve_model(config.model)
    if spec is None:
        raise UsageError(findings)
    return str(spec.path) if spec.path is not None and spec.path.is_dir() else spec.hub_id or spec.name


def load_weights(
    name: str, config: RunConfig, what: str, *, whole: bool = False, quantized: bool = False
) -> PreTrainedModel:
    """The model of the task with the weights of `name` (a folder or hub id).

    `whole` refuses weights that do not fill every tensor of the model. `quantized` holds them as engine.base_precision
    says, on the device that trains. Raises UsageError with `what` it is.
    """
    try:
        architecture, source = _architecture(name, config, new_head=config.model.new_head and not whole)
        model, report = MODEL_CLASSES[config.task].from_pretrained(
            name,
            config=architecture,
            **source,
            # A .bin is read by torch's restricted unpickler: tensors and nothing that could run.
            weights_only=True,
            output_loading_info=True,
            **loading_options(config),
            **_as_held(name, architecture, config, quantized=quantized),
        )
    except pickle.UnpicklingError as error:
        message = tr(
            "{what} {name} is not loaded: its .bin weights contain more than tensors, which could run code; convert "
            "them to safetensors.",
            what=what,
            name=name,
        )
        raise usage_error("unsafe_weights", "model.name", message) from error
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        message = tr("{what} {name} cannot be loaded: {reason}.", what=what, name=name, reason=first_line(error))
        raise usage_error("missing_model", "model.name", message) from error
    if quantized:
        norms_in_single(model, config)
    missing = sorted(report["missing_keys"])
    classifies = config.task in CLASSIFIES
    # A language model whose head nobody trained says nothing, and one that adapters leave frozen never will.
    head_is_old = whole or (not classifies and (config.task == "causal-lm" or config.peft.method != "none"))
    # Published weights that fill a part of the model alone would be a pretraining of the rest, unasked for.
    lacking = [key for key in missing if head_is_old or not _is_new_head(key, classifies=classifies)]
    if lacking:
        message = trn(
            "{what} {name} is missing {n} tensor, for example {example}.",
            "{what} {name} is missing {n} tensors, for example {example}.",
            len(missing),
            what=what,
            name=name,
            example=lacking[0],
        )
        raise usage_error("broken_checkpoint" if whole else "weights_of_another_model", "model.name", message)
    if missing:
        print(
            f"{len(missing)} tensors missing in {name} are initialized from scratch, for example {missing[0]}",
            flush=True,
        )
    assert isinstance(model, PreTrainedModel)
    return model


def _is_new_head(key: str, *, classifies: bool) -> bool:
    return bool(NEW_HEAD.search(key) or (classifies and NEW_CLASSES.search(key)))


def _as_held(name: str, architecture: Any, config: RunConfig, *, quantized: bool) -> dict[str, Any]:
    """For `from_pretrained`. In fewer bits it reads one tensor after the other and quantises it on the device of this
    process; of published weights in 4 bits it makes 16, where it can (gpt-oss). Raises UsageError where it cannot."""
    stored = quantized_as(architecture.to_dict())
    if stored is not None and (stored != "mxfp4" or quantized):
        raise usage_error("quantized_weights", "model.name", quantized_message(name, stored))
    if quantized:
        place: str | int = "cpu" if runs_on_cpu(config) else int(os.environ.get("LOCAL_RANK", "0"))
        return {"quantization_config": _bits(config), "device_map": {"": place}}
    return {} if stored is None else {"quantization_config": Mxfp4Config(dequantize=True)}


def _architecture(name: str, config: RunConfig, *, new_head: bool) -> tuple[Any, dict[str, Any]]:
    """The config of the model, and where and under which names its weights are looked for."""
    # Left out, trust_remote_code makes transformers ask a question that nobody can answer here.
    source: dict[str, Any] = {"local_files_only": is_offline(), "trust_remote_code": config.model.trust_remote_code}
    overrides = config.model.architecture_overrides
    architecture = AutoConfig.from_pretrained(name, **source, **overrides)
    if config.row_kind == "proteins":
        check_esm(architecture.model_type, architecture.to_dict())
    text = architecture.get_text_config()
    names = dict[str, str]()
    if text is not architecture and text.model_type in TEXT_CLASSES:
        # Of a model that also sees or hears: its text part alone is planned and trained.
        text.update(overrides)
        architecture, names = text, {r"^(model\.)?language_model\.(model\.)?": "model."}
    if new_head and config.task in CLASSIFIES:
        # Under other names the weights of the old head are passed over.
        names[r"^(classifier|score)\."] = "left_out."
    return architecture, {**source, "key_mapping": names} if names else source


def partial_of(place: Path) -> Path:
    return place.with_name(f"{place.name}{PARTIAL}")


def put_in_place(partial_copy: Path, place: Path) -> None:
    """Complete or not there. What stands there moves aside to `<name>.old-1`, or the next number that nothing has."""
    if place.exists():
        names = (place.with_name(f"{place.name}.old-{number}") for number in count(1))
        place.rename(next(name for name in names if not name.exists()))
    partial_copy.rename(place)
