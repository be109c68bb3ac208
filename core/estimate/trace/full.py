"""trace_full: one process of a request, traced from its first weight to its evaluation."""

from __future__ import annotations

import os
import time
from importlib import metadata
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from trainwiz.core.estimate.trace.allocator import CachingAllocator
from trainwiz.core.estimate.trace.build import build_traced_model, first_line
from trainwiz.core.estimate.trace.emulation import emulated
from trainwiz.core.estimate.trace.optimizers import make_optimizer
from trainwiz.core.estimate.trace.problems import CannotTrace
from trainwiz.core.estimate.trace.tracker import Tracker
from trainwiz.core.estimate.trace.training_step import prepare, trace_training, with_states
from trainwiz.core.tracing.request import TraceRequest
from trainwiz.core.tracing.result import TraceResult

ROUNDING = {"cuda": 512}
"""Bytes that the allocator of a device rounds up to; 64 elsewhere."""
TRACED_LIBRARIES = ("torch", "transformers", "accelerate", "peft")


def trace_full(request: TraceRequest) -> TraceResult:
    """The whole model, with the allocator replayed. Raises CannotTrace."""
    started = time.perf_counter()
    os.environ["HF_HUB_OFFLINE"] = "1"
    tracker = Tracker(ROUNDING.get(request.device, 64), 0)
    with emulated(request.device, tracker), FakeTensorMode(allow_non_fake_inputs=True):
        model = build_traced_model(request)
        try:
            return _trace(model, request, tracker, started)
        except CannotTrace:
            raise
        except Exception as error:
            raise CannotTrace(
                "unsupported", f"A step of this model cannot be traced: {first_line(error)}."
            ) from error


def _trace(model: Any, request: TraceRequest, tracker: Tracker, started: float) -> TraceResult:
    ledger = tracker.ledger
    parameters = list(model.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    for tensor in (*parameters, *model.buffers()):
        ledger.add(tensor, "weights")
    for parameter in trained:
        parameter.register_post_accumulate_grad_hook(lambda tensor: ledger.mark(tensor.grad, "gradients"))
    tracker._vocabulary = int(getattr(model.config.get_text_config(), "vocab_size", 0))
    prepare(model, request)
    optimizer = make_optimizer(request.optimizer, model)
    with tracker:
        tracker.kind = "optimizer"
        with_states(model, optimizer)
        for states in optimizer.state.values():
            for state in states.values():
                if isinstance(state, torch.Tensor):
                    ledger.mark(state, "optimizer")
        if request.accumulation > 1:
            tracker.kind = "gradients"
            for parameter in trained:
                parameter.grad = torch.zeros_like(parameter)
        ledger.forget_phases()
        tracker.forget_work()
        trace_training(model, optimizer, request, tracker)
        moments = ledger.moments()
    return TraceResult(
        tier="full",
        training=moments,
        evaluation=(),
        reserved_bytes=CachingAllocator().replay(ledger.events) if request.device == "cuda" else None,
        parameters=sum(parameter.numel() for parameter in parameters),
        trainable_parameters=sum(parameter.numel() for parameter in trained),
        flops=tracker.flops,
        moved_bytes=tracker.moved_bytes,
        kernels=tracker.kernels,
        seconds=time.perf_counter() - started,
        versions={name: metadata.version(name) for name in TRACED_LIBRARIES},
    )
