"""Traces without numbers against the same trace of real tensors: byte for byte, phase for phase.

That real steps are what the allocator hands out is proved in test_against_the_trainer.py.
"""

from typing import Any

from trainwiz.core.estimate.trace.build import build_traced_model
from trainwiz.core.estimate.trace.emulation import emulated
from trainwiz.core.estimate.trace.ledger import Ledger
from trainwiz.core.estimate.trace.step import trace_model
from trainwiz.core.estimate.trace.tracker import Tracker
from trainwiz.core.tracing.request import TraceRequest

from tests.core.estimate.trace.requests import ESM, GPT2, LLAMA, M2M, T5, request, traced
from tests.each import each

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


@each("asked", CASES.values())
def test_a_trace_without_numbers_is_that_of_a_real_step(asked: TraceRequest) -> None:
    assert traced(asked).training == real_trace(asked).training
