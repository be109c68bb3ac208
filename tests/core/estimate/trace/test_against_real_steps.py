"""Traces against real steps: what torch's profiler saw the CPU's allocator hand out, and real tensors traced alike.

The profiler watches the allocator itself, without a dispatch mode, so it shares nothing with the
tracer. In bf16 the CPU's matrix products take working memory of their own, which is no concern of
a GPU's, so those cases are of models whose fullest point they do not touch.
"""

from typing import Any

import pytest
import torch
from trainwiz.core.estimate.trace.build import build_traced_model
from trainwiz.core.estimate.trace.emulation import emulated
from trainwiz.core.estimate.trace.full import trace_full, trace_model
from trainwiz.core.estimate.trace.ledger import Ledger
from trainwiz.core.estimate.trace.optimizers import make_optimizer
from trainwiz.core.estimate.trace.tracker import Tracker
from trainwiz.core.estimate.trace.training_step import prepare, training_loss
from trainwiz.core.tracing.request import TraceRequest

from tests.core.estimate.trace.requests import ESM, GPT2, LLAMA, M2M, T5, request

ALIGNMENT = 64
FP32 = {"precision": "fp32", "device": "cpu"}
CASES = {
    "llama": request(LLAMA, **FP32),
    "llama-eager": request(LLAMA, **FP32, attention="eager"),
    "llama-checkpointed": request(LLAMA, **FP32, length=256, checkpointing=True),
    "llama-bf16": request(LLAMA, precision="bf16", device="cpu"),
    "llama-step-is-fullest": request(LLAMA, **FP32, micro_batch=1, length=64, accumulation=2, optimizer="adamw_torch"),
    "llama-lora": request(
        LLAMA, precision="bf16", device="cpu", half_weights=True, lora_rank=8, lora_targets=("q_proj", "v_proj")
    ),
    "llama-sliced-loss": request(LLAMA, **FP32, loss_chunk=64),
    "gpt2": request(GPT2, **FP32),
    "gpt2-bf16-eager": request(GPT2, precision="bf16", device="cpu", attention="eager"),
    "t5": request(T5, **FP32, task="seq2seq", target_length=96),
    "m2m-checkpointed": request(M2M, **FP32, task="seq2seq", target_length=96, checkpointing=True),
    "esm": request(ESM, **FP32, task="masked-lm", micro_batch=8),
    "esm-eager-smoothed-adafactor": request(
        ESM, **FP32, task="masked-lm", micro_batch=8, attention="eager", optimizer="adafactor", label_smoothing=True
    ),
}


def real_trace(asked: TraceRequest) -> Any:
    tracker = Tracker(Ledger(ALIGNMENT))
    with emulated("cpu", tracker):
        return trace_model(build_traced_model(asked), asked, tracker, 0.0)


def profiled_peak(asked: TraceRequest) -> int:
    """Bytes at the fullest point of a real optimizer step, what the process held before it included."""
    model = build_traced_model(asked)
    prepare(model, asked)
    optimizer = make_optimizer(asked.optimizer, model)

    def step() -> None:
        for _ in range(asked.accumulation):
            loss = training_loss(model, asked)
            loss.backward()
            del loss
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()

    step()
    states = [
        value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)
    ]
    held = {
        tensor.untyped_storage().data_ptr(): -(-tensor.untyped_storage().nbytes() // ALIGNMENT) * ALIGNMENT
        for tensor in (*model.parameters(), *model.buffers(), *states)
    }
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    kineto = profile.profiler.kineto_results  # type: ignore[union-attr]
    changes = sorted((event.start_ns(), event.nbytes()) for event in kineto.events() if event.name() == "[memory]")
    total = peak = 0
    for _, change in changes:
        total += change
        peak = max(peak, total)
    assert peak > 0
    return sum(held.values()) + peak


@pytest.mark.parametrize("asked", CASES.values(), ids=CASES)
def test_a_trace_without_numbers_is_that_of_a_real_step(asked: TraceRequest) -> None:
    assert trace_full(asked).training == real_trace(asked).training


@pytest.mark.parametrize("asked", CASES.values(), ids=CASES)
def test_the_peak_is_what_the_allocator_handed_out(asked: TraceRequest) -> None:
    assert trace_full(asked).allocated_bytes == pytest.approx(profiled_peak(asked), rel=1e-3)
