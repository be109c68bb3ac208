"""Dataset and collator of masked protein sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.utils.data import Dataset
from trainwiz.core.data.proteins import PAD, EncodedProteins
from trainwiz.core.training.masking import IGNORED, mask_sequence, sample_generator
from trainwiz.core.training.sampling import FILLER, RowKey

MaskedRow = tuple[np.ndarray, np.ndarray]
"""(tokens, labels), (n,) int64 each."""


class MaskedProteins(Dataset[MaskedRow]):
    """Some rows of the encoded proteins; an item is asked for with its epoch, on which its mask depends."""

    def __init__(self, proteins: EncodedProteins, rows: np.ndarray, probability: float, seed: int) -> None:
        self._proteins = proteins
        self._rows = rows
        self._probability = probability
        self._seed = seed

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: RowKey) -> MaskedRow:
        epoch, index = key
        row = int(self._rows[max(index, 0)])
        letters = self._proteins.tokens[self._proteins.offsets[row] : self._proteins.offsets[row + 1]]
        tokens, labels = mask_sequence(letters, self._probability, sample_generator(self._seed, epoch, row))
        if index == FILLER:
            labels[:] = IGNORED
        return tokens, labels


def collate(rows: Sequence[MaskedRow]) -> dict[str, torch.Tensor]:
    """Pad to the longest row: input_ids, attention_mask and labels, (rows, longest) int64 each."""
    longest = max(len(tokens) for tokens, _ in rows)
    input_ids = np.full((len(rows), longest), PAD, dtype=np.int64)
    labels = np.full((len(rows), longest), IGNORED, dtype=np.int64)
    mask = np.zeros((len(rows), longest), dtype=np.int64)
    for place, (tokens, targets) in enumerate(rows):
        input_ids[place, : len(tokens)] = tokens
        labels[place, : len(tokens)] = targets
        mask[place, : len(tokens)] = 1
    return {
        "input_ids": torch.from_numpy(input_ids),
        "attention_mask": torch.from_numpy(mask),
        "labels": torch.from_numpy(labels),
    }
