"""The replay of PyTorch's caching allocator, against its rules worked out by hand."""

import random

from trainwiz.core.estimate.trace.replay import MIB, CachingAllocator, segment_bytes

from tests.each import each


@each(
    ("size", "segment"),
    [
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (11 * MIB, 12 * MIB),
    ],
)
def test_the_segment_of_one_allocation(size: int, segment: int) -> None:
    assert segment_bytes(size) == segment
    assert CachingAllocator().replay([(1, size)]) == segment


def replayed(*sizes: float) -> int:
    """MiB reserved after these events: a size in MiB is the next allocation, a negative number gives that one back."""
    events, made = [], list[int]()
    for one in sizes:
        if one < 0:
            events.append((int(one), made[-int(one) - 1]))
        else:
            made.append(int(one * MIB))
            events.append((len(made), made[-1]))
    return CachingAllocator().replay(events) // MIB


@each(
    ("events", "reserved"),
    [
        # Small ones share a segment.
        ([0.5] * 5, 4),
        # What is freed is used again; of a large block a rest is kept only above one MiB.
        ([64, -1, 60, 4], 64),
        ([64, -1, 63, 512 / MIB], 64 + 2),
        ([64, -1, 63, 3], 84),
        # The smallest free block that is large enough is taken.
        ([64, 32, -1, -2, 30, 64], 96),
        # Free neighbours are joined.
        ([64, -1, 32, 32, -2, -3, 64], 64),
        ([64, -1, 32, 32, -2, 64], 128),
        # Fragments cost a segment.
        ([60, -1, 20, 20, 20, -2, -4, 40], 100),
    ],
)
def test_blocks_and_segments(events: list[float], reserved: int) -> None:
    assert replayed(*events) == reserved


def test_any_order_of_events_keeps_at_least_what_is_used() -> None:
    chance = random.Random(3)
    for _ in range(8):
        alive: dict[int, int] = {}
        events, used, most = [], 0, 0
        for number in range(1, 400):
            if alive and chance.random() < 0.48:
                gone = chance.choice(list(alive))
                used -= alive[gone]
                events.append((-gone, alive.pop(gone)))
            size = 512 * chance.randrange(1, chance.choice((8, 4_000, 80_000)))
            events.append((number, size))
            alive[number] = size
            used += size
            most = max(most, used)
        reserved = CachingAllocator().replay(events)
        assert most <= reserved < 3 * most
        # Where everything is given back, each segment is one free block again.
        allocator = CachingAllocator()
        allocator.replay([*events, *((-number, size) for number, size in alive.items())])
        assert sum(size for waiting in allocator._free.values() for size, _, _ in waiting) == allocator.reserved_bytes
