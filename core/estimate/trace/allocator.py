"""CachingAllocator: what PyTorch's CUDA allocator reserves for a sequence of allocations and frees.

The rules and sizes of c10/cuda/CUDACachingAllocator.cpp with its defaults: allocations up to 1 MiB
come from segments of 2 MiB, those below 10 MiB from segments of 20 MiB, larger ones get their own
segment, rounded up to 2 MiB. The smallest free block that is large enough is taken, and split when
the rest is worth keeping; neighbours that are free are joined again. Segments are never given back.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

MIB = 2**20
SMALL = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
SMALLEST_OWN_SEGMENT = 10 * MIB
SEGMENT_ROUNDING = 2 * MIB
SMALLEST_REST = 512

Event = tuple[int, int]
"""(number of the block, bytes): allocated where the number is positive, freed where it is negative."""


class Block:
    """A part of a segment."""

    __slots__ = ("free", "next", "number", "previous", "size", "small")

    def __init__(self, size: int, number: int, small: bool) -> None:
        self.size = size
        self.number = number
        self.small = small
        self.free = False
        self.previous: Block | None = None
        self.next: Block | None = None


class CachingAllocator:
    """Segments and blocks of one GPU. Sizes are in bytes and multiples of 512."""

    def __init__(self) -> None:
        self.reserved_bytes = 0
        """Segments are never given back, so this is their peak too."""
        self._free: dict[bool, list[tuple[int, int, Block]]] = {True: [], False: []}
        self._used: dict[int, Block] = {}
        self._blocks = 0

    def replay(self, events: Iterable[Event]) -> int:
        """Bytes of all segments afterwards. A free of a number that was never allocated is passed over."""
        for number, size in events:
            if number > 0:
                self._allocate(number, size)
            else:
                self._release(-number)
        return self.reserved_bytes

    def _allocate(self, number: int, size: int) -> None:
        small = size <= SMALL
        waiting = self._free[small]
        place = bisect_left(waiting, (size, -1))
        if place < len(waiting):
            block = waiting.pop(place)[2]
        else:
            block = self._new(segment_bytes(size), small)
            self.reserved_bytes += block.size
        rest = block.size - size
        if rest >= SMALLEST_REST if small else rest > SMALL:
            self._split(block, size)
        block.free = False
        self._used[number] = block

    def _release(self, number: int) -> None:
        block = self._used.pop(number, None)
        if block is None:
            return
        if block.previous is not None and block.previous.free:
            self._take(block.previous)
            block.size += block.previous.size
            block.previous = block.previous.previous
        if block.next is not None and block.next.free:
            self._take(block.next)
            block.size += block.next.size
            block.next = block.next.next
        if block.previous is not None:
            block.previous.next = block
        if block.next is not None:
            block.next.previous = block
        self._put(block)

    def _new(self, size: int, small: bool) -> Block:
        self._blocks += 1
        return Block(size, self._blocks, small)

    def _split(self, block: Block, size: int) -> None:
        rest = self._new(block.size - size, block.small)
        rest.previous, rest.next = block, block.next
        if block.next is not None:
            block.next.previous = rest
        block.next, block.size = rest, size
        self._put(rest)

    def _put(self, block: Block) -> None:
        block.free = True
        insort(self._free[block.small], (block.size, block.number, block))

    def _take(self, block: Block) -> None:
        waiting = self._free[block.small]
        waiting.pop(bisect_left(waiting, (block.size, block.number)))


def segment_bytes(size: int) -> int:
    """What is asked of the driver for an allocation of `size` bytes that no free block holds."""
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < SMALLEST_OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-size // SEGMENT_ROUNDING) * SEGMENT_ROUNDING
