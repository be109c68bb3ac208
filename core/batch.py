"""The batch solver: a target of tokens or samples -> micro-batch x accumulation x processes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

MOST_ACCUMULATION = 1_048_576
"""The bound of RunConfig's batch.gradient_accumulation_steps."""

_NEAR = 0.02
"""Alternatives further than this from the target are offered only when there are not two nearer ones."""


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
    larger one of equals. Where only a small micro-batch is exact, the first alternative is the nearest
    one with a large micro-batch. Without a target, accumulation is 1 unless given. All sizes are at
    least 1, and the accumulation at most MOST_ACCUMULATION.
    """
    largest = max(1, largest_micro_batch)
    if micro_batch is not None and accumulation is not None:
        chosen = Factorisation(micro_batch, accumulation, world_size)
        return _solution(chosen, target_samples, largest)
    if target_samples is None:
        chosen = Factorisation(micro_batch or largest, accumulation or 1, world_size)
        return BatchSolution(chosen, None)
    if micro_batch is not None:
        chosen = Factorisation(micro_batch, accumulation_for(target_samples, micro_batch, world_size), world_size)
    elif accumulation is not None:
        wanted = target_samples / (accumulation * world_size)
        chosen = Factorisation(min(largest, max(1, round(wanted))), accumulation, world_size)
    else:
        near = nearest_large(target_samples, world_size, largest)
        chosen = largest_exact(target_samples, world_size, largest) or near
        return _solution(chosen, target_samples, largest, first=near)
    return _solution(chosen, target_samples, largest)


def nearest_large(target: float, world_size: int, largest: int) -> Factorisation:
    """The nearest with a micro-batch of at least half of what fits: a smaller one wastes the device."""
    ceiling = min(largest, max(1, math.ceil(target / world_size)))
    lowest = max(1, (ceiling + 1) // 2)
    candidates = [
        Factorisation(micro, accumulation_for(target, micro, world_size), world_size)
        for micro in range(ceiling, lowest - 1, -1)
    ]
    return min(candidates, key=lambda one: (round(abs(deviation(one.samples, target)), 9), -one.micro_batch))


def largest_exact(target: float, world_size: int, largest: int) -> Factorisation | None:
    """The exact factorisation with the largest micro-batch up to `largest`, or None."""
    if target % world_size:
        return None
    share = int(target) // world_size
    sizes = (one for one in range(min(largest, share), 0, -1) if share % one == 0)
    micro = next((one for one in sizes if share // one <= MOST_ACCUMULATION), None)
    return None if micro is None else Factorisation(micro, share // micro, world_size)


def _solution(
    chosen: Factorisation, target: float | None, largest: int, *, first: Factorisation | None = None
) -> BatchSolution:
    """`first` is the first alternative, where it is not the chosen one itself."""
    if target is None:
        return BatchSolution(chosen, None)
    others = sorted(
        (one for one in _neighbours(chosen, target, largest) if one != chosen),
        key=lambda one: (
            abs(deviation(one.samples, target)) > _NEAR,
            round(abs(deviation(one.samples, target)), 4),
            abs(one.micro_batch - chosen.micro_batch),
        ),
    )
    # Two lines that show the same micro-batch are one choice, not two.
    picked = [first] if first is not None and first != chosen else []
    for one in others:
        if all(one.micro_batch != other.micro_batch or one.samples != other.samples for other in picked):
            picked.append(one)
        if len(picked) == 2:
            break
    return BatchSolution(
        chosen,
        deviation(chosen.samples, target),
        tuple((one, deviation(one.samples, target)) for one in picked),
    )


def _neighbours(chosen: Factorisation, target: float, largest: int) -> Iterator[Factorisation]:
    """Other micro-batches up to what fits, and one micro-batch more or less."""
    for micro in range(max(1, chosen.micro_batch // 2), max(largest, chosen.micro_batch) + 1):
        yield Factorisation(micro, accumulation_for(target, micro, chosen.world_size), chosen.world_size)
    if target < chosen.micro_batch * chosen.world_size:
        # Even one micro-batch is too much: the nearest is a smaller one.
        yield Factorisation(max(1, math.floor(target / chosen.world_size)), 1, chosen.world_size)
    for accumulation in (chosen.accumulation - 1, chosen.accumulation + 1):
        if accumulation >= 1:
            yield Factorisation(chosen.micro_batch, accumulation, chosen.world_size)
