"""Requests that a test's tracer understands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainwiz.core.tracing.request import TraceRequest

REQUEST = TraceRequest(
    model_config='{"model_type": "gpt2"}', task="causal-lm", micro_batch=1, length=16, target_length=0, accumulation=1,
    precision="fp32", half_weights=False, attention="sdpa", checkpointing=False, optimizer="adamw_torch_fused",
    lora_rank=0, lora_targets=(), lora_dropout=False, loss_chunk=None, label_smoothing=False, clipping=True,
    eval_micro_batch=0, device="cuda",
)  # fmt: skip


def request(task: str = "causal-lm", **changes: Any) -> TraceRequest:
    """`task` is what tests.core.tracing.echo_tracer does."""
    return replace(REQUEST, task=task, **changes)
