"""What is changed in torch and transformers while a step is traced, and put back afterwards."""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import transformers.integrations.flash_attention as flash
import transformers.modeling_utils as modeling_utils
import transformers.utils.import_utils as import_utils
from torch.nn import functional
from trainwiz.core.estimate.trace.ledger import Ledger
from transformers import PreTrainedModel

# Fused attention: what CUDA's flash and memory-efficient kernels take, keep and use while they run.
#
# They keep q, k, v, the output and one logarithm for each row, never the scores (Dao et al. 2022).
# Sizes of the working memory: torch's flash_api.cpp and mem_eff_attention/kernel_backward.h.

LARGEST_HEAD = 256
"""Wider heads fall back to plain products (sdp_utils.cpp)."""
HALVES = (torch.float16, torch.bfloat16)
ROUNDED_ROWS = 128
ALIGNMENT = 8
"""Elements that rows of a bias are aligned to."""


class FusedAttention(torch.autograd.Function):
    """(q, k, v, bias) -> output, without numbers: q (batch, heads, length, width), bias broadcast to the scores or None."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, bias: Any, ledger: Ledger) -> Any:
        batch, heads, length, _ = q.shape
        out = q.new_empty(batch, length, heads, v.shape[-1]).transpose(1, 2)
        logarithms = q.new_empty(batch, heads, length, dtype=torch.float32)
        ctx.save_for_backward(q, k, v, bias, out, logarithms)
        ctx.ledger = ledger
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        q, k, v, bias, *_ = ctx.saved_tensors
        grad_q, grad_k, grad_v = (_like(tensor) for tensor in (q, k, v))
        grad_bias = None
        if bias is not None and ctx.needs_input_grad[3]:
            whole = q.new_empty(*q.shape[:3], k.shape[2])
            grad_bias = whole.sum_to_size(bias.shape) if bias.shape != whole.shape else whole
        ctx.ledger.transient(_working(q, k))
        return grad_q, grad_k, grad_v, grad_bias, None


def scaled_dot_product(ledger: Ledger) -> Any:
    """A replacement of torch.nn.functional.scaled_dot_product_attention that does as CUDA would."""

    def attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        query, key, value, attn_mask = _autocast(query, key, value, attn_mask)
        grouped = enable_gqa and key.shape[1] != query.shape[1]
        half = query.dtype in HALVES
        bias = None if attn_mask is None else _bias(attn_mask, query)
        wide = max(query.shape[-1], value.shape[-1]) > LARGEST_HEAD
        # The memory-efficient kernel knows no groups; the flash kernel no bias and no fp32.
        if query.dim() != 4 or wide or (grouped and (bias is not None or not half)):
            return plain_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        return FusedAttention.apply(query, key, value, bias, ledger)  # type: ignore[no-untyped-call]

    return attention


def plain_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Products and a softmax, as Apple's GPUs compute what needs gradients (torch's attention.cpp)."""
    given = _autocast(query, key, value, attn_mask)
    products = torch.ops.aten._scaled_dot_product_attention_math
    return products(*given, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa)[0]


def flash_attention(ledger: Ledger) -> Any:
    """A replacement of transformers' _flash_attention_forward: tensors are (batch, length, heads, width)."""

    def attention(
        query: Any, key: Any, value: Any, attention_mask: Any, query_length: int, is_causal: bool,
        target_dtype: torch.dtype | None = None, **_: Any,
    ) -> Any:  # fmt: skip
        if target_dtype is not None and query.dtype == torch.float32:
            query, key, value = (tensor.to(target_dtype) for tensor in (query, key, value))
        if attention_mask is not None:
            # Padding is taken out before the kernel and put back after it (flash_attn.bert_padding).
            query, key, value = (tensor.clone(memory_format=torch.contiguous_format) for tensor in (query, key, value))
        q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
        out = FusedAttention.apply(q, k, v, None, ledger).transpose(1, 2)  # type: ignore[no-untyped-call]
        return out.clone() if attention_mask is not None else out

    return attention


def _autocast(query: Any, key: Any, value: Any, mask: Any) -> tuple[Any, Any, Any, Any]:
    """The kernel is on CUDA's list of operations in lower precision."""
    if not torch.is_autocast_enabled("cpu"):
        return query, key, value, mask
    half = torch.get_autocast_dtype("cpu")
    mask = mask.to(half) if mask is not None and mask.is_floating_point() else mask
    return query.to(half), key.to(half), value.to(half), mask


def _bias(mask: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """A mask of booleans becomes numbers, and rows are padded until they are aligned, each time anew."""
    if mask.dtype == torch.bool:
        mask = torch.empty(mask.shape, dtype=query.dtype, device=mask.device)
    if mask.shape[-1] % ALIGNMENT:
        room = -(-mask.shape[-1] // ALIGNMENT) * ALIGNMENT
        mask = torch.nn.functional.pad(mask, (0, room - mask.shape[-1]))[..., : mask.shape[-1]]
    return mask


def _like(tensor: torch.Tensor) -> torch.Tensor:
    batch, heads, length, width = tensor.shape
    return tensor.new_empty(batch, length, heads, width).transpose(1, 2)


def _working(q: torch.Tensor, k: torch.Tensor) -> list[int]:
    """fp32 sums of the gradient of q where it is in half precision, and each row's product with the output."""
    batch, heads, length, width = q.shape
    rows = batch * heads * -(-length // ROUNDED_ROWS) * ROUNDED_ROWS
    if q.dtype not in HALVES:
        return [4 * rows]
    rounding = 32 if width <= 128 else 64
    working = [4 * rows, 4 * rows * -(-width // rounding) * rounding]
    if k.shape[1] != heads:
        working += 2 * [batch * heads * k.shape[2] * width * q.element_size()]
    return working


# CUDA's autocast, on the CPU's dispatch key.
#
# The CPU's own lists keep softmax, layer norm and others in half precision; CUDA's compute them in
# fp32 (aten/src/ATen/autocast_mode.h: AT_FORALL_FP32, AT_FORALL_FP32_SET_OPT_DTYPE).

IN_SINGLE = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
    pow.Scalar softplus layer_norm native_layer_norm group_norm norm.Scalar norm.ScalarOpt_dim norm.names_ScalarOpt_dim
    frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss
    nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss
    multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits
    dist pdist cdist renorm logsumexp upsample_nearest1d upsample_nearest2d
"""
SUMMED_IN_SINGLE = """
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm sum sum.dim_IntList
"""
"""These take `dtype` and then read half precision themselves, without a copy."""

KEY = "AutocastCPU"


@contextmanager
def cuda_autocast_lists() -> Iterator[None]:
    """While it lasts, torch.autocast("cpu") treats each operation as it would on CUDA."""
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        for names, wrap in ((IN_SINGLE, _in_single), (SUMMED_IN_SINGLE, _summed_in_single)):
            for name in names.split():
                operation = _operation(name)
                if operation is not None:
                    library.impl(name, wrap(operation), KEY, allow_override=True)  # type: ignore[no-untyped-call]
        yield
    finally:
        library._destroy()  # type: ignore[no-untyped-call]


def _operation(name: str) -> Any:
    """None for one that this version of torch lacks."""
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    return getattr(packet, overload or "default", None) if packet is not None else None


CASTING_KERNELS = {
    torch.ops.aten.softmax.int: torch.ops.aten._softmax,
    torch.ops.aten.log_softmax.int: torch.ops.aten._log_softmax,
}
"""On CUDA they make fp32 of fp16 by themselves."""


def _without_autocast() -> Any:
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU))


def _single(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() and value.dtype != torch.float64 else value
    if isinstance(value, list | tuple) and value and isinstance(value[0], torch.Tensor):
        return [_single(item) for item in value]
    return value


def _in_single(operation: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            return operation(*map(_single, args), **{name: _single(value) for name, value in kwargs.items()})

    return run


def _summed_in_single(operation: Any) -> Callable[..., Any]:
    place = [argument.name for argument in operation._schema.arguments].index("dtype")

    def run(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            if not isinstance(args[0], torch.Tensor) or args[0].dtype not in HALVES:
                return operation(*args, **kwargs)
            # Nothing comes after it.
            said = args[place] if len(args) > place else kwargs.get("dtype")
            args, kwargs = args[:place], {**kwargs, "dtype": said or torch.float32}
            kernel = CASTING_KERNELS.get(operation)
            if kernel is not None and args[0].dtype == torch.float16 and kwargs["dtype"] == torch.float32:
                return kernel(args[0], args[1] if len(args) > 1 else kwargs["dim"], True)
            return operation(*args, **kwargs)

    return run


@contextmanager
def emulated(device: str, ledger: Ledger) -> Iterator[None]:
    """Operations on CPU tensors do as they would on `device` ("cuda", "mps" or "cpu")."""
    swaps = [
        (torch.nn.Module, "_apply", _apply_to_fakes),
        # Models build masks for fake tensors that they leave out for real ones.
        (import_utils, "is_fake_tensor", lambda tensor: False),
        (flash, "_flash_attention_forward", flash_attention(ledger)),
        (modeling_utils, "lazy_import_flash_attention", lambda *args, **kwargs: None),
        (PreTrainedModel, "_flash_attn_can_dispatch", _has_flash_attention),
    ]
    dora: Any = sys.modules.get("peft.tuners.lora.dora")
    if dora is not None:
        swaps.append((dora, "dequantize_module_weight", _whole_weight))
    if device == "mps":
        swaps.append((functional, "scaled_dot_product_attention", plain_attention))
    if device == "cuda":
        swaps += [
            (functional, "dropout", _dropout),
            (functional, "softmax", _softmax),
            (functional, "rms_norm", _rms_norm),
            (functional, "scaled_dot_product_attention", scaled_dot_product(ledger)),
            (torch, "dropout", _dropout),
        ]
        # Loaded by peft, where it is installed: on a CPU it multiplies 8 bits as 16.
        eight_bits: Any = sys.modules.get("bitsandbytes.autograd._functions")
        if eight_bits is not None:
            swaps.append((eight_bits, "MatMul8bitFp", eight_bits.MatMul8bitLt))
    with ExitStack() as changes:
        changes.enter_context(_quiet())
        if device != "cpu":
            # Those of Apple's GPUs are close to CUDA's.
            changes.enter_context(cuda_autocast_lists())
        for place, name, value in swaps:
            changes.enter_context(replaced(place, name, value))
        yield


def _whole_weight(layer: Any) -> Any:
    """peft knows packed weights by their class, which cannot hold fake tensors."""
    from bitsandbytes.functional import dequantize_4bit

    weight, state = layer.weight, getattr(layer.weight, "quant_state", None)
    if state is not None:
        return dequantize_4bit(weight, state)
    return weight.float() if weight.dtype == torch.int8 else weight


QUIET = ("torch._subclasses.fake_tensor", "transformers", "bitsandbytes.autograd._functions")


@contextmanager
def _quiet() -> Iterator[None]:
    """Warnings are about the emulation. Nothing waits for the garbage collector: what it frees and when hangs on how many
    objects were made, here many more than in a real step. The graph of a step has no cycles."""
    collects = gc.isenabled()
    loggers = [logging.getLogger(name) for name in QUIET]
    levels = [logger.level for logger in loggers]
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for logger in loggers:
                logger.setLevel(logging.CRITICAL)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if collects:
            gc.enable()


@contextmanager
def replaced(place: Any, name: str, value: Any) -> Iterator[None]:
    before = place.__dict__[name]
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, before)


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """CUDA keeps a mask of one byte an element, the CPU one of the input's type."""
    return torch.native_dropout(input, p, True)[0] if training and p > 0 else input


def _softmax(
    input: torch.Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """CUDA's kernel makes fp32 of fp16 by itself (aten/src/ATen/native/SoftMax.cpp); the CPU copies first."""
    if dim is not None and input.dtype == torch.float16 and dtype == torch.float32:
        return torch.ops.aten._softmax(input, dim, True)  # type: ignore[no-any-return]
    return torch.softmax(input, -1 if dim is None else dim, dtype=dtype)


def _rms_norm(
    input: torch.Tensor, normalized_shape: Any, weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """One kernel on CUDA from torch 2.9 on, a chain of operations on the CPU."""
    fused = getattr(torch.ops.aten, "_fused_rms_norm", None)
    if fused is None:
        return torch.rms_norm(input, normalized_shape, weight, eps)
    return fused(input, normalized_shape, weight, eps)[0]  # type: ignore[no-any-return]


def _has_flash_attention(model: Any, flash_attn_version: int = 2, is_init_check: bool = False) -> bool:
    """The package need not be installed here; the model must be able to use it."""
    if not model._supports_flash_attn:
        raise ValueError(f"{type(model).__name__} does not support FlashAttention-2")
    return True


def _apply_to_fakes(module: torch.nn.Module, fn: Callable[..., Any], recurse: bool = True) -> torch.nn.Module:
    """Module.to() without numbers: torch's own way of exchanging a parameter's data refuses fake tensors."""
    for child in module.children():
        _apply_to_fakes(child, fn)
    for name, parameter in module._parameters.items():
        if parameter is None:
            continue
        with torch.no_grad():
            changed = fn(parameter)
        if changed is not parameter and changed.dtype != parameter.dtype:
            module._parameters[name] = torch.nn.Parameter(changed, parameter.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = fn(buffer)
    return module
