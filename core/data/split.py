"""Which rows are held out for evaluation."""

from __future__ import annotations

import numpy as np
from trainwiz.core.config.sections import DataSection

DEFAULT_SHARE = 0.01
DEFAULT_MOST = 2000


def held_out_count(rows: int, data: DataSection) -> int:
    """How many of `rows` training rows are held out: what the config says, at most half of them.

    0 when there are separate validation sources or fewer than two rows.
    """
    if data.validation_sources or data.validation_rows == 0 or rows < 2:
        return 0
    if data.validation_rows is None:
        return min(max(1, round(rows * DEFAULT_SHARE)), DEFAULT_MOST)
    return min(data.validation_rows, rows // 2)


def split_rows(rows: int, held_out: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(training rows, held-out rows) as sorted int64 positions; a function of the seed alone."""
    order = np.random.Generator(np.random.Philox(key=[seed, 0x5B117])).permutation(rows)
    chosen = np.sort(order[:held_out])
    # Sorted in its place: of ten million rows each copy takes 80 MB.
    order = order[held_out:]
    order.sort()
    return order.astype(np.int64, copy=False), chosen.astype(np.int64, copy=False)
