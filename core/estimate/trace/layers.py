"""trace_layers: two shallow versions of the model traced, and extended to all its layers."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace

from trainwiz.core.estimate.trace.aside import Aside
from trainwiz.core.estimate.trace.depths import Versions, shallow_versions, with_depths
from trainwiz.core.estimate.trace.full import rounding_of, trace_into
from trainwiz.core.estimate.trace.growth import Growth, Parts, PeaksLedger
from trainwiz.core.estimate.trace.ledger import Ledger
from trainwiz.core.estimate.trace.problems import CannotTrace
from trainwiz.core.language import mark
from trainwiz.core.tracing.request import TraceRequest
from trainwiz.core.tracing.result import TraceResult
from transformers import AutoConfig

ALL_TRACED = mark("all layers traced")


def trace_layers(request: TraceRequest, *, forks: bool = False) -> TraceResult:
    """Each peak of each part of the step grows by as much with every further layer (core/estimate/trace/growth.py).

    Where the depth cannot be changed, or little would be saved, all layers are traced. With `forks` the
    two versions are traced at once (core/estimate/trace/aside.py). Raises CannotTrace.
    """
    started = time.perf_counter()
    shallow = _shallow(request)
    if shallow is None:
        return _all_layers(request, started, forks)
    versions, *requests = shallow
    first, second = _both(*requests) if forks else (_traced(requests[0], forks), _traced(requests[1], forks))
    if first is None or second is None or second.result.kernels <= first.result.kernels:
        return _all_layers(request, started, forks)
    one, other = first.result, second.result
    growth = Growth(first.depths, second.depths, _periods(versions, first.depths, second.depths), versions.times)

    def number(name: str) -> float:
        return float(getattr(one, name) + versions.times * (getattr(other, name) - getattr(one, name)))

    return replace(
        one,
        tier="layers",
        training=growth.moments(first.training, second.training),
        evaluation=growth.moments(first.evaluation, second.evaluation),
        reserved_bytes=None,
        parameters=round(number("parameters")),
        trainable_parameters=round(number("trainable_parameters")),
        flops=number("flops"),
        moved_bytes=number("moved_bytes"),
        kernels=round(number("kernels")),
        seconds=time.perf_counter() - started,
        note=mark("{stacks}, extended").format(stacks=versions.words),
    )


@dataclass(frozen=True, slots=True)
class _Shallow:
    """The trace of one version, with all its peaks."""

    result: TraceResult
    depths: dict[str, int]
    training: Parts
    evaluation: Parts


def _shallow(request: TraceRequest) -> tuple[Versions, TraceRequest, TraceRequest] | None:
    try:
        values = json.loads(request.model_config)
        config = AutoConfig.for_model(values["model_type"], **{k: v for k, v in values.items() if k != "model_type"})
        versions = shallow_versions(config)
        if versions is None:
            return None

        def of(depths: tuple[int, ...]) -> TraceRequest:
            changed = with_depths(values, config, versions.stacks, depths)
            return replace(request, model_config=json.dumps(changed, sort_keys=True))

        return versions, of(versions.first), of(versions.second)
    except Exception:  # noqa: BLE001 - tracing the model itself says in words what is wrong with it
        return None


def _traced(request: TraceRequest, forks: bool) -> _Shallow | None:
    """None where the layers of the model are not found, or a version of it cannot be traced by itself."""
    ledger = PeaksLedger(rounding_of(request))
    try:
        result = trace_into(ledger, request, ledger.watch, forks=forks)
    except CannotTrace:
        return None
    return _Shallow(result, ledger.depths, ledger.sections[-1], ledger.take()) if ledger.depths else None


def _both(first: TraceRequest, second: TraceRequest) -> tuple[_Shallow | None, _Shallow | None]:
    try:
        aside = Aside(lambda: _traced(first, True))
    except OSError:
        return _traced(first, True), _traced(second, True)
    deeper = _traced(second, True)
    return aside.result(), deeper


def _periods(versions: Versions, first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    """Of each stack of the model by its name; the config knows the stacks by its keys."""
    of_depths: dict[tuple[int, int], int] = {}
    for stack, *depths in zip(versions.stacks, versions.first, versions.second, strict=True):
        of_depths[depths[0], depths[1]] = max(stack.period, of_depths.get((depths[0], depths[1]), 1))
    return {name: of_depths.get((depth, second[name]), 1) for name, depth in first.items() if name in second}


def _all_layers(request: TraceRequest, started: float, forks: bool) -> TraceResult:
    seconds = time.perf_counter() - started
    result = trace_into(Ledger(rounding_of(request)), request, forks=forks)
    return replace(result, tier="layers", reserved_bytes=None, note=ALL_TRACED, seconds=result.seconds + seconds)
