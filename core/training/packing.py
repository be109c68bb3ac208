"""Rows end to end: a micro-batch without padding, whose rows see nothing of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from trainwiz.core.training.batches import FILLER_TOKENS
from trainwiz.core.training.packed_attention import ROW_ENDS, ROW_LENGTHS, attend_in_rows
from trainwiz.core.training.packed_esm import scale_in_rows
from trainwiz.core.training.parts import TaskParts
from trainwiz.core.training.sampling import FillerRow


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
    longest = max(batch[ROW_LENGTHS])
    return {**batch, "cu_seq_lens_k": batch[ROW_ENDS], "max_length_q": longest, "max_length_k": longest}


def with_packing(parts: TaskParts) -> TaskParts:
    """`parts` whose training batches are packed. Its model is changed in place, for packed batches alone."""
    attend_in_rows(parts.model)
    scale_in_rows(parts.model)
    return replace(parts, train_collate=PackedBatch())
