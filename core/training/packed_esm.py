"""ESM's token dropout for rows end to end: each row is scaled by the share of its own tokens that are hidden."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.models.esm.modeling_esm import EsmEmbeddings

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
