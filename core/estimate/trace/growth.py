"""Growth: the peaks of a step's parts, in a form that can be followed from one depth of a model to another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn
from trainwiz.core.estimate.moment import KINDS, Moment
from trainwiz.core.estimate.trace.evaluation import EVALUATION, GENERATION, PROMPTS
from trainwiz.core.estimate.trace.ledger import Ledger
from trainwiz.core.estimate.trace.marks import FORWARD, layer_stacks

FORWARDS = (FORWARD, EVALUATION, PROMPTS, GENERATION)
"""Phases that go through all layers."""
PART = " | "
"""Between the name of a phase and a part of it."""

Point = tuple[int, ...]
"""Bytes of each of KINDS."""


class _Nothing(list[Any]):
    """The layered tier replays no allocator."""

    def append(self, item: Any) -> None:
        return

    def extend(self, items: Any) -> None:
        return


class PeaksLedger(Ledger):
    """Keeps every local peak of every phase, in order.

    What is fullest in a phase may be its beginning in a shallow model and its end in a deep one. The
    phases here are of a single layer or of none, so that each has the same peaks at any depth, and
    each peak can be followed by itself.
    """

    def __init__(self, rounding: int) -> None:
        super().__init__(rounding)
        self.events = _Nothing()
        self.peaks: dict[str, list[Point]] = {}
        self.sections: list[dict[str, list[Point]]] = []
        """The peaks up to each time that the phases were forgotten."""
        self._grew = False

    def enter(self, phase: str) -> None:
        self._keep()
        super().enter(phase)
        self._grew = True

    def forget_phases(self) -> None:
        self.sections.append(self.take())
        super().forget_phases()

    def take(self) -> dict[str, list[Point]]:
        """The peaks so far, and a new beginning."""
        self._keep()
        taken, self.peaks = self.peaks, {}
        return taken

    def _grow(self, size: int, kind: str) -> None:
        if size < 0:
            self._keep()
        super()._grow(size, kind)
        self._grew = size > 0

    def _gone(self, key: int, number: int) -> None:
        if self._grew:
            self._keep()
        super()._gone(key, number)

    def _keep(self) -> None:
        if self._grew and self.phase:
            self.peaks.setdefault(self.phase, []).append(tuple(self.by_kind[kind] for kind in KINDS))
        self._grew = False


class LayerParts:
    """Hooks that tell a ledger which layer a forward pass is at; recomputing in the backward pass is left alone."""

    def __init__(self, model: nn.Module, ledger: Ledger) -> None:
        self._ledger = ledger
        stacks = layer_stacks(model)
        self.known = bool(stacks)
        """Whether the model's layers were found."""
        for name, layers in stacks:
            for place, layer in enumerate(layers):
                part = "last" if place == len(layers) - 1 else "first" if place == 0 else "others"
                layer.register_forward_pre_hook(self._hook(f"{name} {part}"))
            layers[-1].register_forward_hook(self._hook(f"{name} end"))

    def _hook(self, part: str) -> Any:
        def enter(*_: Any) -> None:
            phase = self._ledger.phase.partition(PART)[0]
            if phase in FORWARDS:
                self._ledger.enter(f"{phase}{PART}{part}")

        return enter


def grown(first: dict[str, list[Point]], second: dict[str, list[Point]], times: int) -> tuple[Moment, ...]:
    """The fullest point of each phase of a model that is `second - first` deeper than `first`, `times` over.

    Phases that only the second depth has lie between the first and the last layer, which are as full.
    """
    fullest: dict[str, Point] = {}
    for phase, points in first.items():
        name = phase.partition(PART)[0]
        for point in _followed(points, second.get(phase, []), times):
            if sum(point) > sum(fullest.get(name, ())):
                fullest[name] = point
    return tuple(Moment(name, dict(zip(KINDS, point, strict=True))) for name, point in fullest.items())


def _followed(first: list[Point], second: list[Point], times: int) -> Iterator[Point]:
    if not first or not second:
        return
    if len(first) != len(second):
        # As many peaks as layers: the fullest of each.
        first, second = [max(first, key=sum)], [max(second, key=sum)]
    for one, other in zip(first, second, strict=True):
        yield _extended(one, other, times)


def _extended(first: Point, second: Point, times: int) -> Point:
    """No kind below 0, the sum as it grows: a kind may give way to another."""
    total = max(0, sum(first) + times * (sum(second) - sum(first)))
    parts = [max(0, one + times * (other - one)) for one, other in zip(first, second, strict=True)]
    share = total / sum(parts) if sum(parts) else 0.0
    sizes = [round(part * share) for part in parts]
    sizes[sizes.index(max(sizes))] += total - sum(sizes)
    return tuple(sizes)
