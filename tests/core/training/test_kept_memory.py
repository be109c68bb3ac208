"""Memory that glibc keeps is given back, and what is in use is not asked for again and again."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from typing import Any

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.training.kept_memory import (
    FIRST_MICRO_BATCHES,
    ROOM,
    KeptMemory,
    malloc_trim,
    memory_callbacks,
    resident_bytes,
)

BLOCK = 100_000
"""Bytes: blocks below the size that glibc maps apart lie in its heap."""
STAYS = 20
"""One of so many blocks is not freed."""

pytestmark = pytest.mark.skipif(malloc_trim() is None, reason="needs Linux and glibc")


class Heap:
    """Blocks of C's own malloc: freed ones stay with the process, because others lie between them."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._libc.malloc.restype = ctypes.c_void_p
        self._libc.malloc.argtypes = [ctypes.c_size_t]
        self._libc.free.argtypes = [ctypes.c_void_p]
        self._blocks: list[int] = []

    def fill(self, size: int) -> None:
        """With `size` bytes in blocks."""
        for _ in range(size // BLOCK):
            block = self._libc.malloc(BLOCK)
            ctypes.memset(block, 1, BLOCK)
            self._blocks.append(block)

    def free_most(self) -> None:
        stay = self._blocks[::STAYS]
        for block in set(self._blocks) - set(stay):
            self._libc.free(block)
        self._blocks = stay

    def free_all(self) -> None:
        while self._blocks:
            self._libc.free(self._blocks.pop())


@pytest.fixture
def heap() -> Iterator[Heap]:
    made = Heap()
    yield made
    made.free_all()


class Counted:
    """The real malloc_trim, and how often it was called."""

    def __init__(self) -> None:
        self.calls = 0
        self._trim = malloc_trim()

    def __call__(self) -> None:
        assert self._trim is not None
        self.calls += 1
        self._trim()


def _look(memory: KeptMemory, times: int = 1) -> None:
    nothing: Any = None
    for _ in range(times):
        memory.on_substep_end(nothing, nothing, nothing)


def test_freed_memory_goes_back_to_the_system(heap: Heap) -> None:
    trim = Counted()
    memory = KeptMemory(trim)
    trim()
    _look(memory, FIRST_MICRO_BATCHES)
    before = resident_bytes()
    heap.fill(before)
    heap.free_most()
    assert resident_bytes() > ROOM * before
    _look(memory, 5)
    assert trim.calls == 2
    assert resident_bytes() < 1.1 * before


def test_little_of_the_time_goes_into_it(heap: Heap) -> None:
    trim, now = Counted(), [0.0]
    memory = KeptMemory(trim, clock=lambda: now[0])
    trim()
    _look(memory, FIRST_MICRO_BATCHES)
    size = resident_bytes()
    called = []
    for now[0] in (0.0, 1.0, 1000.0):
        heap.fill(size)
        heap.free_most()
        _look(memory)
        called.append(trim.calls - 1)
    # Of 400 MB or more, given back at 0: no more for 9 s or more.
    assert called == [1, 1, 2]


def test_memory_in_use_is_asked_for_once(heap: Heap) -> None:
    trim = Counted()
    memory = KeptMemory(trim)
    trim()
    _look(memory, FIRST_MICRO_BATCHES)
    heap.fill(resident_bytes())
    _look(memory, 5)
    assert trim.calls == 2


def test_the_first_micro_batches_show_what_is_usual(heap: Heap) -> None:
    trim = Counted()
    memory = KeptMemory(trim)
    heap.fill(resident_bytes())
    _look(memory)
    heap.free_most()
    _look(memory, FIRST_MICRO_BATCHES + 10)
    assert trim.calls == 0


@pytest.mark.parametrize(("device", "number"), [("cpu", 1), ("cuda", 0)])
def test_only_a_training_on_the_cpu_gives_memory_back(device: str, number: int) -> None:
    config = RunConfig.model_validate({"engine": {"device": device}})
    assert len(memory_callbacks(config)) == number


def test_the_size_is_that_of_this_process() -> None:
    with open("/proc/self/status", encoding="ascii") as file:
        kilobytes = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    assert resident_bytes() == pytest.approx(kilobytes * 1024, rel=0.05)
    assert resident_bytes() % os.sysconf("SC_PAGE_SIZE") == 0
