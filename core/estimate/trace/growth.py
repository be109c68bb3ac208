"""Growth: the peaks of a step's parts, in a form that can be followed from one depth of a model to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from trainwiz.core.estimate.trace.ledger import FORWARD, Ledger, backward_phase, layer_stacks
from trainwiz.core.estimate.trace.step import EVALUATION, GENERATION, PROMPTS
from trainwiz.core.estimate.workload import KINDS, Moment

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
    single layer has the same peaks at any depth, so that each can be followed by itself.
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
