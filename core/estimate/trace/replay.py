"""The full trace: the whole model traced, and torch's allocator replayed over it, on the rows and in the shards of the run."""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median_low

from trainwiz.core.estimate.trace.ledger import OPTIMIZER, Event, Ledger
from trainwiz.core.estimate.trace.step import CannotTrace, rounding_of, trace_into
from trainwiz.core.tracing.request import Replay, TraceRequest, TraceResult

# CachingAllocator: what PyTorch's CUDA allocator reserves for a sequence of allocations and frees.
#
# The rules and sizes of c10/cuda/CUDACachingAllocator.cpp with its defaults: allocations up to 1 MiB
# come from segments of 2 MiB, those below 10 MiB from segments of 20 MiB, larger ones get their own
# segment, rounded up to 2 MiB. The smallest free block that is large enough is taken, and split when
# the rest is worth keeping; neighbours that are free are joined again. Segments are never given back.

MIB = 2**20
SMALL = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
SMALLEST_OWN_SEGMENT = 10 * MIB
SEGMENT_ROUNDING = 2 * MIB
SMALLEST_REST = 512


@dataclass(slots=True, eq=False)
class Block:
    size: int
    number: int
    small: bool
    free: bool = False
    previous: Block | None = None
    next: Block | None = None

    @property
    def is_segment(self) -> bool:
        return self.previous is None and self.next is None


class CachingAllocator:
    """Segments and blocks of one GPU. Sizes are in bytes and multiples of 512."""

    def __init__(self) -> None:
        self.reserved_bytes = 0
        """Segments are never given back, so this is their peak too."""
        self.held_bytes = 0
        """The most in segments that are in use: what torch cannot give back before it fails."""
        self._idle_bytes = 0
        """Of segments that are free as a whole."""
        self._free: dict[bool, list[tuple[int, int, Block]]] = {True: [], False: []}
        self._used: dict[int, Block] = {}
        self._blocks = 0

    def replay(self, events: Iterable[Event], offset: int = 0) -> int:
        """Bytes of all segments afterwards. A free of a number that was never allocated is passed over."""
        for number, size in events:
            if number > 0:
                self._allocate(number + offset, size)
            elif number < 0 and (block := self._used.pop(offset - number, None)) is not None:
                self._release(block)
        return self.reserved_bytes

    def _allocate(self, number: int, size: int) -> None:
        small = size <= SMALL
        waiting = self._free[small]
        place = bisect_left(waiting, (size, -1))
        if place < len(waiting):
            block = waiting[place][2]
            self._take(block, place)
        else:
            block = self._new(segment_bytes(size), small)
            self.reserved_bytes += block.size
        rest = block.size - size
        if rest >= SMALLEST_REST if small else rest > SMALL:
            block.size = size
            self._put(self._new(rest, small, block, block.next))
        block.free = False
        self._used[number] = block
        self.held_bytes = max(self.held_bytes, self.reserved_bytes - self._idle_bytes)

    def _release(self, block: Block) -> None:
        for neighbour in (block.previous, block.next):
            if neighbour is not None and neighbour.free:
                self._take(neighbour)
                block.size += neighbour.size
                _link(neighbour.previous, neighbour.next)
        self._put(block)

    def _new(self, size: int, small: bool, previous: Block | None = None, following: Block | None = None) -> Block:
        self._blocks += 1
        block = Block(size, self._blocks, small)
        _link(previous, block)
        _link(block, following)
        return block

    def _put(self, block: Block) -> None:
        block.free = True
        self._idle_bytes += block.size if block.is_segment else 0
        insort(self._free[block.small], (block.size, block.number, block))

    def _take(self, block: Block, place: int | None = None) -> None:
        self._idle_bytes -= block.size if block.is_segment else 0
        waiting = self._free[block.small]
        waiting.pop(bisect_left(waiting, (block.size, block.number)) if place is None else place)


def _link(previous: Block | None, following: Block | None) -> None:
    """Makes them neighbours in their segment; None is its end."""
    if previous is not None:
        previous.next = following
    if following is not None:
        following.previous = previous


def segment_bytes(size: int) -> int:
    """What is asked of the driver for an allocation of `size` bytes that no free block holds."""
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < SMALLEST_OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-size // SEGMENT_ROUNDING) * SEGMENT_ROUNDING


# Shards: what one process of several allocates, from the trace of one that holds all states.

STANDING = ("weights", "gradients", "optimizer")
"""Kinds that no length changes."""
SHARED_STATES = {"zero1": ("optimizer",), "zero2": ("gradients", "optimizer"), "zero3": STANDING, "fsdp": STANDING}
"""Strategy -> the kinds of which a process keeps its share."""
GATHERS = ("zero3", "fsdp")


class Process:
    """One process of a run in front of its allocator, which keeps blocks of the stream that communicates by themselves.

    Engines that share weights out gather those of a layer on that stream and copy them out when a pass comes to it (torch's
    fully_shard, DeepSpeed's fetch_sub_module), so that the weights of two layers are whole at a time, and embeddings and
    head are throughout. Gradients are whole until the next layer begins: then they go through a buffer of that stream,
    and the share stays.
    """

    def __init__(self, ledger: Ledger, request: TraceRequest) -> None:
        self.computes, self.communicates = CachingAllocator(), CachingAllocator()
        self.allocated_bytes = self.peak_bytes = 0
        self._kinds = ledger.kinds
        self._shards = request.world_size
        self._shared = SHARED_STATES.get(request.strategy, ())
        self._gathers = request.strategy in GATHERS
        self._steps = False
        self._number = 1 << 60
        self._there: dict[int, tuple[CachingAllocator, int]] = {}
        """Where each block is, and its bytes."""
        self._gathered: list[int] = []
        self._whole: dict[int, None] = {}
        """Gradients that were not reduced yet, in their order."""
        if self._gathers:
            built = (event for event in ledger.events[: ledger.built] if ledger.kinds.get(event[0]) == "weights")
            self._take(self.computes, sum(size for _, size in built) - ledger.weights_of_layers)

    def replay(self, events: Iterable[Event], offset: int = 0) -> None:
        """`offset` is added to the numbers of blocks."""
        if not self._shared:
            self.computes.replay(events, offset)
            return
        passes = False
        for number, size in events:
            kind = self._kinds.get(number, "temporary")
            if number == 0:
                passes = True
                self._next_part(size)
            elif number < 0:
                self._whole.pop(offset - number, None)
                self._give(offset - number)
            elif kind == "gradients" and kind in self._shared and passes:
                self._whole[number + offset] = None
                self._take(self.computes, size, number + offset)
            else:
                shards = self._shards if self._steps or kind in self._shared else 1
                self._take(self.computes, -(-size // shards), number + offset)

    def _next_part(self, size: int) -> None:
        """The gradients of the part before are reduced, the weights of a layer of `size` bytes gathered."""
        self._steps = size == OPTIMIZER
        before, self._gathered = self._gathered, []
        if self._whole:
            sizes = {number: self._there[number][1] for number in self._whole}
            self._gathered.append(self._take(self.communicates, sum(sizes.values())))
            for number, whole in sizes.items():
                self._give(number)
                self._take(self.computes, -(-whole // self._shards), number)
            self._whole.clear()
        if self._gathers and size > 0:
            self._gathered += [self._take(stream, size) for stream in (self.communicates, self.computes)]
        for number in before:
            self._give(number)

    def _take(self, stream: CachingAllocator, size: int, number: int = 0) -> int:
        """The number of the block: a new one where none is given."""
        if not number:
            self._number += 1
            number = self._number
        size = -(-size // SMALLEST_REST) * SMALLEST_REST
        if size > 0:
            stream.replay([(number, size)])
            self._there[number] = stream, size
            self.allocated_bytes += size
            self.peak_bytes = max(self.peak_bytes, self.allocated_bytes)
        return number

    def _give(self, number: int) -> None:
        stream, size = self._there.pop(number, (self.computes, 0))
        stream.replay([(-number, size)])
        self.allocated_bytes -= size

    @property
    def reserved_bytes(self) -> int:
        return self.computes.reserved_bytes + self.communicates.reserved_bytes

    @property
    def held_bytes(self) -> int:
        return self.computes.held_bytes + self.communicates.held_bytes


# Lengths: steps on rows of the lengths that the run has, in orders that chance may bring.

DRAWS = 128
"""Steps of an order. What is reserved grows where a step is longer than all before it, hardly otherwise, and these few are
replayed: over 30 orders of three models the others added nothing to reserved memory and at most 4 % to what is held."""
ORDERS = 6
MOST_EVENTS = 200_000
"""Replayed in all orders: half a second."""
MULTIPLE = 8
"""Lengths are rounded up to it, as data.pad_to_multiple_of mostly is."""
SHORTER = 5 / 8
"""Of the lengths: what a second trace tells the blocks by that grow with them. No sizes of a model are in this proportion."""
NEAR = 0.01
STEP_OFFSET = 1 << 40


def trace_full(request: TraceRequest) -> TraceResult:
    """The whole model, with the allocator replayed. Raises CannotTrace."""
    ledger = Ledger(rounding_of(request))
    result = trace_into(ledger, request)
    if request.device != "cuda":
        return result
    fullest = max(moment.bytes for moment in (*result.training, *result.evaluation))
    return replace(result, replay=replay_of(ledger, request, fullest))


def replay_of(ledger: Ledger, request: TraceRequest, fullest: int) -> Replay:
    """What the allocator reserves: on rows of one length, and where they are of several in each of the orders.

    `fullest` is the most that the trace has allocated.
    """
    orders = orders_of(request, len(ledger.events[ledger.stated : ledger.stepped]))
    powers = _powers(ledger, request) if orders else {}
    alone, *varied = (_replayed(ledger, request, order, powers) for order in ([request.length], *orders))
    sizes = [process.reserved_bytes for process in varied] or [alone.reserved_bytes]
    return Replay(
        allocated=alone.peak_bytes or fullest,
        low=min(alone.reserved_bytes, *sizes),
        likely=median_low(sizes),
        high=max(alone.reserved_bytes, *sizes),
        held=max(process.held_bytes for process in (alone, *varied)),
    )


def orders_of(request: TraceRequest, events: int) -> list[list[int]]:
    """Of each order the steps that are longer than all before them, the longest one last; none for rows of one length."""
    if len(set(request.lengths)) < 2 or request.length < MULTIPLE / (1 - SHORTER):
        return []
    orders: list[list[int]] = []
    for seed in range(ORDERS):
        chance, order = random.Random(seed), [0]
        for _ in range(DRAWS):
            length = -(-round(_drawn(request.lengths, chance.random())) // MULTIPLE) * MULTIPLE
            if order[-1] < length < request.length:
                order.append(length)
        orders.append([*order[1:], request.length])
    longest = max(map(len, orders))
    return orders[: max(2, MOST_EVENTS // max(1, events * longest))]


def _drawn(quantiles: Sequence[int], share: float) -> float:
    place, rest = divmod(share * (len(quantiles) - 1), 1)
    low, high = quantiles[int(place)], quantiles[min(int(place) + 1, len(quantiles) - 1)]
    return low + rest * (high - low)


def _replayed(ledger: Ledger, request: TraceRequest, order: Sequence[int], powers: dict[int, int]) -> Process:
    """The first step is done before states exist: the segments that it leaves are cut up by what comes after."""
    process = Process(ledger, request)
    step = ledger.events[ledger.stated : ledger.stepped]
    process.replay(ledger.events[: ledger.built])
    for place, length in enumerate(order[:-1] or order):
        process.replay(_at(step, length / request.length, powers), STEP_OFFSET * (place + 1))
        if place == 0:
            process.replay(ledger.events[ledger.built : ledger.stated])
    process.replay(ledger.events[ledger.stated :])
    return process


def _at(step: Sequence[Event], share: float, powers: dict[int, int]) -> Iterable[Event]:
    if share == 1:
        return step
    sizes = {size: max(1, round(size * share**power / SMALLEST_REST)) * SMALLEST_REST for size, power in powers.items()}
    return ((number, sizes.get(size, size)) for number, size in step)


def _powers(ledger: Ledger, request: TraceRequest) -> dict[int, int]:
    """Size of a block of the step -> with which power of the length it grows, of those that do.

    Told by a step on shorter rows. Sizes that weights have as well are left alone.
    """
    lengths = {name: round(getattr(request, name) * SHORTER) for name in ("length", "target_length")}
    shorter = replace(request, **lengths, eval_micro_batch=0)
    other = Ledger(rounding_of(request))
    try:
        trace_into(other, shorter)
    except CannotTrace:
        return {}
    there = sorted(set(_changing(other)))

    def is_there(size: float) -> bool:
        place = bisect_left(there, size * (1 - NEAR))
        return place < len(there) and there[place] <= size * (1 + NEAR)

    fixed, powers = set(there), {}
    for size in set(_changing(ledger)) - fixed:
        power = next((power for power in (1, 2) if is_there(size * SHORTER**power)), 0)
        if power:
            powers[size] = power
    return powers


def _changing(ledger: Ledger) -> Iterator[int]:
    """Sizes above the rounding of what comes and goes in a step."""
    for number, size in ledger.events[ledger.stated : ledger.stepped]:
        if number > 0 and size > SMALLEST_REST and ledger.kinds.get(number) not in STANDING:
            yield size
