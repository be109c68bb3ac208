"""Passes: how long a micro-batch takes by its length, from those that were measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from trainwiz.core.training.probe_sampling import Part


class Passes:
    """A line through all passes so far (least squares): seconds by the length of the longest row."""

    def __init__(self) -> None:
        self._lengths: list[float] = []
        self._seconds: list[float] = []

    def missing_s(self, seconds: Sequence[float] | np.ndarray, part: Part | None, missing: int) -> float:
        """Seconds of the rounds of a step that were not computed.

        `seconds` (n,) of its first passes: the last one has the optimizer's step in it. The rounds of a
        step that is arranged by length get shorter, so the mean of the first ones would be too much.
        Without `part` the `missing` rounds take what the measured ones take.
        """
        if not len(seconds):
            return 0.0
        if part is None or len(part.measured) <= len(seconds):
            return missing * float(np.mean(seconds))
        lengths = np.asarray(part.measured[: len(seconds)])
        self._lengths += lengths.tolist()
        self._seconds += [float(one) for one in seconds]
        slope, start = self._line()
        fitted = (start + slope * lengths).sum()
        wanted = (start + slope * np.asarray(part.missing)).sum()
        # The shape is that of all steps, the pace that of this one.
        return float(np.sum(seconds) * wanted / fitted) if fitted > 0 else missing * float(np.mean(seconds))

    def _line(self) -> tuple[float, float]:
        """(seconds for each unit of length, seconds at none); flat where all are of one length.

        Never below 0 at none: attention bends the line, and the short rounds are beyond its measured end.
        """
        lengths, seconds = np.asarray(self._lengths), np.asarray(self._seconds)
        spread = lengths - lengths.mean()
        variance = float((spread**2).sum())
        slope = max(0.0, float((spread * seconds).sum()) / variance) if variance > 0 else 0.0
        start = float(seconds.mean()) - slope * float(lengths.mean())
        return (slope, start) if start >= 0 else (float((lengths * seconds).sum() / (lengths**2).sum()), 0.0)
