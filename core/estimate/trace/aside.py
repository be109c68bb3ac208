"""Aside: something computed in a fork of this process while it goes on by itself."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Generic, TypeVar

from trainwiz.core.estimate.trace.parent import hold_to

T = TypeVar("T")
READ_BYTES = 1 << 16


class Aside(Generic[T]):
    """Only for a process of one thread that runs on Linux: the children of the tracer. The fork ends with this process.

    Raises OSError where there is no process to be had.
    """

    def __init__(self, compute: Callable[[], T]) -> None:
        parent = os.getpid()
        self._output, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                hold_to(parent)
                text = pickle.dumps(compute())
                while text:
                    text = text[os.write(writer, text) :]
            finally:
                os._exit(0)
        os.close(writer)

    def result(self) -> T | None:
        """Waits for it; None where the fork ended without one."""
        text = b""
        while chunk := os.read(self._output, READ_BYTES):
            text += chunk
        os.close(self._output)
        os.waitpid(self._pid, 0)
        try:
            found: T = pickle.loads(text)
        except (EOFError, pickle.UnpicklingError):
            return None
        return found
