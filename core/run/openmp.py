"""How the threads of OpenMP wait for their next work on a CPU. torch's OpenMP reads it once, when torch is imported."""

from __future__ import annotations

from collections.abc import MutableMapping

POLICY, SPINS = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"
WAITING = {POLICY: "PASSIVE", SPINS: "2000"}
"""Asleep, but for a moment in which the next operation of a small model mostly comes. Measurements: docs/environment.md."""


def wait_briefly(environment: MutableMapping[str, str]) -> None:
    """Sets `WAITING`, unless a policy was chosen already."""
    if POLICY not in environment:
        for name, value in WAITING.items():
            environment.setdefault(name, value)
