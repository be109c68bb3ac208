"""Rows end to end in one sequence, each seeing itself alone: transformers keeps them apart by their positions.

A model whose mask is causal makes one from `position_ids` that begin anew (masking_utils.find_packed_sequence_indices,
transformers 5), and its FlashAttention takes where rows end. Both want no mask and no cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from trainwiz.core.training.batches import FILLER_TOKENS, FillerRow

ROW_ENDS, ROW_LENGTHS = "cu_seq_lens_q", "row_lengths"
"""Of a packed batch: (rows + 1,) int32, 0 and where each row ends, as transformers names it for FlashAttention; and the
length of each row, which a device need not be asked for."""


class PackedBatch:
    """Lays inputs and labels end to end. Rows that only fill up are left out where there is another."""

    def __call__(self, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
        """input_ids, labels and position_ids (1, tokens) int64, positions counted from each row's beginning;
        ROW_LENGTHS, a list; ROW_ENDS (rows + 1,) int32. No mask: there is nothing to hide.
        """
        kept = [row for row in rows if not isinstance(row, FillerRow)]
        fills_up = not kept
        inputs, labels = zip(*(kept or rows[:1]), strict=True)
        lengths = [len(tokens) for tokens in inputs]
        batch: dict[str, Any] = {
            "input_ids": torch.from_numpy(np.concatenate(inputs))[None],
            "labels": torch.from_numpy(np.concatenate(labels))[None],
            "position_ids": torch.from_numpy(np.concatenate([np.arange(length) for length in lengths]))[None],
            ROW_LENGTHS: lengths,
            ROW_ENDS: torch.from_numpy(np.cumsum([0, *lengths], dtype=np.int32)),
        }
        return {**batch, FILLER_TOKENS: torch.tensor(lengths[0])} if fills_up else batch


def first_rows(batch: dict[str, Any], count: int) -> dict[str, Any]:
    """A packed batch of the first `count` rows of `batch`."""
    lengths = batch[ROW_LENGTHS][:count]
    tokens = sum(lengths)
    cut = {name: batch[name][:, :tokens] for name in ("input_ids", "labels", "position_ids")}
    return {**batch, **cut, ROW_LENGTHS: lengths, ROW_ENDS: batch[ROW_ENDS][: count + 1]}


def for_attention(batch: dict[str, Any]) -> dict[str, Any]:
    """`batch` with all that attention asks for rows end to end; a padded batch as it is."""
    if ROW_LENGTHS not in batch:
        return batch
    inputs = {name: value for name, value in batch.items() if name != ROW_LENGTHS}
    longest = max(batch[ROW_LENGTHS])
    return {**inputs, "cu_seq_lens_k": batch[ROW_ENDS], "max_length_q": longest, "max_length_k": longest}
