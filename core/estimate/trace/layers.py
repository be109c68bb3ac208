"""trace_layers: two shallow versions of the model traced, and extended to all its layers."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace

from torch._subclasses.fake_tensor import FakeTensorMode
from trainwiz.core.estimate.trace.build import build_traced_model
from trainwiz.core.estimate.trace.depths import Versions, shallow_versions, with_depths
from trainwiz.core.estimate.trace.emulation import emulated
from trainwiz.core.estimate.trace.full import ROUNDING, trace_full, trace_model
from trainwiz.core.estimate.trace.growth import Growth, Parts, PeaksLedger
from trainwiz.core.estimate.trace.tracker import Tracker
from trainwiz.core.tracing.request import TraceRequest
from trainwiz.core.tracing.result import TraceResult
from transformers import AutoConfig

ALL_TRACED = "all layers traced"


def trace_layers(request: TraceRequest) -> TraceResult:
    """Each peak of each part of the step grows by as much with every further layer (core/estimate/trace/growth.py).

    Where the depth cannot be changed, or little would be saved, all layers are traced. Raises CannotTrace.
    """
    started = time.perf_counter()
    shallow = _shallow(request)
    versions = shallow[0] if shallow else None
    first = _traced(shallow[1]) if shallow else None
    second = _traced(shallow[2]) if shallow and first else None
    if versions is None or first is None or second is None or second.result.kernels <= first.result.kernels:
        return _all_layers(request, started)
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
        note=f"{versions.words}, extended",
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


def _traced(request: TraceRequest) -> _Shallow | None:
    """None where the layers of the model are not found, or a version of it cannot be traced by itself."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    ledger = PeaksLedger(ROUNDING.get(request.device, 64))
    tracker = Tracker(ledger)
    try:
        with emulated(request.device, tracker), FakeTensorMode(allow_non_fake_inputs=True):
            model = build_traced_model(request)
            if not ledger.watch(model):
                return None
            result = trace_model(model, request, tracker, time.perf_counter())
    except Exception:  # noqa: BLE001 - likewise
        return None
    return _Shallow(result, ledger.depths, ledger.sections[-1], ledger.take())


def _periods(versions: Versions, first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    """Of each stack of the model by its name; the config knows the stacks by its keys."""
    return {
        name: max(
            stack.period
            for stack, *depths in zip(versions.stacks, versions.first, versions.second, strict=True)
            if depths == [depth, second[name]]
        )
        for name, depth in first.items()
        if [depth, second.get(name)] in [list(depths) for depths in zip(versions.first, versions.second, strict=True)]
    }


def _all_layers(request: TraceRequest, started: float) -> TraceResult:
    seconds = time.perf_counter() - started
    result = trace_full(request)
    return replace(result, tier="layers", reserved_bytes=None, note=ALL_TRACED, seconds=result.seconds + seconds)
