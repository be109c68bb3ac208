"""Work: what the steps of a training computed, with padding and without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Operations = Callable[[int, int], float]
"""Length of a row's input and of its target (0 without), in tokens -> operations of one row of these lengths."""


@dataclass(frozen=True)
class Work:
    """What some steps computed: tokens of both sides, and operations."""

    seconds: float
    computed: int
    real: int
    computed_operations: float
    real_operations: float


def work_of(steps: Sequence[dict[str, Any]], operations: Operations) -> Work:
    """`steps` are what the gate said of each."""
    shapes = [batch["shape"] for step in steps for batch in step["batches"]]
    real = [row for step in steps for batch in step["batches"] for row in zip(*batch["real"], strict=True)]
    return Work(
        sum(step["seconds"] for step in steps),
        sum(rows * (source + target) for rows, source, target in shapes),
        sum(source + target for source, target in real),
        sum(rows * operations(source, target) for rows, source, target in shapes),
        sum(operations(source, target) for source, target in real),
    )
