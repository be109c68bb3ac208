"""The protein alphabet of ESM-2, and sequences as its numbers."""

from __future__ import annotations

from dataclasses import dataclass

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

OUTSIDE = 255
"""Mark of a letter that is not in the alphabet."""


def _letter_table() -> np.ndarray:
    """(256,) uint8: byte of an ASCII letter, upper or lower case -> token number, else OUTSIDE.

    J (leucine or isoleucine, not told apart) is a letter of protein files that ESM-2 does not
    have: it is read as <unk>, as the original tokenizer does.
    """
    table = np.full(256, OUTSIDE, dtype=np.uint8)
    for number, token in enumerate(ESM_VOCABULARY):
        if len(token) == 1:
            table[ord(token)] = number
            table[ord(token.lower())] = number
    table[ord("J")] = table[ord("j")] = UNK
    return table


LETTERS = _letter_table()


def is_letter(letter: str) -> bool:
    return ord(letter) < 128 and bool(LETTERS[ord(letter)] != OUTSIDE)


@dataclass(frozen=True, slots=True)
class EncodedProteins:
    """Sequences as token numbers, one byte a letter, special tokens not included."""

    tokens: np.ndarray
    """(total,) uint8; OUTSIDE where a letter is not in the alphabet."""
    offsets: np.ndarray
    """(n + 1,) int64: sequence i is tokens[offsets[i]:offsets[i + 1]]."""

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64: letters of each sequence."""
        return np.diff(self.offsets)

    def letters_outside(self) -> np.ndarray:
        """(k,) int64: the sequences that hold a letter outside the alphabet."""
        places = np.flatnonzero(self.tokens == OUTSIDE)
        return np.unique(np.searchsorted(self.offsets, places, side="right") - 1)


def trim_proteins(texts: pa.Array) -> pa.Array:
    """Sequences without surrounding blanks and without the `*` that marks a stop codon."""
    return pc.utf8_rtrim(pc.utf8_trim_whitespace(texts), characters="*")


def encode_proteins(texts: pa.Array) -> EncodedProteins:
    """Trimmed sequences (LargeStringArray without nulls) as token numbers."""
    if len(texts) == 0:
        return EncodedProteins(np.empty(0, np.uint8), np.zeros(1, np.int64))
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    raw = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    return EncodedProteins(LETTERS[raw[offsets[0] : offsets[-1]]], offsets - offsets[0])


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
        numbers: np.ndarray = LETTERS[np.frombuffer(raw, np.uint8)]
        return numbers
