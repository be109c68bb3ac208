"""trace_full: one process of a request, traced from its first weight to its evaluation."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode
from trainwiz.core.errors import UsageError
from trainwiz.core.estimate.trace.allocator import CachingAllocator, Event
from trainwiz.core.estimate.trace.aside import Aside
from trainwiz.core.estimate.trace.build import build_traced_model, said_by
from trainwiz.core.estimate.trace.emulation import attention_of, emulated
from trainwiz.core.estimate.trace.evaluation import trace_evaluation
from trainwiz.core.estimate.trace.ledger import Ledger
from trainwiz.core.estimate.trace.optimizers import make_optimizer
from trainwiz.core.estimate.trace.problems import CannotTrace
from trainwiz.core.estimate.trace.tracker import Tracker
from trainwiz.core.estimate.trace.training_step import give_gradients, make_states, prepare, trace_training
from trainwiz.core.language import tr
from trainwiz.core.tracing.request import TraceRequest
from trainwiz.core.tracing.result import TraceResult

ROUNDING = {"cuda": 512}
"""Bytes that the allocator of a device rounds up to; 64 elsewhere."""
TRACED_LIBRARIES = ("torch", "transformers", "accelerate", "peft")


def trace_full(request: TraceRequest) -> TraceResult:
    """The whole model, with the allocator replayed. Raises CannotTrace."""
    return trace_into(Ledger(rounding_of(request)), request)


def rounding_of(request: TraceRequest) -> int:
    return ROUNDING.get(request.device, 64)


def trace_into(
    ledger: Ledger, request: TraceRequest, watch: Callable[[Any], None] = lambda model: None, *, forks: bool = False
) -> TraceResult:
    """The same into a ledger of one's own; `watch` gets the model before anything is computed.

    With `forks` evaluation is traced beside the training (aside.py), and not replayed: no `reserved_bytes`.
    """
    started = time.perf_counter()
    os.environ["HF_HUB_OFFLINE"] = "1"
    tracker = Tracker(ledger)
    with emulated(request.device, tracker), FakeTensorMode(allow_non_fake_inputs=True):
        model = build_traced_model(request)
        watch(model)
        try:
            with attention_of(model, tracker):
                return trace_model(model, request, tracker, started, forks=forks)
        except UsageError as error:
            raise CannotTrace("unsupported", error.findings[0].message) from error
        except Exception as error:
            message = tr("A step of this model cannot be traced: {reason}.", reason=said_by(error))
            raise CannotTrace("unsupported", message) from error


def trace_model(
    model: Any, request: TraceRequest, tracker: Tracker, started: float, *, forks: bool = False
) -> TraceResult:
    """Training and evaluation of a model that is built, fake or real."""
    ledger = tracker.ledger
    parameters = list(model.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    for tensor in (*parameters, *model.buffers()):
        ledger.add(tensor, "weights")
    for parameter in trained:
        parameter.register_post_accumulate_grad_hook(lambda tensor: ledger.mark(tensor.grad, "gradients"))
    tracker.vocabulary = _vocabulary(model)
    prepare(model, request)
    optimizer = make_optimizer(request.optimizer, model)
    built = len(ledger.events)
    with tracker:
        make_states(model, optimizer, tracker)
        if request.accumulation > 1:
            tracker.kind = "gradients"
            give_gradients(model)
        ledger.forget_phases()
        tracker.forget_work()
        aside = _evaluation_aside(model, request, tracker) if forks else None
        stated = len(ledger.events)
        trace_training(model, optimizer, request, tracker)
        step = slice(stated, len(ledger.events))
        training = ledger.moments()
        work = tracker.flops, tracker.moved_bytes, tracker.kernels
        ledger.forget_phases()
        evaluated = None if aside is None else aside.result()
        if evaluated is None:
            # Here too where it failed beside: this one says why.
            trace_evaluation(model, request, tracker)
        else:
            ledger.give(evaluated)
    return TraceResult(
        tier="full",
        training=training,
        evaluation=ledger.moments(),
        reserved_bytes=_reserved(ledger.events, built, step) if request.device == "cuda" and not forks else None,
        parameters=sum(parameter.numel() for parameter in parameters),
        trainable_parameters=sum(parameter.numel() for parameter in trained),
        flops=work[0],
        moved_bytes=work[1],
        kernels=work[2],
        seconds=time.perf_counter() - started,
        versions={name: metadata.version(name) for name in TRACED_LIBRARIES},
    )


def _evaluation_aside(model: Any, request: TraceRequest, tracker: Tracker) -> Aside[Any] | None:
    """None where nothing is evaluated, or there is no process to be had.

    An evaluation meets the same tensors before a step as after it: the weights and what the optimizer holds.
    """
    if not (request.eval_micro_batch or request.generation_length):
        return None

    def evaluated() -> Any:
        if request.accumulation > 1:
            model.zero_grad(set_to_none=True)
        trace_evaluation(model, request, tracker)
        return tracker.ledger.taken()

    try:
        return Aside(evaluated)
    except OSError:
        return None


def _reserved(events: list[Event], built: int, step: slice) -> int:
    """Bytes, with the first step done before states exist: the segments that it leaves are cut up by what comes after.

    `events` are those of the weights, until `built`, of making the states, of a `step`, and of evaluating.
    """
    again = len(events)
    first = [(number + again if number > 0 else number - again, size) for number, size in events[step]]
    return CachingAllocator().replay([*events[:built], *first, *events[built:]])


def _vocabulary(model: Any) -> int:
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    return int(head.weight.shape[0]) if head is not None else 0
