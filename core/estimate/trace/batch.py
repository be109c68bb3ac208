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
    mask, which they leave out where nothing is. A single row never is, nor are joined texts.
    """
    token = plain_token(model.config)
    batch = {"input_ids": _whole(rows, request.length, token), "attention_mask": mask_of(request, rows, request.length)}
    if request.task == "sequence-classification":
        batch["labels"] = torch.zeros(rows, dtype=torch.int64)
        end = model.config.get_text_config().eos_token_id
        if model.config.is_encoder_decoder and isinstance(end, int):
            # Where a text ends is what is classified.
            batch["input_ids"][:, -1] = end
    else:
        batch["labels"] = _whole(rows, request.target_length or request.length, token)
    return INPUTS.get(request.task, batch_alone)(batch, model)


def plain_token(config: Any) -> int:
    """The lowest token that has no meaning of its own, such as padding."""
    values = [value for key, value in config.get_text_config().to_dict().items() if key.endswith("_token_id")]
    special = {token for value in values for token in (value if isinstance(value, list) else [value])}
    return next(token for token in range(len(special) + 1) if token not in special)


def mask_of(request: TraceRequest, rows: int, length: int, *, left: bool = False) -> torch.Tensor:
    """(rows, length) int64, with one position of padding where rows are padded."""
    mask = _whole(rows, length, 1)
    if request.padded and rows > 1 and length > 1:
        mask[-1, 0 if left else -1] = 0
    return mask


def every_position(labels: torch.Tensor) -> torch.Tensor:
    """(n,) int64: all are taken to be labelled, for no batch has more."""
    return torch.arange(labels.numel(), device=labels.device)


def _whole(rows: int, length: int, value: int) -> torch.Tensor:
    return torch.full((rows, length), value, dtype=torch.int64)
