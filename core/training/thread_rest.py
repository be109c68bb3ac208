"""ThreadRest: the threads of GNU's OpenMP sleep between operations, as long as it is held."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

from trainwiz.core.hardware.host import own_cores

MAPS = Path("/proc/self/maps")


class ThreadRest:
    """OpenMP has more threads than cores while this is held, and then none of them waits awake (GOMP_SPINCOUNT in its manual).

    How long a thread waits awake cannot be changed once OpenMP is loaded, the number of its threads can. Those that are added
    here sleep as long as they live, and compute nothing: no result changes.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    @property
    def held(self) -> bool:
        return self._thread is not None

    def hold(self) -> None:
        """Returns when the threads are there."""
        if self._thread is None:
            self._over = threading.Event()
            ready = threading.Event()
            self._thread = threading.Thread(target=_add_threads, args=(ready, self._over), daemon=True, name="rest")
            self._thread.start()
            ready.wait()

    def release(self) -> None:
        """The added threads end."""
        if self._thread is not None:
            self._over.set()
            self._thread.join()
            self._thread = None


def openmp_libraries() -> list[str]:
    """Paths of GNU's OpenMP in this process: torch's own, and that of the system where an extension brought it."""
    try:
        words = [line.split(maxsplit=5) for line in MAPS.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return []
    return sorted({fields[5] for fields in words if len(fields) == 6 and Path(fields[5]).name.startswith("libgomp")})


def _add_threads(ready: threading.Event, over: threading.Event) -> None:
    try:
        more = len(own_cores()) + 1
        libraries = openmp_libraries()
        for path in libraries if _is_room_for(more * len(libraries)) else []:
            library = ctypes.CDLL(path)
            # A parallel region that does nothing leaves its threads asleep until the thread that began it ends.
            nothing = ctypes.cast(library.omp_get_num_threads, ctypes.c_void_p)
            library.GOMP_parallel(nothing, None, ctypes.c_uint(more), ctypes.c_uint(0))
    finally:
        ready.set()
    over.wait()


def _is_room_for(threads: int) -> bool:
    """Tried with threads of Python: where a limit (ulimit -u, pids.max) refuses one, OpenMP would end the process."""
    over = threading.Event()
    tried: list[threading.Thread] = []
    try:
        for _ in range(threads):
            thread = threading.Thread(target=over.wait, daemon=True)
            thread.start()
            tried.append(thread)
    except RuntimeError:
        return False
    finally:
        over.set()
        for thread in tried:
            thread.join()
    return True
