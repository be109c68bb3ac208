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

    def letters(self, row: int) -> np.ndarray:
        """(n,) uint8: token numbers of one sequence."""
        raw = self.texts[row][: self._letters].encode("utf-8")
        return LETTERS[np.frombuffer(raw, np.uint8)]
