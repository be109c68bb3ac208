"""Energy of a run: the power of its cards and of the rest of the machine, over its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainwiz.core.estimate.time import Range

BUSY_LOW, BUSY_HIGH = 0.5, 1.0
"""Share of a card's power limit while it trains. Large matrix products run into the limit; attention, optimizer and
loading do not. Assumed, not measured here: the monitor shows what a run really draws."""
IDLE_LOW, IDLE_HIGH = 0.25, 0.7
"""Likewise of a card that mostly waits for launches or data."""
HOST_LOW_W, HOST_HIGH_W = 50.0, 200.0
"""Processor, memory, disks and fans of one machine beside its cards: a desktop at rest, and a workstation at work."""
SUPPLY_LOW, SUPPLY_HIGH = 0.95, 0.85
"""Efficiency of the power supply: the meter counts what goes in."""
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class Power:
    """Watts at the wall, of all machines of a run."""

    low_w: float
    high_w: float

    def energy_kwh(self, time: Range) -> tuple[float, float]:
        """(low, high) in kWh over `time`: little power for a short time, much for a long one."""
        return self.low_w * time.low / JOULES_PER_KWH, self.high_w * time.high / JOULES_PER_KWH


def power_of(limits_w: Sequence[float | None], nodes: int, *, idle: bool) -> Power | None:
    """Of `nodes` machines with these cards each, given by their power limits. None where one is not known, or none is there."""
    known = [limit for limit in limits_w if limit is not None]
    if not known or len(known) < len(limits_w):
        return None
    low, high = (IDLE_LOW, IDLE_HIGH) if idle else (BUSY_LOW, BUSY_HIGH)
    return Power(
        nodes * (low * sum(known) + HOST_LOW_W) / SUPPLY_LOW, nodes * (high * sum(known) + HOST_HIGH_W) / SUPPLY_HIGH
    )
