"""Dataset of masked protein sequences."""

from __future__ import annotations

import numpy as np
from torch.utils.data import Dataset
from trainwiz.core.data.proteins import EncodedProteins
from trainwiz.core.data.streamed.proteins import StreamedProteins
from trainwiz.core.training.masking import IGNORED, mask_sequence, sample_generator
from trainwiz.core.training.sampling import FILLER, FillerRow, RowKey

MaskedRow = tuple[np.ndarray, np.ndarray]
"""(tokens, labels), (n,) int64 each."""


class MaskedProteins(Dataset[MaskedRow]):
    """Some rows of the proteins; an item is asked for with its epoch, on which its mask depends."""

    def __init__(
        self, proteins: EncodedProteins | StreamedProteins, rows: np.ndarray, probability: float, seed: int
    ) -> None:
        self._proteins = proteins
        self._rows = rows
        self._probability = probability
        self._seed = seed

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: RowKey) -> MaskedRow:
        epoch, index = key
        row = int(self._rows[max(index, 0)])
        letters = self._proteins.letters(row)
        tokens, labels = mask_sequence(letters, self._probability, sample_generator(self._seed, epoch, row))
        return FillerRow((tokens, np.full_like(labels, IGNORED))) if index == FILLER else (tokens, labels)
