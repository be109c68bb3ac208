"""Imports of torch and transformers without Python's garbage collector, which takes a third of their time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def heavy_imports() -> Iterator[None]:
    """Nothing is collected while modules are imported, and what they made is never looked at again.

    They make millions of objects that stay, and the collector goes through all of them time and again: of 6 s
    of processor time that the modules of a training take, 2 s. Frozen objects also go on sharing their pages in forked
    processes (gc.freeze), such as the workers of a loader.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()
