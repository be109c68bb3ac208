"""Which storages are alive, phase by phase; and how the peaks of a step's parts grow with the depth of a model."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
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
PROMPTS = mark("processing the prompts in an evaluation")
GENERATION = mark("generating text in an evaluation")

BACKWARDS = {
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
    return BACKWARDS[stack][0 if place == layers - 1 else 1 if place == 0 else 2]


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
        for name, layers in stacks:
            hooks.callback(layers[0].register_forward_pre_hook(before_first, with_kwargs=True).remove)
            for place, layer in enumerate(layers):
                ends = layers is stacks[-1][1] and place == len(layers) - 1
                size = weight_bytes(layer)
                hook = after_layer(backward_phase(name, place, len(layers)), ends, size)
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
    kind: str
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
        """Of each block by its number, for the allocator."""
        self.units: list[int] = []
        """Bytes of the weights of each layer."""
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
        self.kinds[number] = kind
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
            entry.kind = self.kinds[entry.number] = kind

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


# Growth: the peaks of a step's parts, in a form that can be followed from one depth of a model to another.

FORWARDS = (FORWARD, EVALUATION, PROMPTS, GENERATION)
"""Phases that go through all layers, forward."""
BACKWARD = "backward"
AFTER = -1
"""In place of a layer's number: after the last one."""

Point = tuple[int, ...]
"""Bytes of each of KINDS."""
Place = tuple[str, str, int]
"""A forward phase or BACKWARD, stack and number of the layer; a phase, "" and AFTER outside of the layers."""


@dataclass(slots=True)
class Part:
    """The local peaks of one layer, or of a phase without layers, in order."""

    phase: str
    points: list[Point] = field(default_factory=list)


Parts = dict[Place, Part]


class PeaksLedger(Ledger):
    """Keeps every local peak of every part of a step.

    What is fullest in a phase may be its beginning in a shallow model and its end in a deep one. A
    single layer has the same peaks at any depth, so each is extrapolated separately.
    """

    def __init__(self, rounding: int) -> None:
        super().__init__(rounding)
        self.depths: dict[str, int] = {}
        """Layers of each stack of the model."""
        self.sections: list[Parts] = []
        """What was kept up to each time that the phases were forgotten."""
        self._parts: Parts = {}
        self._place: Place | None = None
        self._backward: dict[str, Iterator[Place]] = {}
        self._grew = False

    def watch(self, model: nn.Module) -> None:
        """Be told which layer a pass is at. `depths` stays empty where the model's layers are not found."""
        for name, layers in layer_stacks(model):
            self.depths[name] = len(layers)
            for number, layer in enumerate(layers):
                layer.register_forward_pre_hook(self._forward_hook(name, number))
            layers[-1].register_forward_hook(self._forward_hook(name, AFTER))
            # The backward pass enters the phase of each layer once, the last one's first.
            downwards = iter([(BACKWARD, name, number) for number in reversed(range(len(layers)))])
            for number in range(len(layers)):
                self._backward[backward_phase(name, number, len(layers))] = downwards

    def enter(self, phase: str) -> None:
        place = next(self._backward[phase], None) if phase in self._backward else None
        self._enter_place(place or (phase, "", AFTER), phase)

    def forget_phases(self) -> None:
        self.sections.append(self.take())
        super().forget_phases()

    def take(self) -> Parts:
        self._keep()
        taken, self._parts = self._parts, {}
        return taken

    def _forward_hook(self, stack: str, number: int) -> Any:
        def enter(*_: Any) -> None:
            # Recomputing in the backward pass is a part of that.
            if self.phase in FORWARDS:
                self._enter_place((self.phase, stack, number), self.phase)

        return enter

    def _enter_place(self, place: Place, phase: str) -> None:
        self._keep()
        super().enter(phase)
        self._place = place if phase else None
        self._grew = True

    def _grow(self, size: int, kind: str) -> None:
        if size < 0:
            self._keep()
        super()._grow(size, kind)
        self._grew = size > 0

    def _gone(self, key: int, number: int) -> None:
        self._keep()
        super()._gone(key, number)

    def _keep(self) -> None:
        if self._grew and self._place is not None:
            part = self._parts.setdefault(self._place, Part(self.phase))
            part.points.append(tuple(self.by_kind[kind] for kind in KINDS))
        self._grew = False


@dataclass(frozen=True, slots=True)
class Growth:
    """How two depths of a model stand for its own, which is the first and `times` what the second has more.

    The layers in between are no fuller than the first and the last pattern, and are left out unless they are fullest.
    """

    first: Mapping[str, int]
    """Layers of each stack."""
    second: Mapping[str, int]
    periods: Mapping[str, int]
    """Layers after which the pattern of a stack comes again."""
    times: int

    def moments(self, first: Parts, second: Parts) -> tuple[Moment, ...]:
        fullest: dict[str, Point] = {}
        for place, part in first.items():
            for phase, point in (*self._from_start(place, part, second), *self._from_end(place, first, second)):
                if sum(point) > sum(fullest.get(phase, ())):
                    fullest[phase] = point
        order = dict.fromkeys(part.phase for part in second.values())
        return tuple(
            Moment(phase, dict(zip(KINDS, fullest[phase], strict=True))) for phase in order if phase in fullest
        )

    def _from_start(self, place: Place, part: Part, second: Parts) -> Iterator[tuple[str, Point]]:
        """Of a part that no layer precedes, or as many at any depth."""
        other = second.get(place)
        # The last pattern of the first depth is near its end rather than near its start.
        if other is None or (self._is_last(place) and place[2] >= self.periods.get(place[1], 1)):
            return
        for point, later in _paired(part.points, other.points):
            yield other.phase, _extended(point, later, self.times)

    def _from_end(self, place: Place, first: Parts, second: Parts) -> Iterator[tuple[str, Point]]:
        """Of a layer of the last pattern, which as many follow at any depth.

        All of them grow like the very last: by what a whole pattern of layers holds. A first layer
        differs from later ones of its kind, so its own growth would tell nothing.
        """
        phase, stack, number = place
        more = self.second.get(stack, 0) - self.first.get(stack, 0)
        if not self._is_last(place):
            return
        ends = (phase, stack, self.first[stack] - 1), (phase, stack, self.second[stack] - 1)
        other = second.get((phase, stack, number + more))
        if other is None or ends[0] not in first or ends[1] not in second:
            return
        before, after = max(_paired(first[ends[0]].points, second[ends[1]].points), key=lambda pair: sum(pair[1]))
        for point in other.points:
            earlier = tuple(size - (b - a) for size, a, b in zip(point, before, after, strict=True))
            yield other.phase, _extended(earlier, point, self.times)

    def _is_last(self, place: Place) -> bool:
        """Of the last pattern of a stack that grows."""
        _, stack, number = place
        first = self.first.get(stack, 0)
        return number != AFTER and first < self.second.get(stack, 0) and number >= first - self.periods.get(stack, 1)


def _paired(first: list[Point], second: list[Point]) -> Iterator[tuple[Point, Point]]:
    if len(first) == len(second):
        return zip(first, second, strict=True)
    # As many peaks as layers: the fullest of each.
    return iter([(max(first, key=sum), max(second, key=sum))])


def _extended(first: Point, second: Point, times: int) -> Point:
    """No kind below 0, the sum as it grows: a kind may give way to another."""
    total = max(0, sum(first) + times * (sum(second) - sum(first)))
    parts = [max(0, one + times * (other - one)) for one, other in zip(first, second, strict=True)]
    share = total / sum(parts) if sum(parts) else 0.0
    sizes = [round(part * share) for part in parts]
    sizes[sizes.index(max(sizes))] += total - sum(sizes)
    return tuple(sizes)
