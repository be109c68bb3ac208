"""Rows of text as the Trainer asks for them. An item is asked for with its epoch, on which texts do not depend."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch.utils.data import Dataset
from trainwiz.core.data.text_rows import TextRows
from trainwiz.core.training.masking import IGNORED
from trainwiz.core.training.sampling import FILLER, FillerRow, RowKey
from trainwiz.core.training.text_encoding import TokenRow, next_tokens
from trainwiz.core.training.token_store import TokenStore


class TextDataset(Dataset[TokenRow]):
    """Some rows, each made into tokens when it is asked for: in the loader's workers, streamed or not."""

    def __init__(self, rows: TextRows, numbers: np.ndarray, encode: Callable[[str, str], TokenRow]) -> None:
        """`numbers` (n,) int64: the rows of the set. `encode` gets the target as None where rows have none."""
        self._texts = rows.texts
        self._targets = rows.targets
        self._numbers = numbers
        self._encode: Callable[..., TokenRow] = encode

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, key: RowKey) -> TokenRow:
        _, index = key
        number = int(self._numbers[max(index, 0)])
        tokens, labels = self._encode(self._texts[number], None if self._targets is None else self._targets[number])
        return FillerRow((tokens, np.full_like(labels, IGNORED))) if index == FILLER else (tokens, labels)


class BlockDataset(Dataset[TokenRow]):
    """Joined texts cut into sequences of `length` tokens; what is left over at the end is dropped.

    Texts that are shorter than one sequence altogether give a single short one.
    """

    def __init__(self, tokens: TokenStore, length: int) -> None:
        self._tokens = tokens
        self._length = length
        self._blocks = len(tokens) // length or int(len(tokens) > 1)

    def __len__(self) -> int:
        return self._blocks

    def __getitem__(self, key: RowKey) -> TokenRow:
        _, index = key
        tokens, labelled = self._tokens.read(max(index, 0) * self._length, self._length)
        labels = next_tokens(tokens, labelled)
        return FillerRow((tokens, np.full_like(labels, IGNORED))) if index == FILLER else (tokens, labels)


class Chosen(Dataset[TokenRow]):
    """Some items of another set, as an overfitting run repeats them."""

    def __init__(self, whole: Dataset[TokenRow], chosen: np.ndarray) -> None:
        self._whole = whole
        self._chosen = chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, key: RowKey) -> TokenRow:
        epoch, index = key
        item: TokenRow = self._whole[(epoch, index if index == FILLER else int(self._chosen[index]))]
        return item
