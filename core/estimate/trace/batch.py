"""A batch of the request's lengths, as the collators make it."""

from __future__ import annotations

from typing import Any

import torch
from trainwiz.core.tracing.request import TraceRequest


def batch_of(request: TraceRequest, rows: int) -> dict[str, torch.Tensor]:
    """input_ids, attention_mask (rows, length), labels of the rows' targets, int64; one row is padded where there are several."""
    shape = (rows, request.length)
    mask = torch.ones(shape, dtype=torch.int64)
    if request.task == "sequence-classification":
        labels = torch.zeros(rows, dtype=torch.int64)
    else:
        labels = torch.ones(rows, request.target_length or request.length, dtype=torch.int64)
    return {"input_ids": torch.ones(shape, dtype=torch.int64), "attention_mask": mask, "labels": labels}


def complete(request: TraceRequest, batch: dict[str, torch.Tensor], model: Any) -> dict[str, Any]:
    """What the model is called with, as core/training/model_inputs.py makes it for the task."""
    from trainwiz.core.training.model_inputs import batch_alone, decoder_only, encoder_decoder

    makers = {"causal-lm": decoder_only, "seq2seq": encoder_decoder}
    return makers.get(request.task, batch_alone)(batch, model)
