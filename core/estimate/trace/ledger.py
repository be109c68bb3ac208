"""Which storages are alive, phase by phase."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from trainwiz.core.estimate.workload import KINDS, Moment
from trainwiz.core.language import mark
from transformers.modeling_layers import GradientCheckpointingLayer

FORWARD = mark("the forward pass")
FORWARD_END = mark("the end of the forward pass")
LOSS = mark("the loss")
LOSS_BACKWARD = mark("the start of the backward pass")
BACKWARD_END = mark("the end of the backward pass")
CLIPPING = mark("gradient clipping")
STEP = mark("the optimizer step")
EVALUATION = mark("an evaluation")
EVALUATION_END = mark("the logits of an evaluation")

LAST_LAYER = mark("the backward pass of the last layer")
FIRST_LAYER = mark("the backward pass of the first layer")
OTHER_LAYERS = mark("the backward pass of the other layers")


def backward_phase(place: int, layers: int) -> str:
    """Layers in between are one phase: the fullest of them says enough."""
    if place == layers - 1:
        return LAST_LAYER
    return OTHER_LAYERS if place else FIRST_LAYER


def layer_stacks(model: nn.Module) -> list[list[nn.Module]]:
    """The layers of each stack, in the order in which they run."""
    found: dict[str, list[nn.Module]] = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) and not any(path.startswith(f"{p}.") for p in found):
            layers = list(module)
            if all(isinstance(layer, GradientCheckpointingLayer) for layer in layers):
                found[path] = layers
    return list(found.values())


def weight_bytes(module: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in module.parameters())


@contextmanager
def marked(
    model: nn.Module, enter: Callable[[str], None], come_to: Callable[[int], None] = lambda size: None
) -> Iterator[None]:
    """Hooks on the layers of a model; `enter` is called with the phase that begins, `come_to` with the bytes of the weights
    of each layer that a pass comes to.

    The hooks are on the tensors between the layers, which adds nothing to what the graph keeps.
    """

    def when_it_comes_back(hidden: Any, phase: str, size: int = 0) -> None:
        def came(gradient: Any) -> None:
            enter(phase)
            come_to(size)

        if isinstance(hidden, torch.Tensor) and hidden.requires_grad and torch.is_grad_enabled():
            hidden.register_hook(came)  # type: ignore[no-untyped-call]

    def before_first(module: nn.Module, args: Any, kwargs: Any) -> None:
        when_it_comes_back(args[0] if args else kwargs.get("hidden_states"), BACKWARD_END)

    def after_layer(phase: str, ends: bool, size: int) -> Callable[..., None]:
        def after(module: nn.Module, args: Any, output: Any) -> None:
            when_it_comes_back(output[0] if isinstance(output, tuple | list) else output, phase, size)
            if ends:
                enter(FORWARD_END)

        return after

    with ExitStack() as hooks:
        stacks = layer_stacks(model)
        for layers in stacks:
            hooks.callback(layers[0].register_forward_pre_hook(before_first, with_kwargs=True).remove)
            for place, layer in enumerate(layers):
                ends = layers is stacks[-1] and place == len(layers) - 1
                size = weight_bytes(layer)
                hook = after_layer(backward_phase(place, len(layers)), ends, size)
                hooks.callback(layer.register_forward_hook(hook).remove)
                hooks.callback(layer.register_forward_pre_hook(lambda module, args, size=size: come_to(size)).remove)
        yield


Event = tuple[int, int]
"""(number of the block, bytes): allocated where the number is positive, freed where it is negative. Of number 0 is what tells
that the next layer begins, with the bytes of its weights, or another part of the step, with 0 or OPTIMIZER."""
OPTIMIZER = -1
"""All that comes is of gradients and optimizer states."""


@dataclass(slots=True)
class Entry:
    number: int
    bytes: int
    watcher: weakref.ref[Any]


class Ledger:
    """Counts storages from their first appearance until nothing holds them.

    `rounding`: sizes are rounded up to a multiple of it, as the device's allocator does (bytes).
    """

    def __init__(self, rounding: int) -> None:
        self.total = 0
        self.by_kind = dict.fromkeys(KINDS, 0)
        self.events: list[Event] = []
        """All allocations and frees, for the allocator."""
        self.kinds: dict[int, str] = {}
        """Of each block by its number."""
        self.weights_of_layers = 0
        """Bytes, of all of them."""
        self.built = self.stated = self.stepped = 0
        """Events until the weights were there, the optimizer's states, and the end of a step."""
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
        self.events.append((0, OPTIMIZER if phase in (CLIPPING, STEP) else 0))

    def layer(self, bytes_of_weights: int) -> None:
        self.events.append((0, bytes_of_weights))

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
        self._live[key] = Entry(number, size, watcher)
        self.kinds[number] = kind
        self.events.append((number, size))
        self._grow(size, kind)

    def transient(self, sizes: Sequence[int]) -> None:
        """Working memory (bytes) that a kernel takes and gives back before it returns."""
        blocks = [(self._count + place, self.rounded(size)) for place, size in enumerate(sizes, 1)]
        self._count += len(blocks)
        self.events += [*blocks, *((-number, size) for number, size in blocks)]
        total = sum(size for _, size in blocks)
        self._grow(total, "temporary")
        self._grow(-total, "temporary")

    def mark(self, tensor: torch.Tensor | None, kind: str) -> None:
        """`tensor` is of another kind than it seemed when it was made."""
        entry = None if tensor is None else self._entry(tensor)
        if entry is not None:
            self.by_kind[self.kinds[entry.number]] -= entry.bytes
            self.by_kind[kind] += entry.bytes
            self.kinds[entry.number] = kind

    def kind_of(self, tensor: torch.Tensor) -> str | None:
        entry = self._entry(tensor)
        return None if entry is None else self.kinds[entry.number]

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
        self.by_kind[self.kinds[number]] -= entry.bytes
        self.events.append((-number, entry.bytes))


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """None for a tensor without one (sparse)."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
