"""The frozen base of adapters in 4 or 8 bits (QLoRA, Dettmers et al. 2023), by bitsandbytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from trainwiz.core.config import RunConfig
from trainwiz.core.export.training_arguments import runs_on_cpu
from transformers import BitsAndBytesConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D
from transformers.quantizers.base import get_keys_to_not_convert
from transformers.quantizers.quantizers_utils import should_convert_module

MIXED: dict[str | None, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Precisions under autocast."""
COMPUTED: dict[str | None, torch.dtype] = {**MIXED, "bf16-true": torch.bfloat16}


def is_quantized(config: RunConfig) -> bool:
    """Whether the base is held in fewer bits than it computes in."""
    return config.engine.base_precision in ("nf4", "int8") and config.peft.method != "none"


def settings(config: RunConfig) -> BitsAndBytesConfig:
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
    return {"quantization_config": settings(config), "device_map": {"": place}}


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


RANDOM_STD = 0.02
"""Of weights that only take their place and their time."""
Pack = Callable[[torch.Tensor, RunConfig, torch.device], torch.nn.Parameter]
"""The weights of a layer -> the same in fewer bits, on a device."""


def pack(weight: torch.Tensor, config: RunConfig, device: torch.device) -> torch.nn.Parameter:
    """As `from_pretrained` does it."""
    import bitsandbytes

    kinds: Any = bitsandbytes.nn
    if config.engine.base_precision == "int8":
        made = kinds.Int8Params(weight.cpu(), requires_grad=False, has_fp16_weights=False)
    else:
        made = kinds.Params4bit(weight, requires_grad=False, compress_statistics=True, quant_type="nf4")
    return made.to(device)  # type: ignore[no-any-return]


def pack_random(weight: torch.Tensor, config: RunConfig, device: torch.device) -> torch.nn.Parameter:
    """Of a weight without numbers."""
    return pack(torch.empty(weight.shape, dtype=weight.dtype, device=device).normal_(std=RANDOM_STD), config, device)


def fill_randomly(model: Any, device: torch.device) -> None:
    """What `quantize` left without numbers; buffers have theirs. The model is on `device` then."""
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.is_meta:
                made = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
                filled = made.normal_(std=RANDOM_STD) if made.ndim > 1 else made.fill_(name == "weight")
                setattr(module, name, torch.nn.Parameter(filled, parameter.requires_grad))
    model.tie_weights()
    model.to(device)


def quantize(
    model: PreTrainedModel, config: RunConfig, device: torch.device | None = None, packed: Pack = pack
) -> None:
    """A model that is here (for measuring: of random or of fake weights) as `from_pretrained` would have loaded it, its
    layers one by one on `device`."""
    kept = get_keys_to_not_convert(model) + list(model._keep_in_fp32_modules or ())
    for name, module in list(model.named_modules()):
        if (type(module) is torch.nn.Linear or isinstance(module, Conv1D)) and should_convert_module(name, kept):
            weight = (module.weight.T if isinstance(module, Conv1D) else module.weight).data
            layer = _empty_layer(weight, config)
            layer.weight, layer.bias = packed(weight, config, device or weight.device), module.bias
            model.set_submodule(name, layer.requires_grad_(False))
    # By this peft knows its layers.
    setattr(model, f"is_loaded_in_{8 if config.engine.base_precision == 'int8' else 4}bit", True)
    norms_in_single(model, config)


def _empty_layer(weight: torch.Tensor, config: RunConfig) -> Any:
    """bitsandbytes' layer for weights of this shape, which are put into it."""
    import bitsandbytes

    layers: Any = bitsandbytes.nn
    (outputs, inputs), said = weight.shape, settings(config)
    # Its parameters cannot be made of fake tensors.
    with unset_fake_temporarily():
        if config.engine.base_precision == "int8":
            return layers.Linear8bitLt(
                inputs, outputs, False, has_fp16_weights=False, threshold=said.llm_int8_threshold, device="meta"
            )
        return layers.Linear4bit(inputs, outputs, False, said.bnb_4bit_compute_dtype, True, "nf4", device="meta")
