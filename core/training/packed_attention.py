"""Attention that keeps packed rows apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from trainwiz.core.language import tr
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.models.esm.modeling_esm import EsmEmbeddings

# Attention of rows that lie end to end: each token sees its own row alone, and nothing of the square between rows.

PACKED = "trainwiz_packed"
"""Name of this attention among those of transformers."""
ROW_ENDS, ROW_LENGTHS = "cu_seq_lens_q", "row_lengths"
"""Keywords that a model passes on to its attention: (rows + 1,) int32, 0 and where each row ends, as transformers names it
for FlashAttention; and the length of each row, which a device need not be asked for."""
NOT_HONOURED = ("position_bias", "softcap", "s_aux")
"""What some models ask of their attention beside it, and a row by itself would not get."""
MOST_HEAD_WIDTH = 256
"""Of FlashAttention's kernels, whose widths are multiples of HEAD_WIDTH_STEP."""
HEAD_WIDTH_STEP = 8


def attend_in_rows(model: PreTrainedModel) -> None:
    """Let the SDPA attention of `model` (bare, or in peft's wrapper) take rows end to end, in place.

    A padded batch goes through SDPA as before, so that evaluation and generation are untouched. A
    model with FlashAttention-2 is left as it is: it takes the same keywords.
    """
    AttentionInterface.register(PACKED, _attention)
    AttentionMaskInterface.register(PACKED, _mask)
    outer: Any = model
    bare: Any = outer.get_base_model() if hasattr(outer, "get_base_model") else outer
    if bare.config._attn_implementation == "sdpa":
        bare.set_attn_implementation(PACKED)


def attention_of(config: Any) -> str | None:
    """The attention of a model's `config` as run.yaml names it: rows end to end are SDPA's."""
    name: str | None = getattr(config, "_attn_implementation", None)
    return "sdpa" if name == PACKED else name


def has_variable_lengths(device: torch.device, dtype: torch.dtype, head_width: int) -> bool:
    """Whether torch's own FlashAttention takes rows of different lengths here (torch 2.13; half precision, sm 8.0)."""
    return (
        device.type == "cuda"
        and torch.__version__ >= "2.13"
        and dtype in (torch.float16, torch.bfloat16)
        and head_width <= MOST_HEAD_WIDTH
        and head_width % HEAD_WIDTH_STEP == 0
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and torch.version.hip is None
    )


def _mask(*, attention_mask: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor | None:
    """None for rows end to end, which come without a mask: they need no square of all tokens."""
    return None if attention_mask is None else sdpa_mask(attention_mask=attention_mask, **kwargs)


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """(1, tokens, heads, width) of `query` (1, heads, tokens, width), where the keywords name rows.

    Raises ValueError for what such rows would lose: a window shorter than a row, a bias, a mask.
    """
    lengths: Sequence[int] | None = kwargs.pop(ROW_LENGTHS, None)
    if lengths is None:
        return sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout,
            scaling,
            is_causal,
            sliding_window=sliding_window,
            **kwargs,
        )
    lost = [name for name in NOT_HONOURED if kwargs.get(name) is not None]
    if attention_mask is not None:
        lost.append("attention_mask")
    if sliding_window is not None and max(lengths) > sliding_window:
        lost.append(f"sliding_window={sliding_window}")
    if lost:
        raise ValueError(tr("{layer} asks for {what}", layer=type(module).__name__, what=", ".join(lost)))
    causal = is_causal if is_causal is not None else bool(getattr(module, "is_causal", True))
    query, key, value = (_in_autocast(part) for part in (query, key, value))
    alike = query.dtype == key.dtype == value.dtype and query.shape[-1] == value.shape[-1]
    if alike and dropout == 0 and has_variable_lengths(query.device, query.dtype, query.shape[-1]):
        return _variable(query, key, value, kwargs[ROW_ENDS], max(lengths), scaling, causal=causal), None
    groups = query.shape[1] // key.shape[1]
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    queries, keys, values = (torch.split(part, list(lengths), dim=2) for part in (query, key, value))
    outputs = [
        scaled_dot_product_attention(*row, dropout_p=dropout, scale=scaling, is_causal=causal)
        for row in zip(queries, keys, values, strict=True)
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


def _in_autocast(part: torch.Tensor) -> torch.Tensor:
    """As torch itself casts for SDPA, which no kernel of rows does: rotary positions give fp32 beside half precision."""
    device = part.device.type
    return part.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else part


def _variable(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    ends: torch.Tensor,
    longest: int,
    scaling: float | None,
    *,
    causal: bool,
) -> torch.Tensor:
    """All rows in one kernel."""
    from torch.nn.attention.varlen import varlen_attn

    heads_last = [part[0].transpose(0, 1) for part in (query, key, value)]
    output = varlen_attn(
        heads_last[0],
        heads_last[1],
        heads_last[2],
        ends,
        ends,
        longest,
        longest,
        scale=scaling,
        window_size=(-1, 0) if causal else (-1, -1),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    assert isinstance(output, torch.Tensor)
    return output[None]


# ESM's token dropout for rows end to end: each row is scaled by the share of its own tokens that are hidden.

HIDDEN_IN_TRAINING = 0.15 * 0.8
"""Share of hidden tokens that ESM-2 was trained with, as EsmEmbeddings.forward has it (transformers 5.23)."""


def scale_in_rows(model: nn.Module) -> None:
    """Let the embeddings of an ESM `model` take rows end to end, in place; other models have none to change."""
    for module in model.modules():
        if isinstance(module, EsmEmbeddings) and module.token_dropout:
            module.register_forward_pre_hook(_scaled, with_kwargs=True)


def _scaled(module: EsmEmbeddings, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """The embeddings of a packed batch, in place of its tokens: the module itself would take it for one row."""
    tokens, positions = kwargs.get("input_ids"), kwargs.get("position_ids")
    if tokens is None or positions is None or kwargs.get("attention_mask") is not None:
        return None
    hidden = tokens == module.mask_token_id
    embeddings = module.word_embeddings(tokens).masked_fill(hidden.unsqueeze(-1), 0.0)
    observed = hidden_shares(hidden, positions)
    scaled = (embeddings * (1 - HIDDEN_IN_TRAINING) / (1 - observed).unsqueeze(-1)).to(embeddings.dtype)
    return args, {**kwargs, "input_ids": None, "inputs_embeds": scaled}


def hidden_shares(hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """(1, tokens) float32: of each token's row the share that is `hidden` (1, tokens) bool; a row begins at position 0."""
    row = (positions[0] == 0).cumsum(0) - 1
    # As many places as there are tokens: how many rows there are would have to be asked of the device.
    counts, tokens = torch.zeros(2, len(row), dtype=torch.float32, device=row.device).unbind()
    counts = counts.scatter_add(0, row, hidden[0].float())
    tokens = tokens.scatter_add(0, row, torch.ones_like(tokens))
    return (counts[row] / tokens[row])[None]
