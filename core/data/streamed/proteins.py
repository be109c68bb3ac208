"""StreamedProteins: sequences as token numbers, read while training."""

from __future__ import annotations

import numpy as np
from trainwiz.core.data.proteins import LETTERS
from trainwiz.core.data.text_store import TextStore


class StreamedProteins:
    """Sequences of a store of texts, each cut and encoded when it is asked for."""

    def __init__(self, texts: TextStore, letters: int) -> None:
        """`letters`: most of one sequence."""
        self.texts = texts
        self._letters = letters

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64: letters of each sequence."""
        lengths: np.ndarray = np.minimum(self.texts.lengths, self._letters)
        return lengths

    def letters(self, row: int) -> np.ndarray:
        """(n,) uint8: token numbers of one sequence."""
        raw = self.texts[row][: self._letters].encode("utf-8")
        found: np.ndarray = LETTERS[np.frombuffer(raw, np.uint8)]
        return found
