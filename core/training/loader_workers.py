"""Loader workers that outlive a stop: a signal to the whole process group must not cost the checkpoint."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from functools import partial
from multiprocessing import RawValue
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader


class LoaderShield:
    """Workers ignore SIGTERM and SIGINT until the training is over.

    torch's own workers die of SIGTERM, and the training with them, before the checkpoint is
    written. Once `over` is called they end on SIGTERM again, as multiprocessing wants at exit.
    """

    def __init__(self) -> None:
        self._over = RawValue(ctypes.c_bool, False)

    def over(self) -> None:
        self._over.value = True

    def protect(self, loader: DataLoader[Any]) -> None:
        """Wrap the loader's own `worker_init_fn`. accelerate keeps the torch loader inside its own."""
        inner = getattr(loader, "base_dataloader", loader)
        if inner.num_workers > 0:
            inner.worker_init_fn = partial(_start_worker, inner.worker_init_fn, self._over)


def _start_worker(first: Callable[[int], Any] | None, over: Any, worker: int) -> None:
    if first is not None:
        first(worker)

    def end_if_over(number: int, frame: FrameType | None) -> None:
        if over.value:
            os._exit(0)

    signal.signal(signal.SIGTERM, end_if_over)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
