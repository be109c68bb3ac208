"""How long rows of text are, for arranging them: in tokens where counting them all is quick, else in bytes."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from trainwiz.core.config.values import Task
from trainwiz.core.data.text_rows import TextRows
from trainwiz.core.training.tokenizer_training import parallel_tokenizing

MOST_ROWS, MOST_BYTES = 200_000, 64 * 1024**2
"""Of more rows, or longer texts with their targets, the bytes count: each process counts, each time that it starts."""


class Counts(Protocol):
    def lengths(self, texts: list[str], targets: list[str] | None) -> list[int]:
        """Tokens of each row."""


def row_lengths(rows: TextRows, numbers: np.ndarray, task: Task, encoder: Counts) -> np.ndarray:
    """(n,) int64 of the rows `numbers` (n,) int64: the same on every process, which must draw the same order.

    Bytes stand for tokens badly where a script has three bytes a letter: on Chinese and English pairs rows arranged by bytes
    compute 1.53 tokens for each real one, by tokens 1.27 (docs/arrangement.md).
    """
    stores = [store for store in (rows.texts, rows.targets) if store is not None]
    all_bytes = sum(int(store.lengths[numbers].sum()) for store in stores)
    if rows.in_pieces or len(numbers) > MOST_ROWS or all_bytes > MOST_BYTES:
        return rows.lengths_of(task, numbers)
    counted: list[int] = []
    with parallel_tokenizing():
        for texts, *targets in zip(*(store.batches(numbers) for store in stores), strict=True):
            counted += encoder.lengths(texts, targets[0] if targets else None)
    return np.array(counted, np.int64)
