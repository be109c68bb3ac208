"""A tracer never outlives who it traces for."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from trainwiz.core.supervise.linux import die_with_parent

LOOK_EVERY_S = 1.0


def hold_to(parent: int) -> None:
    """End this process by SIGKILL as soon as its parent (pid) ends, however that ends, and whatever this one does.

    Linux does it at once; elsewhere a thread looks once a second.
    """
    die_with_parent(parent)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.platform != "linux":
        threading.Thread(target=_look, args=(parent,), name="parent", daemon=True).start()


def _look(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGKILL)
