"""The network between the machines of a run: how fast it is, and what a step moves over it."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.estimate.traffic import exchanged_bytes
from trainwiz.core.estimate.workload import Workload

ASSUMED_GBIT_S = 10.0
"""Where nobody says more: the slower of what servers are sold with. Nothing in a machine tells what its switch does."""
USED_SHARE = 0.6
"""Of the line rate, at worst, by a ring over TCP sockets; RDMA reaches nine tenths, and the slow end is what counts here."""
BITS = 8
GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Network:
    """Between the machines, as given or assumed."""

    gbit_s: float
    assumed: bool

    @classmethod
    def of(cls, gbit_s: float | None) -> Network:
        return cls(ASSUMED_GBIT_S, True) if gbit_s is None else cls(gbit_s, False)

    @property
    def bytes_per_s(self) -> float:
        """At worst."""
        return USED_SHARE * self.gbit_s * GIGA / BITS


def network_bytes(work: Workload) -> float:
    """What a step sends out of each machine: a ring crosses every machine's link once, whatever number of cards it has."""
    return (work.world_size - 1) / work.world_size * exchanged_bytes(work)


def network_time_s(work: Workload, network: Network) -> float:
    """Of a step, where no computation hides it."""
    return network_bytes(work) / network.bytes_per_s
