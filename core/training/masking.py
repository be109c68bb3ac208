"""Which letters of a sequence are hidden: a function of (seed, epoch, sample) and of nothing else."""

from __future__ import annotations

import numpy as np
from trainwiz.core.data.proteins import CLS, EOS, FIRST_RESIDUE, LAST_RESIDUE, MASK

IGNORED = -100
"""Label of a position that the loss leaves out, as in torch and transformers."""
EVALUATION_EPOCH = 2**32 - 1
"""Epoch number of the held-out rows: their masks never change."""
MASK_SHARE = 0.8
RANDOM_SHARE = 0.1


def sample_generator(seed: int, epoch: int, sample: int) -> np.random.Generator:
    """Philox, a counter-based generator: its stream depends on the three numbers only, so that
    loader workers, prefetching and resuming change nothing."""
    return np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, 0, sample]))


def mask_sequence(
    letters: np.ndarray, probability: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Input tokens and labels of one sequence, (n + 2,) int64 each, <cls> and <eos> added.

    Each letter is chosen with `probability`; of the chosen, 80 % become <mask>, 10 % a random
    amino acid and 10 % stay (Devlin et al. 2018, section 3.1; the same shares in ESM-2). At least
    one letter is chosen, so that no batch is without a label.
    """
    length = len(letters)
    draws = generator.random((2, length))
    replacement = generator.integers(FIRST_RESIDUE, LAST_RESIDUE + 1, size=length)
    chosen = draws[0] < probability
    if not chosen.any():
        chosen[int(draws[0].argmin())] = True
    tokens = np.empty(length + 2, dtype=np.int64)
    labels = np.full(length + 2, IGNORED, dtype=np.int64)
    tokens[0], tokens[-1] = CLS, EOS
    labels[1:-1][chosen] = letters[chosen]
    hidden = chosen & (draws[1] < MASK_SHARE)
    swapped = chosen & (draws[1] >= MASK_SHARE) & (draws[1] < MASK_SHARE + RANDOM_SHARE)
    tokens[1:-1] = np.where(hidden, MASK, np.where(swapped, replacement, letters))
    return tokens, labels
