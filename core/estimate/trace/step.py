"""One training step and its evaluation, watched."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

import torch
from accelerate.utils import convert_outputs_to_fp32
from torch._subclasses.fake_tensor import FakeTensorMode
from trainwiz.core.errors import UsageError
from trainwiz.core.estimate.trace.build import (
    HALF_FORMATS,
    CannotTrace,
    build_traced_model,
    every_position,
    is_all_half,
    make_optimizer,
    model_inputs,
    said_by,
    statistics_of,
)
from trainwiz.core.estimate.trace.emulation import emulated
from trainwiz.core.estimate.trace.ledger import (
    CLIPPING,
    EVALUATION,
    EVALUATION_END,
    FORWARD,
    FORWARD_END,
    LOSS,
    LOSS_BACKWARD,
    STEP,
    Ledger,
    layer_stacks,
    marked,
    weight_bytes,
)
from trainwiz.core.estimate.trace.tracker import Tracker
from trainwiz.core.language import tr
from trainwiz.core.tracing.request import TraceRequest, TraceResult
from trainwiz.core.training.chunked_logits import let_logits_be_read
from trainwiz.core.training.engine import numbers_in
from trainwiz.core.training.evaluation import StepLoss, batch_sums, token_sums

SMOOTHING = 0.1
"""Any value above 0 costs the same memory."""


def prepare(model: Any, request: TraceRequest) -> None:
    """RunTrainer's changes of the model, then Accelerator.prepare_model: autocast, and outputs in fp32."""
    if request.task != "sequence-classification":
        let_logits_be_read(model, request.loss_chunk)
    if request.precision in ("bf16", "fp16") and not is_all_half(request):
        forward = torch.autocast("cpu", dtype=HALF_FORMATS[request.precision])(model.forward.__func__)
        model.forward = MethodType(convert_outputs_to_fp32(forward), model)


def trace_training(model: Any, optimizer: Any, request: TraceRequest, tracker: Tracker) -> None:
    """The last micro-batch of a step, and the step. Gradients of earlier micro-batches are there already.

    With fp16, GradScaler unscales and checks the gradients in place, so it needs no memory of its own.
    """
    ledger = tracker.ledger
    with marked(model, ledger.enter, ledger.layer):
        ledger.enter(FORWARD)
        tracker.kind = "activations"
        loss = training_loss(model, request, lambda: ledger.enter(LOSS))
        ledger.enter(LOSS_BACKWARD)
        tracker.in_backward = True
        loss.backward()  # type: ignore[no-untyped-call]
        tracker.in_backward = False
        del loss
    tracker.kind = "temporary"
    if request.clipping:
        ledger.enter(CLIPPING)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    ledger.enter(STEP)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    ledger.enter("")


def training_loss(model: Any, request: TraceRequest, between: Callable[[], None] = lambda: None) -> torch.Tensor:
    """The loss of one micro-batch; `between` is called when the model is through with it."""
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
    give_gradients(model, tracker)
    tracker.kind = "optimizer"
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def give_gradients(model: Any, tracker: Tracker) -> None:
    tracker.kind = "gradients"
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)


NO_TOKEN = 0


def trace_evaluation(model: Any, request: TraceRequest, tracker: Tracker) -> None:
    """One batch of held-out rows; where text is generated too, formulas say what that takes (core/estimate/peak.py)."""
    model.eval()
    tracker.kind = "activations"
    if request.eval_micro_batch:
        _evaluate(model, request, tracker)
    tracker.ledger.enter("")
    model.train()


def _evaluate(model: Any, request: TraceRequest, tracker: Tracker) -> None:
    ledger = tracker.ledger
    with marked(model, lambda phase: ledger.enter(EVALUATION_END if phase == FORWARD_END else phase)), torch.no_grad():
        ledger.enter(EVALUATION)
        inputs = model_inputs(request, request.eval_micro_batch, model)
        labels = inputs.pop("labels")
        if request.task == "sequence-classification":
            model(**inputs, labels=labels)
        else:
            batch_sums(model, inputs, labels, partial(token_sums, positions=every_position))


def rounding_of(request: TraceRequest) -> int:
    return 512 if request.device == "cuda" else 64


def trace_into(ledger: Ledger, request: TraceRequest) -> TraceResult:
    """The whole model into a ledger. Raises CannotTrace."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    tracker = Tracker(ledger)
    with emulated(request.device, tracker), FakeTensorMode(allow_non_fake_inputs=True):
        model = build_traced_model(request)
        try:
            return trace_model(model, request, tracker)
        except UsageError as error:
            raise CannotTrace("unsupported", error.findings[0].message) from error
        except Exception as error:
            message = tr("A step of this model cannot be traced: {reason}.", reason=said_by(error))
            raise CannotTrace("unsupported", message) from error


def trace_model(model: Any, request: TraceRequest, tracker: Tracker) -> TraceResult:
    """Training and evaluation of a model that is built, fake or real."""
    ledger = tracker.ledger
    parameters = list(model.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    scales = [tensor for parameter in parameters for tensor in statistics_of(parameter)]
    for tensor in (*parameters, *scales, *model.buffers()):
        ledger.add(tensor, "weights")
    for parameter in trained:
        parameter.register_post_accumulate_grad_hook(lambda tensor: ledger.mark(tensor.grad, "gradients"))
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    tracker.vocabulary = 0 if head is None else int(head.weight.shape[0])
    prepare(model, request)
    optimizer = make_optimizer(request.optimizer, model)
    ledger.weights_of_layers = sum(weight_bytes(layer) for layers in layer_stacks(model) for layer in layers)
    ledger.built = len(ledger.events)
    with tracker:
        make_states(model, optimizer, tracker)
        if request.accumulation > 1:
            give_gradients(model, tracker)
        ledger.forget_phases()
        tracker.forget_work()
        ledger.stated = len(ledger.events)
        trace_training(model, optimizer, request, tracker)
        ledger.stepped = len(ledger.events)
        training = ledger.moments()
        work = tracker.flops, tracker.moved_bytes, tracker.kernels
        ledger.forget_phases()
        trace_evaluation(model, request, tracker)
    return TraceResult(
        training=training,
        evaluation=ledger.moments(),
        parameters=sum(numbers_in(parameter) for parameter in parameters),
        trainable_parameters=sum(parameter.numel() for parameter in trained),
        flops=work[0],
        moved_bytes=work[1],
        kernels=work[2],
    )
