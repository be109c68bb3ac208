"""How the threads of OpenMP wait for their next work on a CPU. torch's OpenMP reads it once, when torch is imported."""

from __future__ import annotations

from collections.abc import MutableMapping

POLICY, SPINS = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"
WAITING = {POLICY: "PASSIVE", SPINS: "1000"}
"""Asleep, but for some 30 microseconds, in which most of the next operations of a small model come.

Measured on four cores of a server, T5 of 11 million weights, 16 rows of 10 tokens, milliseconds forward and backward alone /
beside one busy process / two such trainings of four threads: always asleep 230 / 240 / 350; so 145 / 225 / 360; with GNU's
own 300,000 spins 105 / 650 / more than 2,000.
"""


def wait_briefly(environment: MutableMapping[str, str]) -> None:
    """Sets `WAITING`, unless a policy was chosen already."""
    if POLICY not in environment:
        for name, value in WAITING.items():
            environment.setdefault(name, value)
