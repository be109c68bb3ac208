"""One training step of a request and its evaluation, watched: of the model, batch and optimizer that training builds, without
weights."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

import torch
from accelerate.utils import convert_outputs_to_fp32
from torch._subclasses.fake_tensor import FakeTensorMode
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import UsageError
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
from trainwiz.core.tracing.request import ProblemCode, TraceRequest, TraceResult
from trainwiz.core.training.chunked_logits import let_logits_be_read
from trainwiz.core.training.engine import numbers_in
from trainwiz.core.training.evaluation import StepLoss, batch_sums, token_sums
from trainwiz.core.training.model import INPUTS, batch_alone, with_adapters
from trainwiz.core.training.weights import MODEL_CLASSES, loading_options, quantize
from transformers import CONFIG_MAPPING, Adafactor, AutoConfig, Trainer
from transformers.initialization import no_init_weights


class CannotTrace(Exception):
    """This request cannot be traced. `message` is one sentence for the user."""

    def __init__(self, code: ProblemCode, message: str) -> None:
        super().__init__(message)
        self.code: ProblemCode = code
        self.message = message


# The model, the batch and the optimizer of a request as training builds them, without weights.


SCALED, NF4_VALUES = 64, 16
"""Weights that share a scale in NF4, and the values that 4 bits stand for."""
BLOCK = 256
"""Numbers that share a scale in bitsandbytes' 8 bits: of Adam, and of the scales of NF4."""
HALF_FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16, "bf16-true": torch.bfloat16}


def build_traced_model(request: TraceRequest) -> Any:
    """The bare model, in training mode; to be called under a FakeTensorMode. Raises CannotTrace."""
    config = run_config(request)
    architecture = _architecture(json.loads(request.model_config))
    try:
        with no_init_weights():
            base = MODEL_CLASSES[request.task].from_config(architecture, **loading_options(config))
        # Left out with the rest.
        base.tie_weights()
        if request.base_precision != "none":
            quantize(base, config, pack_without_numbers)
            # How many columns of an input LLM.int8() computes in 16 bits depends on its numbers: a thousandth, here none.
            layers: list[Any] = [module for module in base.modules() if hasattr(module, "init_8bit_state")]
            for layer in layers:
                layer.state.threshold = 0.0
        model: Any = with_adapters(base, config, None) if request.lora_rank else base
        if is_all_half(request):
            model.to(HALF_FORMATS[request.precision])
        if request.task == "sequence-classification" and base.config.get_text_config().pad_token_id is None:
            # Such models look for the last token that is none; where a config names no padding, users give them one.
            base.config.get_text_config().pad_token_id = 0
        model.train()
        if request.checkpointing:
            model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    except ImportError as error:
        raise CannotTrace(
            "unsupported", tr("A library is missing on this machine: {reason}.", reason=said_by(error))
        ) from error
    except UsageError as error:
        raise CannotTrace("unsupported", error.findings[0].message) from error
    except Exception as error:
        kind, said = repr(architecture.model_type), said_by(error)
        if "Unrecognized configuration class" in said:
            message = tr("transformers has no {task} head for {kind} models.", kind=kind, task=request.task)
            raise CannotTrace("unsupported", message) from error
        message = tr("A {kind} model cannot be built from this config: {reason}.", kind=kind, reason=said)
        raise CannotTrace("invalid_config", message) from error
    return model


def pack_without_numbers(weight: torch.Tensor, config: RunConfig) -> torch.nn.Parameter:
    """What bitsandbytes 0.50 makes of a layer's weights (functional.quantize_4bit, int8_vectorwise_quant): its own kinds of
    parameters cannot hold fake tensors, and plain ones with the same attributes do as well."""
    from bitsandbytes.functional import QuantState

    state: Any = QuantState
    outputs, inputs = weight.shape
    made: Any
    if config.engine.base_precision == "int8":
        made = torch.nn.Parameter(weight.new_empty(outputs, inputs, dtype=torch.int8), requires_grad=False)
        made.CB, made.SCB, made.has_fp16_weights = made.data, weight.new_empty(outputs, dtype=torch.float32), False
        return made  # type: ignore[no-any-return]
    blocks = -(-outputs * inputs // SCALED)
    second = {"absmax": weight.new_empty(-(-blocks // BLOCK), dtype=torch.float32), "blocksize": BLOCK}
    scales = state(code=weight.new_empty(BLOCK, dtype=torch.float32), dtype=torch.float32, **second)
    made = torch.nn.Parameter(weight.new_empty((outputs * inputs + 1) // 2, 1, dtype=torch.uint8), requires_grad=False)
    made.compress_statistics, made.quant_type = True, "nf4"
    made.quant_state = state(
        absmax=weight.new_empty(blocks, dtype=torch.uint8),
        shape=weight.shape,
        code=weight.new_empty(NF4_VALUES, dtype=torch.float32),
        blocksize=SCALED,
        quant_type="nf4",
        dtype=weight.dtype,
        offset=weight.new_empty((), dtype=torch.float32),
        state2=scales,
    )
    return made  # type: ignore[no-any-return]


def statistics_of(parameter: torch.nn.Parameter) -> list[torch.Tensor]:
    """The tensors beside a parameter in fewer bits: its scales and tables."""
    state: Any = getattr(parameter, "quant_state", None)
    if state is not None:
        return [state.absmax, state.code, state.offset, state.state2.absmax, state.state2.code]
    scales = getattr(parameter, "SCB", None)
    return [] if scales is None else [scales]


def is_all_half(request: TraceRequest) -> bool:
    """Whether the half format holds and computes everything without autocast, as DeepSpeed has it."""
    if request.precision not in ("bf16", "fp16"):
        return False
    return request.deepspeed or (request.half_weights and not request.lora_rank)


def run_config(request: TraceRequest) -> RunConfig:
    """The settings that building a model asks for."""
    return RunConfig.model_validate(
        {
            "task": request.task,
            "engine": {
                "precision": request.precision,
                "attention": request.attention,
                "base_precision": request.base_precision,
            },
            "training": {"loss_chunk": request.loss_chunk},
            "peft": {
                "method": "lora" if request.lora_rank else "none",
                "rank": max(1, request.lora_rank),
                "targets": list(request.lora_targets),
                "dora": request.dora,
                "modules_to_save": list(request.modules_to_save),
                "dropout": 0.1 if request.lora_dropout else 0.0,
            },
        }
    )


def said_by(error: Exception) -> str:
    """What an exception that was not meant for users says first; a heading gives way to what stands below it."""
    if isinstance(error, KeyError) and str(error.args[0]).isidentifier():
        return tr("{name} is missing", name=repr(error.args[0]))
    lines = [line for line in map(str.strip, str(error).splitlines()) if line] or [type(error).__name__]
    return next((line for line in lines if not line.rstrip(".").endswith(":")), lines[0]).rstrip(".:")


def _architecture(values: dict[str, Any]) -> Any:
    kind = values.pop("model_type")
    if kind not in CONFIG_MAPPING:
        if values.get("auto_map"):
            text = tr("Models of type {kind} include custom code, which is not run for a preview.", kind=repr(kind))
            raise CannotTrace("remote_code", text)
        raise CannotTrace(
            "unknown_model", tr("transformers does not recognize the model type {kind}.", kind=repr(kind))
        )
    for key in ("auto_map", "quantization_config", "_name_or_path"):
        values.pop(key, None)
    try:
        return AutoConfig.for_model(kind, **values)
    except Exception as error:
        message = tr("The {kind} config is not valid: {reason}.", kind=repr(kind), reason=said_by(error))
        raise CannotTrace("invalid_config", message) from error


def model_inputs(request: TraceRequest, rows: int, model: Any) -> dict[str, Any]:
    """Keyword arguments of the model with labels, int64.

    Several rows are as a rule of different lengths, so the last one is padded: models then make a
    mask, which they leave out where nothing is. A single row never is, nor are joined texts.
    """
    token = plain_token(model.config)
    mask = torch.ones(rows, request.length, dtype=torch.int64)
    if request.padded and rows > 1 and request.length > 1:
        mask[-1, -1] = 0
    batch = {"input_ids": torch.full((rows, request.length), token), "attention_mask": mask}
    if request.task == "sequence-classification":
        batch["labels"] = torch.zeros(rows, dtype=torch.int64)
        end = model.config.get_text_config().eos_token_id
        if model.config.is_encoder_decoder and isinstance(end, int):
            # Where a text ends is what is classified.
            batch["input_ids"][:, -1] = end
    else:
        number = 0 if request.task == "token-classification" else token
        batch["labels"] = torch.full((rows, request.target_length or request.length), number)
    return INPUTS.get(request.task, batch_alone)(batch, model)


def plain_token(config: Any) -> int:
    """The lowest token that has no meaning of its own, such as padding."""
    values = [value for key, value in config.get_text_config().to_dict().items() if key.endswith("_token_id")]
    special = {token for value in values for token in (value if isinstance(value, list) else [value])}
    return next(token for token in range(len(special) + 1) if token not in special)


def every_position(labels: torch.Tensor) -> torch.Tensor:
    """(n,) int64: all are taken to be labelled, for no batch has more."""
    return torch.arange(labels.numel(), device=labels.device)


SMALLEST_8BIT = 4096
PAGED_FROM = 100_000


class EightBitAdam(torch.optim.Optimizer):
    """The state tensors of bitsandbytes' AdamW8bit, without its kernels.

    `paged` ones of large parameters are managed memory that torch does not count. `whole` holds the
    ids of parameters that keep fp32 states: the Trainer asks for that for embeddings.
    """

    def __init__(self, groups: Any, *, paged: bool, whole: set[int]) -> None:
        super().__init__(groups, {"lr": 1e-3})
        self._paged = paged
        self._whole = whole

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for parameter in (one for group in self.param_groups for one in group["params"]):
            if parameter.grad is None or self.state[parameter]:
                continue
            size = parameter.numel()
            paged = self._paged and size >= PAGED_FROM
            in_single = id(parameter) in self._whole or (size < SMALLEST_8BIT and not paged)
            kind = torch.float32 if in_single else torch.uint8
            states = {name: torch.zeros_like(parameter, dtype=kind) for name in ("state1", "state2") if not paged}
            blocks = 0 if in_single else -(-size // BLOCK)
            scales = {name: parameter.new_zeros(blocks, dtype=torch.float32) for name in ("absmax1", "absmax2")}
            self.state[parameter] = {**states, **scales}


def make_optimizer(name: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    """Of the weights that train, in the Trainer's two groups (with and without weight decay)."""
    decayed = set(Trainer.get_decay_parameter_names(None, model))  # type: ignore[arg-type]
    trained = [(key, value) for key, value in model.named_parameters() if value.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [value for key, value in trained if (key in decayed) == decays], "weight_decay": 0.01 * decays}
        for decays in (True, False)
    ]
    match name:
        case "adamw_torch":
            # The default of torch on CUDA.
            return torch.optim.AdamW(groups, lr=1e-3, foreach=True)
        case "adamw_torch_fused":
            return torch.optim.AdamW(groups, lr=1e-3, fused=True)
        case "adafactor":
            return Adafactor(groups, lr=1e-3, scale_parameter=False, relative_step=False)  # type: ignore[no-untyped-call]
        case "sgd":
            return torch.optim.SGD(groups, lr=1e-3, foreach=True)
        case _:
            tables = [module.weight for module in model.modules() if isinstance(module, torch.nn.Embedding)]
            return EightBitAdam(groups, paged=name.startswith("paged"), whole=set(map(id, tables)))


# One step and one evaluation.

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


def training_loss(model: Any, request: TraceRequest, between: Callable[[], None]) -> torch.Tensor:
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


def trace_evaluation(model: Any, request: TraceRequest, tracker: Tracker) -> None:
    """One batch of held-out rows; where text is generated too, formulas say what that takes (core/estimate/peak.py)."""
    ledger, tracker.kind = tracker.ledger, "activations"
    model.eval()
    with marked(model, lambda phase: ledger.enter(EVALUATION_END if phase == FORWARD_END else phase)), torch.no_grad():
        ledger.enter(EVALUATION)
        inputs = model_inputs(request, request.eval_micro_batch, model)
        labels = inputs.pop("labels")
        if request.task == "sequence-classification":
            model(**inputs, labels=labels)
        else:
            batch_sums(model, inputs, labels, partial(token_sums, positions=every_position))
    ledger.enter("")


def rounding_of(request: TraceRequest) -> int:
    return 512 if request.device == "cuda" else 64


def trace_into(ledger: Ledger, request: TraceRequest) -> TraceResult:
    """The whole model into a ledger. Raises CannotTrace."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    tracker = Tracker(ledger)
    with emulated(request.device, ledger), FakeTensorMode(allow_non_fake_inputs=True):
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
        ledger.stated = len(ledger.events)
        trace_training(model, optimizer, request, tracker)
        ledger.stepped = len(ledger.events)
        training = ledger.moments()
        ledger.forget_phases()
        if request.eval_micro_batch:
            trace_evaluation(model, request, tracker)
    return TraceResult(
        training=training,
        evaluation=ledger.moments(),
        parameters=sum(numbers_in(parameter) for parameter in parameters),
        trainable_parameters=sum(parameter.numel() for parameter in trained),
    )
