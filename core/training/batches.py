"""PaddedBatch: rows of different lengths as one batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from trainwiz.core.training.masking import IGNORED
from trainwiz.core.training.sampling import FillerRow

FILLER_TOKENS = "filler_tokens"
"""Key of a batch -> tokens in its rows that only fill up."""


class PaddedBatch:
    """Pads inputs and labels at the right, each to its own longest row."""

    def __init__(self, padding: int) -> None:
        """`padding`: the token number that fills inputs up; the attention mask hides it."""
        self._padding = padding

    def __call__(self, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, torch.Tensor]:
        """input_ids and attention_mask (rows, longest input), labels (rows, longest labels), int64.

        And `FILLER_TOKENS`, which no model takes, where there are rows that only fill up.
        """
        inputs = [tokens for tokens, _ in rows]
        batch = {
            "input_ids": torch.from_numpy(padded(inputs, self._padding)),
            "attention_mask": torch.from_numpy(padded([np.ones_like(tokens) for tokens in inputs], 0)),
            "labels": torch.from_numpy(padded([labels for _, labels in rows], IGNORED)),
        }
        fillers = [len(row[0]) for row in rows if isinstance(row, FillerRow)]
        return {**batch, FILLER_TOKENS: torch.tensor(sum(fillers))} if fillers else batch


def padded(rows: Sequence[np.ndarray], value: int) -> np.ndarray:
    """(rows, longest) int64, filled with `value`."""
    table = np.full((len(rows), max(map(len, rows))), value, dtype=np.int64)
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return table
