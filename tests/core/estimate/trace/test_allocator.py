"""The replay of PyTorch's caching allocator, against its rules worked out by hand."""

import random

from trainwiz.core.estimate.trace.ledger import MIB, CachingAllocator, segment_bytes

from tests.each import each


@each(
    ("size", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB),
        (100 * MIB + 512, 102 * MIB),
    ],
)
def test_the_segment_of_one_allocation(size: int, segment: int) -> None:
    assert segment_bytes(size) == segment
    assert CachingAllocator().replay([(1, size)]) == segment


def test_small_allocations_share_a_segment() -> None:
    assert CachingAllocator().replay([(number, MIB // 2) for number in range(1, 5)]) == 2 * MIB
    assert CachingAllocator().replay([(number, MIB // 2) for number in range(1, 6)]) == 4 * MIB


def test_what_is_freed_is_used_again() -> None:
    assert CachingAllocator().replay([(1, 64 * MIB), (-1, 64 * MIB), (2, 60 * MIB), (3, 4 * MIB)]) == 64 * MIB


def test_a_rest_of_a_large_block_is_kept_only_above_one_mebibyte() -> None:
    # 64 - 63 leaves a rest that is not worth keeping, so that the next allocation opens a segment.
    assert CachingAllocator().replay([(1, 64 * MIB), (-1, 64 * MIB), (2, 63 * MIB), (3, 512)]) == 64 * MIB + 2 * MIB
    assert CachingAllocator().replay([(1, 64 * MIB), (-1, 64 * MIB), (2, 63 * MIB), (3, 3 * MIB)]) == 84 * MIB


def test_the_smallest_free_block_that_is_large_enough_is_taken() -> None:
    events = [(1, 64 * MIB), (2, 32 * MIB), (-1, 64 * MIB), (-2, 32 * MIB), (3, 30 * MIB), (4, 64 * MIB)]
    assert CachingAllocator().replay(events) == 96 * MIB


def test_free_neighbours_are_joined() -> None:
    parts = [(1, 64 * MIB), (-1, 64 * MIB), (2, 32 * MIB), (3, 32 * MIB), (-2, 32 * MIB), (-3, 32 * MIB)]
    assert CachingAllocator().replay([*parts, (4, 64 * MIB)]) == 64 * MIB
    assert CachingAllocator().replay([*parts[:-1], (4, 64 * MIB)]) == 128 * MIB


def test_fragments_cost_a_segment() -> None:
    kept = [(1, 60 * MIB), (-1, 60 * MIB), (2, 20 * MIB), (3, 20 * MIB), (4, 20 * MIB), (-2, 20 * MIB), (-4, 20 * MIB)]
    assert CachingAllocator().replay([*kept, (5, 40 * MIB)]) == 100 * MIB


def test_any_order_of_events_keeps_at_least_what_is_used() -> None:
    chance = random.Random(3)
    for _ in range(20):
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
        emptied = [*events, *((-number, size) for number, size in alive.items())]
        allocator = CachingAllocator()
        allocator.replay(emptied)
        # Everything was given back, so each segment is one free block again.
        assert sum(size for waiting in allocator._free.values() for size, _, _ in waiting) == allocator.reserved_bytes
