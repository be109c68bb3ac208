"""The batch solver: a target of tokens or samples -> micro-batch x accumulation x processes."""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_ACCUMULATION = 1_048_576
"""The bound of RunConfig's batch.gradient_accumulation_steps."""


@dataclass(frozen=True, slots=True)
class Factorisation:
    """micro_batch x accumulation x world_size sequences in one optimizer step."""

    micro_batch: int
    accumulation: int
    world_size: int

    @property
    def samples(self) -> int:
        return self.micro_batch * self.accumulation * self.world_size


@dataclass(frozen=True, slots=True)
class BatchSolution:
    """The chosen factorisation and two others near the target, with their relative deviations."""

    chosen: Factorisation
    deviation: float | None
    """(effective - target) / target; None without a target."""
    alternatives: tuple[tuple[Factorisation, float], ...] = ()


def deviation(samples: int, target: float) -> float:
    """Relative distance of `samples` from `target` (both in the same unit, target above 0)."""
    return (samples - target) / target


def accumulation_for(target: float, micro_batch: int, world_size: int) -> int:
    """The number of micro-batches that comes nearest to `target` sequences; 1 to MOST_ACCUMULATION."""
    share = min(target / (micro_batch * world_size), MOST_ACCUMULATION)
    below = max(1, math.floor(share))
    return below if share - below <= below + 1 - share else below + 1


def solve_batch(
    *,
    target_samples: float | None,
    world_size: int,
    largest_micro_batch: int,
    micro_batch: int | None = None,
    accumulation: int | None = None,
) -> BatchSolution:
    """The batch nearest to `target_samples` sequences a step (tokens / length for a token target).

    What is given stays as it is. A free micro-batch is the largest up to `largest_micro_batch`
    (what fits in memory) that hits the target exactly; else the one with the least deviation, the
    larger one of equals. Without a target, accumulation is 1 unless given. All sizes are at least 1,
    and the accumulation at most MOST_ACCUMULATION.
    """
    largest = max(1, largest_micro_batch)
    if target_samples is None:
        return BatchSolution(Factorisation(micro_batch or largest, accumulation or 1, world_size), None)
    if micro_batch is None and accumulation is not None:
        micro_batch = min(largest, max(1, round(target_samples / (accumulation * world_size))))
    sizes = range(max(largest, micro_batch or 1), 0, -1)
    nearest = [Factorisation(size, accumulation_for(target_samples, size, world_size), world_size) for size in sizes]

    def distance(one: Factorisation) -> float:
        return round(abs(deviation(one.samples, target_samples)), 9)

    if micro_batch is not None:
        steps = accumulation or accumulation_for(target_samples, micro_batch, world_size)
        chosen = Factorisation(micro_batch, steps, world_size)
    else:
        # Exact if possible; else at least half of what fits: a smaller one wastes the device.
        ceiling = min(largest, max(1, math.ceil(target_samples / world_size)))
        large = [one for one in nearest if (ceiling + 1) // 2 <= one.micro_batch <= ceiling]
        exact = next((one for one in nearest if one.samples == target_samples), None)
        chosen = exact or min(large, key=distance)
    # The larger micro-batch of those that are as near.
    others = sorted((one for one in nearest if one != chosen), key=lambda one: round(distance(one), 4))[:2]
    pairs = tuple((one, deviation(one.samples, target_samples)) for one in others)
    return BatchSolution(chosen, deviation(chosen.samples, target_samples), pairs)
