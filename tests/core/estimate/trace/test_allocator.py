"""The replay of PyTorch's caching allocator, against its rules worked out by hand."""

import random
from dataclasses import replace

import pytest
from trainwiz.core.estimate.trace import replay as replays
from trainwiz.core.estimate.trace.ledger import OPTIMIZER, Ledger
from trainwiz.core.estimate.trace.replay import MIB, CachingAllocator, orders_of, replay_of
from trainwiz.core.estimate.trace.step import trace_into
from trainwiz.core.tracing.request import TraceRequest

from tests.core.estimate.trace.requests import GPT2, LLAMA, request
from tests.each import each


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


@each(("events", "reserved"), [
    ([1], 2),
    ([1 + 512 / MIB], 20),
    ([10 - 512 / MIB], 20),
    ([11], 12),
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
])  # fmt: skip
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


def test_free_segments_are_not_in_use() -> None:
    allocator = CachingAllocator()
    assert allocator.replay([(1, 64 * MIB), (-1, 64 * MIB), (2, 80 * MIB)]) == 144 * MIB
    assert allocator.held_bytes == 80 * MIB, "torch gives the first one back before it fails"
    allocator.replay([(3, 32 * MIB), (4, 32 * MIB)])
    assert allocator.held_bytes == 144 * MIB, "one block holds its whole segment"


WEIGHTS, GRADIENT, STATES = 96 * MIB, 96 * MIB, 192 * MIB


def recorded(*, asked: TraceRequest) -> Ledger:
    """Two layers of 48 MiB: a forward pass that keeps a block of each, a backward pass, an optimizer step."""
    ledger = Ledger(512)
    ledger.weights_of_layers = WEIGHTS
    kept = asked.micro_batch * asked.length * 4096

    def add(*events: tuple[int, int, str]) -> None:
        for number, size, kind in events:
            ledger.events.append((number, size))
            ledger.kinds[abs(number)] = kind

    add((1, WEIGHTS // 2, "weights"), (2, WEIGHTS // 2, "weights"))
    ledger.built = len(ledger.events)
    add((3, STATES, "optimizer"))
    ledger.stated = len(ledger.events)
    for layer in (10, 11):
        ledger.layer(WEIGHTS // 2)
        add((layer, kept, "activations"), (layer + 10, 3 * kept, "activations"), (-layer - 10, 3 * kept, "activations"))
    for layer in (11, 10):
        ledger.layer(WEIGHTS // 2)
        add((layer + 20, GRADIENT // 2, "gradients"), (-layer, kept, "activations"))
    ledger.events.append((0, OPTIMIZER))
    add((40, WEIGHTS, "temporary"), (-40, WEIGHTS, "temporary"))
    add((-31, GRADIENT // 2, "gradients"), (-30, GRADIENT // 2, "gradients"))
    ledger.stepped = len(ledger.events)
    return ledger


ASKED = request(LLAMA, micro_batch=4, length=2048)


def test_rows_of_several_lengths_reserve_more_than_the_longest_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step that is longer than all before leaves blocks that the next longer one does not fit into."""
    kept = ASKED.micro_batch * ASKED.length * 4096
    monkeypatch.setattr(replays, "_powers", lambda ledger, asked: {kept: 1, 3 * kept: 1})
    varied = replace(ASKED, lengths=(256, 512, 768, 1024, 1280, 1536, 1792, 1920, 2048))
    alone, several = (replay_of(recorded(asked=one), one, 0) for one in (ASKED, varied))
    assert alone.low == alone.likely == alone.high
    assert several.low == alone.low and several.high > 1.1 * alone.high
    assert alone.held <= several.held < several.high, "free blocks of short steps are given back"
    orders = orders_of(varied, 100)
    assert orders == orders_of(varied, 100), "the same each time"
    assert all(order == sorted(set(order)) and order[-1] == 2048 for order in orders)
    assert orders_of(replace(ASKED, lengths=(2048, 2048)), 100) == []


def test_a_process_that_keeps_a_share_reserves_less_than_the_whole_and_more_than_the_share() -> None:
    whole = replay_of(recorded(asked=ASKED), ASKED, 0)
    for strategy, standing in (("fsdp", (WEIGHTS + STATES) // 4), ("zero2", WEIGHTS + STATES // 4)):
        shared = replace(ASKED, strategy=strategy, world_size=4)
        part = replay_of(recorded(asked=shared), shared, 0)
        kept = 2 * ASKED.micro_batch * ASKED.length * 4096
        assert standing + kept < part.allocated <= part.likely < whole.likely
    # Each pass comes to each layer.
    assert sum(size for number, size in recorded(asked=ASKED).events if number == 0 and size > 0) == 2 * WEIGHTS


def test_blocks_that_grow_with_the_rows_are_told_from_those_that_do_not() -> None:
    """By a second trace on shorter rows: logits grow, gradients and copies of weights do not."""
    asked = request({**GPT2, "n_layer": 4}, length=200, lengths=(40, 200), attention="eager")
    ledger = Ledger(512)
    trace_into(ledger, asked)
    powers = replays._powers(ledger, asked)
    logits, scores = 4 * 200 * 2000 * 4, 4 * 8 * 200 * 200 * 4
    assert (powers[logits], powers[scores]) == (1, 2)
    assert not powers.keys() & {256 * 256 * 4, 256 * 2000 * 4, 256 * 2000 * 2}
    events = ledger.events[ledger.stated : ledger.stepped]
    changing = {size for number, size in events if number > 0 and size >= 4 * 200 * 256 * 2}
    assert len(changing - powers.keys()) <= len(changing) / 2
    replay = replay_of(ledger, asked, 0)
    assert replay.low <= replay.likely <= replay.high and replay.held <= replay.high
