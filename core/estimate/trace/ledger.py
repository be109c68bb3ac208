"""Which storages are alive and what the allocator reserves for them, phase by phase."""

from __future__ import annotations

import weakref
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from trainwiz.core.estimate.workload import KINDS, Moment
from trainwiz.core.language import mark
from transformers.modeling_layers import GradientCheckpointingLayer

# Marks: which part of the model a step is at, told to the ledger as phases.

FORWARD = mark("the forward pass")
FORWARD_END = mark("the end of the forward pass")
LOSS = mark("the loss")
LOSS_BACKWARD = mark("the start of the backward pass")
BACKWARD_END = mark("the end of the backward pass")
CLIPPING = mark("clipping the gradients")
STEP = mark("the optimizer step")

BACKWARD = {
    "": (
        mark("the backward pass of the last layer"),
        mark("the backward pass of the first layer"),
        mark("the backward pass of the other layers"),
    ),
    "encoder": (
        mark("the backward pass of the encoder's last layer"),
        mark("the backward pass of the encoder's first layer"),
        mark("the backward pass of the encoder's other layers"),
    ),
    "decoder": (
        mark("the backward pass of the decoder's last layer"),
        mark("the backward pass of the decoder's first layer"),
        mark("the backward pass of the decoder's other layers"),
    ),
}
"""Stack -> its last layer, the first, those in between."""


def backward_phase(stack: str, place: int, layers: int) -> str:
    """Layers in between are one phase, so that the phases are the same for any depth."""
    return BACKWARD[stack][0 if place == layers - 1 else 1 if place == 0 else 2]


def layer_stacks(model: nn.Module) -> list[tuple[str, list[nn.Module]]]:
    """(name, layers) of each stack, in the order in which they run; the name is "" where there is one stack."""
    found: list[tuple[str, list[nn.Module]]] = []
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) and not any(path.startswith(f"{p}.") for p, _ in found):
            layers = list(module)
            if all(isinstance(layer, GradientCheckpointingLayer) for layer in layers):
                found.append((path, layers))
    if len(found) < 2:
        return [("", layers) for _, layers in found]
    return [("decoder" if "decoder" in path else "encoder", layers) for path, layers in found]


@contextmanager
def marked(model: nn.Module, enter: Callable[[str], None]) -> Iterator[None]:
    """Hooks on the layers of a model; `enter` is called with the phase that begins.

    The hooks are on the tensors between the layers, which adds nothing to what the graph keeps.
    """

    def when_it_comes_back(hidden: Any, phase: str) -> None:
        if isinstance(hidden, torch.Tensor) and hidden.requires_grad and torch.is_grad_enabled():
            hidden.register_hook(lambda gradient: enter(phase))  # type: ignore[no-untyped-call]

    def before_first(module: nn.Module, args: Any, kwargs: Any) -> None:
        when_it_comes_back(args[0] if args else kwargs.get("hidden_states"), BACKWARD_END)

    def after_layer(phase: str, ends: bool) -> Callable[..., None]:
        def after(module: nn.Module, args: Any, output: Any) -> None:
            when_it_comes_back(output[0] if isinstance(output, tuple | list) else output, phase)
            if ends:
                enter(FORWARD_END)

        return after

    with ExitStack() as hooks:
        stacks = layer_stacks(model)
        for name, layers in stacks:
            hooks.callback(layers[0].register_forward_pre_hook(before_first, with_kwargs=True).remove)
            for place, layer in enumerate(layers):
                ends = layers is stacks[-1][1] and place == len(layers) - 1
                hook = after_layer(backward_phase(name, place, len(layers)), ends)
                hooks.callback(layer.register_forward_hook(hook).remove)
        yield


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

Event = tuple[int, int]
"""(number of the block, bytes): allocated where the number is positive, freed where it is negative."""


@dataclass(slots=True, eq=False)
class Block:
    """A part of a segment."""

    size: int
    number: int
    small: bool
    free: bool = False
    previous: Block | None = None
    next: Block | None = None


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


# Ledger: which storages are alive, what they are, and how full each phase was.


@dataclass(slots=True)
class Entry:
    """One storage that is alive."""

    number: int
    bytes: int
    kind: str
    watcher: weakref.ref[Any]


class Ledger:
    """Counts storages from their first appearance until nothing holds them.

    `rounding`: sizes are rounded up to a multiple of it, as the device's allocator does (bytes).
    """

    def __init__(self, rounding: int, *, replayed: bool = True) -> None:
        self.replayed = replayed
        """Whether the allocator is replayed over the events."""
        self.total = 0
        self.by_kind = dict.fromkeys(KINDS, 0)
        self.events: list[Event] = []
        """All allocations and frees, for the allocator."""
        self.fullest: dict[str, dict[str, int]] = {}
        """Bytes by kind at the fullest point of each phase, in the order of their beginning."""
        self.phase = ""
        self._peak = 0
        self._rounding = rounding
        self._live: dict[int, Entry] = {}
        self._count = 0

    def enter(self, phase: str) -> None:
        """What follows belongs to `phase`. Without a name, nothing is noted."""
        self.phase = phase
        self._peak = sum(self.fullest.get(phase, {}).values())
        self._note()

    def pass_over(self, since: int) -> None:
        """What came and went after the first `since` events is not for the allocator; what stays is."""
        later = self.events[since:]
        came = {number for number, _ in later if number > 0}
        passing = {-number for number, _ in later if -number in came}
        self.events[since:] = [event for event in later if abs(event[0]) not in passing]

    def forget_phases(self) -> None:
        self.fullest.clear()
        self._peak = 0

    def add(self, tensor: torch.Tensor, kind: str) -> None:
        """Count the storage of `tensor`, unless it is counted already."""
        storage = _storage(tensor)
        if storage is None or (key := storage._cdata) in self._live or not (size := self.rounded(storage.nbytes())):
            return
        self._count += 1
        number = self._count
        watcher = weakref.ref(storage, lambda _: self._gone(key, number))
        self._live[key] = Entry(number, size, kind, watcher)
        self.events.append((number, size))
        self._grow(size, kind)

    def transient(self, sizes: list[int]) -> None:
        """Working memory (bytes) that a kernel takes and gives back before it returns."""
        blocks = [(number, self.rounded(size)) for number, size in enumerate(sizes, self._count + 1)]
        self._count += len(blocks)
        self.events.extend(blocks)
        total = sum(size for _, size in blocks)
        self._grow(total, "temporary")
        self._grow(-total, "temporary")
        self.events.extend((-number, size) for number, size in blocks)

    def mark(self, tensor: torch.Tensor | None, kind: str) -> None:
        """`tensor` is of another kind than it seemed when it was made."""
        entry = None if tensor is None else self._entry(tensor)
        if entry is not None and entry.kind != kind:
            self.by_kind[entry.kind] -= entry.bytes
            self.by_kind[kind] += entry.bytes
            entry.kind = kind

    def kind_of(self, tensor: torch.Tensor) -> str | None:
        entry = self._entry(tensor)
        return None if entry is None else entry.kind

    def _entry(self, tensor: torch.Tensor) -> Entry | None:
        storage = _storage(tensor)
        return None if storage is None else self._live.get(storage._cdata)

    def moments(self) -> tuple[Moment, ...]:
        return tuple(Moment(phase, dict(parts)) for phase, parts in self.fullest.items() if phase)

    def rounded(self, size: int) -> int:
        return -(-size // self._rounding) * self._rounding

    def _grow(self, size: int, kind: str) -> None:
        self.total += size
        self.by_kind[kind] += size
        if self.total > self._peak:
            self._note()

    def _note(self) -> None:
        if self.total > self._peak:
            self._peak = self.total
            self.fullest[self.phase] = dict(self.by_kind)

    def _gone(self, key: int, number: int) -> None:
        entry = self._live.get(key)
        if entry is None or entry.number != number:
            return
        del self._live[key]
        self.total -= entry.bytes
        self.by_kind[entry.kind] -= entry.bytes
        self.events.append((-number, entry.bytes))


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """None for a tensor without one (sparse)."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
