"""Lengths of rows as bars with a mark at the longest that is kept. Pure: numbers in, lines of text out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

EIGHTHS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Bars:
    """Rows counted by their length. Column i holds lengths from i x `span` to (i + 1) x `span` tokens."""

    counts: tuple[int, ...]
    span: float
    """Tokens of a column."""
    limit_column: int
    """Where the longest kept length lies; as many as there are columns where it lies beyond them."""
    has_longer: bool
    """Some rows are longer than the last column; they are counted in it."""

    @property
    def top(self) -> int:
        """Tokens at the right edge."""
        return round(self.span * len(self.counts))


def count_bars(ordered: Sequence[int], limit: int, columns: int) -> Bars:
    """`ordered`: lengths in tokens, shortest first, not empty. The far end of a long tail goes into the last column."""
    usual = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    # The limit stays on the picture, with a little room behind it, unless that makes dust of the rows before it.
    top = max(usual, min(limit * 1.1, usual * 3), columns / 4, 1)
    # Few lengths have as many columns each, so that none falls between two.
    span = top / columns if top >= columns else 1 / (columns // ceil(top))
    # The rows below the right edge of each column but the last, which has no edge.
    below = [0, *(bisect_left(ordered, span * (place + 1)) for place in range(columns - 1)), len(ordered)]
    counts = [high - low for low, high in pairwise(below)]
    return Bars(tuple(counts), span, min(columns, int(limit / span)), ordered[-1] > span * columns)


def bar_rows(bars: Bars, height: int) -> list[str]:
    """`height` lines, the highest first: rows for each length that a column holds. One with any row shows something."""
    # A column of two lengths beside one of a single length would look like twice the rows.
    edges = [ceil(bars.span * place) for place in range(len(bars.counts) + 1)]
    means = [count / max(1, high - low) for count, (low, high) in zip(bars.counts, pairwise(edges), strict=True)]
    most = max(means)
    eighths = [0 if not mean else max(1, round(mean / most * 8 * height)) for mean in means]
    return [
        "".join(EIGHTHS[max(0, min(8, column - 8 * (height - 1 - line)))] for column in eighths)
        for line in range(height)
    ]
