"""Fused attention: what CUDA's flash and memory-efficient kernels take, keep and use while they run.

They keep q, k, v, the output and one logarithm for each row, never the scores (Dao et al. 2022).
Sizes of the working memory: torch's flash_api.cpp and mem_eff_attention/kernel_backward.h.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

LARGEST_HEAD = 256
"""Wider heads fall back to plain products (sdp_utils.cpp)."""
HALVES = (torch.float16, torch.bfloat16)
ROUNDED_ROWS = 128
FORWARD_PRODUCTS = 2
BACKWARD_PRODUCTS = 5
ALIGNMENT = 8
"""Elements that rows of a bias are aligned to."""


class Recorder(Protocol):
    """Is told of a kernel that torch runs without our seeing it."""

    def kernel(self, flops: float, moved_bytes: float, working: list[int]) -> None: ...


class FusedAttention(torch.autograd.Function):
    """(q, k, v, bias) -> output, without numbers: q (batch, heads, length, width), bias broadcast to the scores or None."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, bias: Any, causal: bool, recorder: Recorder) -> Any:
        batch, heads, length, _ = q.shape
        out = q.new_empty(batch, length, heads, v.shape[-1]).transpose(1, 2)
        logarithms = q.new_empty(batch, heads, length, dtype=torch.float32)
        ctx.save_for_backward(q, k, v, bias, out, logarithms)
        ctx.causal, ctx.recorder = causal, recorder
        recorder.kernel(_flops(q, k, v, FORWARD_PRODUCTS, causal), _moved(q, k, v, out), [])
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        q, k, v, bias, out, _ = ctx.saved_tensors
        grad_q, grad_k, grad_v = (_like(tensor) for tensor in (q, k, v))
        grad_bias = None
        if bias is not None and ctx.needs_input_grad[3]:
            whole = q.new_empty(*q.shape[:3], k.shape[2])
            grad_bias = whole.sum_to_size(bias.shape) if bias.shape != whole.shape else whole
        moved = 2 * _moved(q, k, v, out) + _moved(gradients[0])
        ctx.recorder.kernel(_flops(q, k, v, BACKWARD_PRODUCTS, ctx.causal), moved, _working(q, k))
        return grad_q, grad_k, grad_v, grad_bias, None, None


def scaled_dot_product(recorder: Recorder) -> Any:
    """A replacement of torch.nn.functional.scaled_dot_product_attention that does as CUDA would."""

    def attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        query, key, value, attn_mask = _autocast(query, key, value, attn_mask)
        grouped = enable_gqa and key.shape[1] != query.shape[1]
        half = query.dtype in HALVES
        bias = None if attn_mask is None else _bias(attn_mask, query)
        wide = max(query.shape[-1], value.shape[-1]) > LARGEST_HEAD
        # The memory-efficient kernel knows no groups; the flash kernel no bias and no fp32.
        if query.dim() != 4 or wide or (grouped and (bias is not None or not half)):
            return plain_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        return FusedAttention.apply(query, key, value, bias, is_causal, recorder)  # type: ignore[no-any-return, no-untyped-call]

    return attention


def plain_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Products and a softmax, as Apple's GPUs compute what needs gradients (torch's attention.cpp)."""
    query, key, value, attn_mask = _autocast(query, key, value, attn_mask)
    return torch.ops.aten._scaled_dot_product_attention_math(  # type: ignore[no-any-return]
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]


def flash_attention(recorder: Recorder) -> Any:
    """A replacement of transformers' _flash_attention_forward: tensors are (batch, length, heads, width)."""

    def attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        query_length: int,
        is_causal: bool,
        target_dtype: torch.dtype | None = None,
        **_: Any,
    ) -> torch.Tensor:
        if target_dtype is not None and query.dtype == torch.float32:
            query, key, value = (tensor.to(target_dtype) for tensor in (query, key, value))
        if attention_mask is not None:
            # Padding is taken out before the kernel and put back after it (flash_attn.bert_padding).
            query, key, value = (tensor.clone(memory_format=torch.contiguous_format) for tensor in (query, key, value))
        q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
        out = FusedAttention.apply(q, k, v, None, is_causal, recorder).transpose(1, 2)  # type: ignore[no-untyped-call]
        return out.clone() if attention_mask is not None else out  # type: ignore[no-any-return]

    return attention


def _autocast(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The kernel is on CUDA's list of operations in lower precision."""
    if not torch.is_autocast_enabled("cpu"):
        return query, key, value, mask
    half = torch.get_autocast_dtype("cpu")
    if mask is not None and mask.is_floating_point():
        mask = mask.to(half)
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


def _flops(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, products: int, causal: bool) -> float:
    batch, heads, length, width = q.shape
    return products * batch * heads * length * k.shape[2] * (width + v.shape[-1]) * (0.5 if causal else 1.0)


def _moved(*tensors: torch.Tensor) -> float:
    return float(sum(tensor.numel() * tensor.element_size() for tensor in tensors))
