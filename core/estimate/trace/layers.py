"""trace_layers: shallow versions of the model traced in full, and extended to all its layers."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from trainwiz.core.estimate.moment import KINDS, Moment
from trainwiz.core.estimate.trace.depths import Stack, stacks_of, with_depths
from trainwiz.core.estimate.trace.full import trace_full
from trainwiz.core.tracing.request import TraceRequest
from trainwiz.core.tracing.result import TraceResult
from transformers import AutoConfig


def trace_layers(request: TraceRequest) -> TraceResult:
    """Each phase and kind grows by as much with every further layer: the phases are those of a part of the model
    (the last layer's backward pass, say), so that what is largest in one stays so at any depth.

    One version for the first depth of all stacks, and one with the second depth for each stack. Where the
    depth cannot be changed, all layers are traced. Raises CannotTrace.
    """
    started = time.perf_counter()
    shallow = _shallow(request)
    if shallow is None:
        return _renamed(trace_full(request), "all layers traced", started)
    stacks, base_request, deeper_requests = shallow
    base = trace_full(base_request)
    deeper = [trace_full(one) for one in deeper_requests]
    if any(one.kernels <= base.kernels for one in deeper):
        # The model takes its depth from elsewhere.
        return _renamed(trace_full(request), "all layers traced", started)
    # How often the difference between the two depths is in the rest of the stack.
    times = [(stack.layers - stack.depths[0]) / (stack.depths[1] - stack.depths[0]) for stack in stacks]

    def extended(first: float, more: list[float]) -> float:
        return max(0.0, first + sum(n * (one - first) for n, one in zip(times, more, strict=True)))

    def moments(phase: str) -> tuple[Moment, ...]:
        return _extended_moments(getattr(base, phase), [getattr(one, phase) for one in deeper], extended)

    def number(name: str) -> float:
        return extended(getattr(base, name), [getattr(one, name) for one in deeper])

    depths = " and ".join(f"layers {s.depths[0]} and {s.depths[1]} of {s.layers}" for s in stacks)
    return replace(
        base,
        tier="layers",
        training=moments("training"),
        evaluation=moments("evaluation"),
        reserved_bytes=None,
        parameters=round(number("parameters")),
        trainable_parameters=round(number("trainable_parameters")),
        flops=number("flops"),
        moved_bytes=number("moved_bytes"),
        kernels=round(number("kernels")),
        seconds=time.perf_counter() - started,
        note=f"{depths}, extended",
    )


def _shallow(request: TraceRequest) -> tuple[tuple[Stack, ...], TraceRequest, list[TraceRequest]] | None:
    try:
        values = json.loads(request.model_config)
        config = AutoConfig.for_model(values["model_type"], **{k: v for k, v in values.items() if k != "model_type"})
        stacks = stacks_of(config)
        if not stacks:
            return None

        def at(deep: Stack | None) -> TraceRequest:
            depths = {stack: stack.depths[stack is deep] for stack in stacks}
            return replace(request, model_config=json.dumps(with_depths(values, config, depths), sort_keys=True))

        return stacks, at(None), [at(stack) for stack in stacks]
    except Exception:  # noqa: BLE001 - tracing the model itself says in words what is wrong with it
        return None


def _extended_moments(first: tuple[Moment, ...], more: list[tuple[Moment, ...]], extended: Any) -> tuple[Moment, ...]:
    """Of the phases that all depths have: those between the first and the last layer are no fuller than these."""
    by_name = [{moment.name: moment.parts for moment in moments} for moments in more]
    return tuple(
        Moment(
            moment.name,
            {
                kind: round(extended(moment.parts.get(kind, 0), [parts[moment.name].get(kind, 0) for parts in by_name]))
                for kind in KINDS
                if kind in moment.parts
            },
        )
        for moment in first
        if all(moment.name in parts for parts in by_name)
    )


def _renamed(result: TraceResult, note: str, started: float) -> TraceResult:
    return replace(result, tier="layers", reserved_bytes=None, note=note, seconds=time.perf_counter() - started)
