"""A batch of the request's lengths, as the collators make it, and what the model is called with."""

from __future__ import annotations

from typing import Any

import torch
from trainwiz.core.tracing.request import TraceRequest
from trainwiz.core.training.model_inputs import ModelInputs, batch_alone, decoder_only, encoder_decoder

INPUTS: dict[str, ModelInputs] = {"causal-lm": decoder_only, "seq2seq": encoder_decoder}


def model_inputs(request: TraceRequest, rows: int, model: Any) -> dict[str, Any]:
    """Keyword arguments of the model with labels, int64.

    Several rows are as a rule of different lengths, so the last one is padded: models then make a
    mask, which they leave out where nothing is. A single row never is.
    """
    batch = {"input_ids": _whole(rows, request.length), "attention_mask": padded_mask(rows, request.length)}
    if request.task == "sequence-classification":
        batch["labels"] = torch.zeros(rows, dtype=torch.int64)
    else:
        batch["labels"] = _whole(rows, request.target_length or request.length)
    return INPUTS.get(request.task, batch_alone)(batch, model)


def padded_mask(rows: int, length: int, *, left: bool = False) -> torch.Tensor:
    """(rows, length) int64."""
    mask = _whole(rows, length)
    if rows > 1 and length > 1:
        mask[-1, 0 if left else -1] = 0
    return mask


def every_position(labels: torch.Tensor) -> torch.Tensor:
    """(n,) int64: all are taken to be labelled, for no batch has more."""
    return torch.arange(labels.numel(), device=labels.device)


def _whole(rows: int, length: int) -> torch.Tensor:
    return torch.ones((rows, length), dtype=torch.int64)
