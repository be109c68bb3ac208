"""How a process that computes begins: quick heavy imports, a pipe of its own, threads that wait without taking a core."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Collection, Iterator, MutableMapping
from contextlib import contextmanager

# Imports of torch and transformers without Python's garbage collector, which takes a third of their time.


NEVER_USED = ("datasets", "scipy")
"""transformers imports them where they are installed, for losses and checks of types that nothing here has: a second of
processor time and 50 MiB in each process. bitsandbytes brings torch's compiler: 2 s and 50 MiB."""


@contextmanager
def heavy_imports(without: Collection[str] = ()) -> Iterator[None]:
    """Nothing is collected while modules are imported, and what they made is never looked at again.

    They make millions of objects that stay, and the collector goes through all of them time and again: of 6 s
    of processor time that the modules of a training take, 2 s. Frozen objects also go on sharing their pages in forked
    processes (gc.freeze), such as the workers of a loader.
    `without`: packages that count as not installed, to the end of this process.
    """
    for name in without:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


# How the threads of OpenMP wait for their next work on a CPU. torch's OpenMP reads it once, when torch is imported.

POLICY, SPINS = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"
WAITING = {POLICY: "PASSIVE", SPINS: "2000"}
"""Asleep, but for a moment in which the next operation of a small model mostly comes. Measurements: docs/environment.md."""


# The answers of a process that its parent reads.


def private_stdout() -> int:
    """A descriptor of the pipe that no library knows: what they print goes to stderr."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def wait_briefly(environment: MutableMapping[str, str]) -> None:
    """Sets `WAITING`, unless a policy was chosen already."""
    if POLICY not in environment:
        for name, value in WAITING.items():
            environment.setdefault(name, value)
