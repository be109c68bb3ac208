"""What a model is called with beside a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from trainwiz.core.training.masking import IGNORED

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
    return {**batch, "decoder_input_ids": decoder_inputs(batch["labels"], model), "use_cache": False}


def decoder_inputs(labels: torch.Tensor, model: Any) -> torch.Tensor:
    """(rows, longest) int64 from labels of that shape."""
    own = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if own is not None:
        shifted: torch.Tensor = own(labels=labels)
        return shifted
    # M2M100 and NLLB have no such method (transformers 5.23) and shift in `forward`, where labels are not given here.
    shifted = labels.roll(1, dims=1)
    shifted[:, 0] = model.config.decoder_start_token_id
    return shifted.masked_fill_(shifted == IGNORED, model.config.pad_token_id)
