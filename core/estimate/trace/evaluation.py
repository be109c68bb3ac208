"""Evaluating and generating as RunTrainer and Generator do it, watched."""

from __future__ import annotations

from typing import Any

import torch
from trainwiz.core.estimate.trace.batch import every_position, mask_of, model_inputs
from trainwiz.core.estimate.trace.marks import FORWARD_END, Marks
from trainwiz.core.estimate.trace.tracker import Tracker
from trainwiz.core.language import mark
from trainwiz.core.tracing.request import TraceRequest
from trainwiz.core.training.evaluation import batch_sums
from transformers import GenerationConfig

EVALUATION = mark("an evaluation")
EVALUATION_END = mark("the logits of an evaluation")
PROMPTS = mark("reading the prompts in an evaluation")
GENERATION = mark("generating text in an evaluation")
POSITIONS = 2
"""Generated for a trace: the second one already copies a cache that grew."""
NO_TOKEN = 0


def trace_evaluation(model: Any, request: TraceRequest, tracker: Tracker) -> None:
    """One batch of held-out rows, and one that generates."""
    model.eval()
    tracker.kind = "activations"
    if request.eval_micro_batch:
        _evaluate(model, request, tracker)
    if request.generation_length:
        _generate(model, request, tracker)
    tracker.ledger.enter("")
    model.train()


def _evaluate(model: Any, request: TraceRequest, tracker: Tracker) -> None:
    ledger = tracker.ledger
    marks = Marks(model, lambda phase: ledger.enter(EVALUATION_END if phase == FORWARD_END else phase))
    ledger.enter(EVALUATION)
    inputs = model_inputs(request, request.eval_micro_batch, model)
    labels = inputs.pop("labels")
    with torch.no_grad():
        if request.task == "sequence-classification":
            model(**inputs, labels=labels)
        else:
            batch_sums(model, inputs, labels, _mask_token(request), every_position)
    marks.remove()


def _mask_token(request: TraceRequest) -> int:
    return NO_TOKEN if request.task == "masked-lm" else -1


def _generate(model: Any, request: TraceRequest, tracker: Tracker) -> None:
    """The real search, for two positions at the beginning and two at the end of the longest text.

    The cache of the end is made by giving all positions but these two as a prompt, which is not counted:
    neither as a moment nor by the allocator.
    """
    causal = request.task == "causal-lm"
    prompt = max(1, request.length - request.generation_length) if causal else request.length
    written = max(1, request.generation_length - POSITIONS)
    _search(model, request, tracker, prompt, 0, PROMPTS)
    _search(model, request, tracker, prompt + written if causal else prompt, 0 if causal else written, "")


def _search(model: Any, request: TraceRequest, tracker: Tracker, prompt: int, written: int, reading: str) -> None:
    """`prompt` and `written` are tokens of a row that stand there already; `reading` is the phase of going over them."""
    ledger = tracker.ledger
    rows = request.eval_micro_batch or request.micro_batch
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model

    def before(module: Any, args: Any, kwargs: Any) -> None:
        ids = kwargs.get("decoder_input_ids", kwargs.get("input_ids"))
        written_on = ids is not None and ids.shape[1] == 1 and not first
        if written_on and not reading and ledger.phase != GENERATION:
            ledger.pass_over(begun)
        ledger.enter(GENERATION if written_on else reading)
        first.clear()

    first, begun = [True], len(ledger.events)
    hook = bare.register_forward_pre_hook(before, with_kwargs=True)
    ledger.enter(reading)
    inputs = {"input_ids": torch.ones((rows, prompt), dtype=torch.int64)}
    inputs["attention_mask"] = mask_of(request, rows, prompt, left=request.task == "causal-lm")
    if written:
        inputs["decoder_input_ids"] = torch.ones((rows, written), dtype=torch.int64)
    with torch.no_grad():
        model.generate(**inputs, generation_config=_settings(request))
    hook.remove()
    ledger.enter("")


def _settings(request: TraceRequest) -> GenerationConfig:
    """As core/training/generation.py has them. No text ends early."""
    return GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=POSITIONS,
        num_beams=request.beams,
        do_sample=False,
        use_cache=True,
        pad_token_id=NO_TOKEN,
        eos_token_id=None,
    )
