"""Published measurements of the peak that torch allocated, and models whose sizes stand in no other file.

litgpt's table (tutorials/resource-tables.md): LoRA of rank 8 on the queries and values, bf16-true,
on an A100 with 40 GB, in units of 10^9 bytes.
"""

import pytest
from trainwiz.core.estimate.trace.replay import trace_full

from tests.core.estimate.trace.requests import request

LLAMA_7B = {
    "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096,
}  # fmt: skip
LLAMA_13B = {
    **LLAMA_7B, "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40,
    "num_key_value_heads": 40,
}  # fmt: skip
PHI = {
    "model_type": "phi", "vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
    "num_attention_heads": 32, "max_position_embeddings": 2048, "partial_rotary_factor": 0.5, "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    # litgpt computes this activation in one kernel; transformers' own gelu_new takes eight.
    "hidden_act": "gelu_pytorch_tanh",
}  # fmt: skip
LORA = {
    "precision": "bf16-true", "half_weights": True, "lora_rank": 8, "lora_targets": ("q_proj", "v_proj"),
    "padded": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "length", "micro_batch", "measured"),
    [
        pytest.param(LLAMA_7B, 1304, 1, 21.30, id="llama-2-7b", marks=pytest.mark.all),
        pytest.param(LLAMA_13B, 1304, 1, 38.12, id="llama-2-13b", marks=pytest.mark.all),
        pytest.param(PHI, 1044, 4, 10.68, id="phi-1.5-4"),
    ],
)
def test_litgpt(config: dict, length: int, micro_batch: int, measured: float) -> None:
    result = trace_full(request(config, length=length, micro_batch=micro_batch, **LORA))
    assert result.allocated_bytes / 1e9 == pytest.approx(measured, rel=0.03)
