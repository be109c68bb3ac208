"""PaddedBatch: rows of different lengths as one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.data.padded_length import padded_length
from trainwiz.core.training.masking import IGNORED
from trainwiz.core.training.sampling import FillerRow

FILLER_TOKENS = "filler_tokens"
"""Key of a batch -> tokens in its rows that only fill up."""


class PaddedBatch:
    """Pads inputs and labels at the right, each to its own longest row, rounded up to a multiple."""

    def __init__(
        self, padding: int, multiple: int = 1, limit: int | None = None, target_limit: int | None = None
    ) -> None:
        """`padding`: the token number that fills inputs up; the attention mask hides it. `limit`, `target_limit`:
        tokens of an input and of its labels that no rounding goes beyond; None where rows are not cut."""
        self._padding = padding
        self._multiple = multiple
        self._limit = limit
        self._target_limit = target_limit

    @classmethod
    def of(cls, config: RunConfig, padding: int) -> PaddedBatch:
        """As the run wants it."""
        limit = config.batch.sequence_length
        target_limit = (config.batch.target_length or limit) if config.task == "seq2seq" else limit
        return cls(padding, config.data.pad_to_multiple_of or 1, limit, target_limit)

    def __call__(self, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, torch.Tensor]:
        """input_ids and attention_mask (rows, input length), labels (rows, label length), int64.

        And `FILLER_TOKENS`, which no model takes, where there are rows that only fill up.
        """
        inputs, labels = [tokens for tokens, _ in rows], [labels for _, labels in rows]
        length = self._length(inputs, self._limit)
        batch = {
            "input_ids": torch.from_numpy(padded(inputs, self._padding, length)),
            "attention_mask": torch.from_numpy(padded([np.ones_like(tokens) for tokens in inputs], 0, length)),
            "labels": torch.from_numpy(padded(labels, IGNORED, self._length(labels, self._target_limit))),
        }
        fillers = [len(row[0]) for row in rows if isinstance(row, FillerRow)]
        return {**batch, FILLER_TOKENS: torch.tensor(sum(fillers))} if fillers else batch

    def _length(self, rows: Sequence[np.ndarray], limit: int | None) -> int:
        return padded_length(max(map(len, rows)), self._multiple, limit)


def out_of_shared_memory(batch: Mapping[str, Any]) -> dict[str, Any]:
    """`batch` with what a loader worker made copied to memory of this process; what is on a GPU stays as it is.

    Each tensor of a worker keeps an open file and a part of /dev/shm as long as it lives: a step of some hundred
    micro-batches has more than the 1,024 files that a process usually may open.
    """
    return {name: value.clone() if _is_shared(value) else value for name, value in batch.items()}


def _is_shared(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cpu and bool(value.is_shared())  # type: ignore[no-untyped-call]


def padded(rows: Sequence[np.ndarray], value: int, length: int) -> np.ndarray:
    """(rows, length) int64, filled with `value`."""
    table = np.full((len(rows), length), value, dtype=np.int64)
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return table
