"""The protein alphabet of ESM-2, and sequences as its numbers."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from trainwiz.core.data.text_store import TextStore

ESM_VOCABULARY: tuple[str, ...] = (
    "<cls>", "<pad>", "<eos>", "<unk>",
    "L", "A", "G", "V", "S", "E", "R", "T", "I", "D", "P", "K", "Q", "N", "F", "Y", "M", "H", "W", "C",
    "X", "B", "U", "Z", "O", ".", "-", "<null_1>", "<mask>",
)  # fmt: skip
"""The 33 tokens of ESM-2 in the order of its vocab.txt (facebook/esm2_t6_8M_UR50D)."""

CLS, PAD, EOS, UNK = 0, 1, 2, 3
MASK = 32
FIRST_RESIDUE, LAST_RESIDUE = 4, 23
"""Numbers of the 20 standard amino acids, L to C."""
SPECIAL_TOKENS = 2
"""Tokens added to each sequence: <cls> before, <eos> after."""

LETTERS = "".join(token for token in ESM_VOCABULARY if len(token) == 1)
"""In upper case; files may have them in lower case too."""
OUTSIDE = f"[^{re.escape(LETTERS + LETTERS.lower())}Jj]"
"""A letter that is not in the alphabet. J (leucine or isoleucine, not told apart) is one of protein files that ESM-2 does not
have: it is read as <unk>, as the original tokenizer does."""


def _number_table() -> np.ndarray:
    """(256,) uint8: byte of an ASCII letter, upper or lower case -> token number."""
    table = np.full(256, UNK, dtype=np.uint8)
    for letter in LETTERS:
        table[[ord(letter), ord(letter.lower())]] = ESM_VOCABULARY.index(letter)
    return table


NUMBERS = _number_table()


def trim_proteins(texts: pa.Array) -> pa.Array:
    """Sequences without surrounding blanks and without the `*` that marks a stop codon."""
    return pc.utf8_rtrim(pc.utf8_trim_whitespace(texts), characters="*")


class ProteinStore:
    """Sequences of a store of texts, each cut and encoded when it is asked for."""

    def __init__(self, texts: TextStore, letters: int) -> None:
        """`letters`: most of one sequence."""
        self._texts = texts
        self._letters = letters

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64: letters of each sequence."""
        lengths: np.ndarray = np.minimum(self._texts.lengths, self._letters)
        return lengths

    def letters(self, row: int) -> np.ndarray:
        """(n,) uint8: token numbers of one sequence."""
        raw = self._texts[row][: self._letters].encode("utf-8")
        numbers: np.ndarray = NUMBERS[np.frombuffer(raw, np.uint8)]
        return numbers
