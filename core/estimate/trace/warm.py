"""What the tracer does while nobody asks: first traces, so that those that are forked off later need not begin cold."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import torch
from trainwiz.core.estimate.trace.layers import trace_layers
from trainwiz.core.tracing.request import TraceRequest

IdleWork = Callable[[], None]
LIBRARIES = ("torch", "transformers", "accelerate", "peft")
SMALL = TraceRequest(
    model_config='{"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, '
    '"num_hidden_layers": 8, "num_attention_heads": 2}',
    task="causal-lm", micro_batch=2, length=16, target_length=0, accumulation=1, precision="bf16", half_weights=False,
    attention="sdpa", checkpointing=False, optimizer="adamw_torch_fused", lora_rank=0, lora_targets=(),
    lora_dropout=False, loss_chunk=None, label_smoothing=False, clipping=True, eval_micro_batch=2, beams=1,
    generation_length=4, device="cuda",
)  # fmt: skip
SMALL_PAIR = replace(
    SMALL,
    model_config='{"model_type": "m2m_100", "vocab_size": 64, "d_model": 32, "encoder_ffn_dim": 64, '
    '"decoder_ffn_dim": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, '
    '"decoder_attention_heads": 2, "max_position_embeddings": 64}',
    task="seq2seq", target_length=12, checkpointing=True, beams=2,
)  # fmt: skip


def first_traces() -> list[IdleWork]:
    """Of models that nobody waits for, a decoder and an encoder-decoder: torch and transformers fill their caches.

    None where torch sees a device: its autograd would start threads, after which no fork may compute gradients.
    """
    return [] if torch.accelerator.is_available() else [partial(_first_trace, one) for one in (SMALL, SMALL_PAIR)]


def imports_of(names: Iterable[str]) -> IdleWork:
    """Import the modules that a trace had to import; only parts of the libraries, whose imports are known to work."""
    known = [name for name in names if name.partition(".")[0] in LIBRARIES]

    def run() -> None:
        for name in known:
            with contextlib.suppress(Exception):
                importlib.import_module(name)

    return run


def _first_trace(request: TraceRequest) -> None:
    # A trace that fails says so where somebody asked for it.
    with contextlib.suppress(Exception):
        trace_layers(request)
