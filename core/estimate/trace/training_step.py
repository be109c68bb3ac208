"""One optimizer step as RunTrainer does it, watched."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from accelerate.utils import convert_outputs_to_fp32
from trainwiz.core.estimate.trace.batch import every_position, model_inputs
from trainwiz.core.estimate.trace.build import is_all_half
from trainwiz.core.estimate.trace.marks import CLIPPING, FORWARD, LOSS, LOSS_BACKWARD, STEP, Marks
from trainwiz.core.estimate.trace.tracker import Tracker
from trainwiz.core.tracing.request import TraceRequest
from trainwiz.core.training.loss import StepLoss
from trainwiz.core.training.vocabulary import let_logits_be_read

SMOOTHING = 0.1
"""Any value above 0 costs the same memory."""


def half_format(request: TraceRequest) -> torch.dtype | None:
    """The format that autocast computes in; None without autocast."""
    if request.precision not in ("bf16", "fp16") or is_all_half(request):
        return None
    return torch.bfloat16 if request.precision == "bf16" else torch.float16


def prepare(model: Any, request: TraceRequest) -> None:
    """RunTrainer's changes of the model, then Accelerator.prepare_model: autocast, and outputs in fp32."""
    if request.task != "sequence-classification":
        let_logits_be_read(model, request.loss_chunk)
    half = half_format(request)
    if half is not None:
        forward = torch.autocast("cpu", dtype=half)(model.forward.__func__)
        model.forward = MethodType(convert_outputs_to_fp32(forward), model)


def trace_training(model: Any, optimizer: Any, request: TraceRequest, tracker: Tracker) -> None:
    """The last micro-batch of a step, and the step. Gradients of earlier micro-batches are there already.

    With fp16, GradScaler unscales and checks the gradients in place, so it needs no memory of its own.
    """
    ledger = tracker.ledger
    marks = Marks(model, ledger.enter)
    ledger.enter(FORWARD)
    tracker.kind = "activations"
    loss = training_loss(model, request, lambda: ledger.enter(LOSS))
    ledger.enter(LOSS_BACKWARD)
    tracker.in_backward = True
    loss.backward()  # type: ignore[no-untyped-call]
    tracker.in_backward = False
    del loss
    marks.remove()
    tracker.kind = "temporary"
    if request.clipping:
        ledger.enter(CLIPPING)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    ledger.enter(STEP)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    ledger.enter("")


def training_loss(model: Any, request: TraceRequest, between: Callable[[], None] = lambda: None) -> torch.Tensor:
    """The loss of one micro-batch; `between` is called when the model is through with it.

    As in the Trainer, what the model put out is gone before the backward pass.
    """
    inputs = model_inputs(request, request.micro_batch, model)
    if request.task == "sequence-classification":
        result: torch.Tensor = model(**inputs).loss
        between()
        return result
    labels = inputs.pop("labels")
    loss = StepLoss(SMOOTHING if request.label_smoothing else 0.0, request.loss_chunk, every_position)
    outputs = model(**inputs, **loss.keywords(labels))
    between()
    return loss(outputs, labels, labels.numel())


def make_states(model: Any, optimizer: Any, tracker: Tracker) -> None:
    """One optimizer step with gradients that nothing computed, after which its states exist."""
    tracker.kind = "gradients"
    give_gradients(model)
    tracker.kind = "optimizer"
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def give_gradients(model: Any) -> None:
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
