"""Many families of transformers, without a word about any of them in the tracer."""

from typing import Any

import pytest
from trainwiz.core.estimate.trace.replay import trace_full

from tests.core.estimate.trace.requests import request

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 16}
BART = {
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4,
}  # fmt: skip
T5 = {"d_model": 64, "d_ff": 128, "num_layers": 2, "num_heads": 4, "d_kv": 16, "decoder_start_token_id": 0}
EAGER = {"attention": "eager"}
FAMILIES: dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any]]] = {
    ("causal-lm", "opt"): ({**SIZES, "ffn_dim": 128, "word_embed_proj_dim": 64}, {}),
    ("causal-lm", "falcon"): (SIZES, {"attention": "flash_attention_2"}),
    ("causal-lm", "gemma3_text"): ({**GROUPED, "num_hidden_layers": 6}, {}),
    ("causal-lm", "mixtral"): (GROUPED, {}),
    ("causal-lm", "bloom"): ({"hidden_size": 64, "n_layer": 3, "n_head": 4}, EAGER),
    ("causal-lm", "mamba"): ({"hidden_size": 64, "num_hidden_layers": 3}, EAGER),
    ("masked-lm", "distilbert"): ({"dim": 64, "hidden_dim": 128, "n_layers": 3, "n_heads": 4}, {}),
    ("masked-lm", "deberta"): (SIZES, EAGER),
    ("seq2seq", "led"): ({**BART, "attention_window": 32}, EAGER),
    ("seq2seq", "mt5"): ({**T5, "feed_forward_proj": "gated-gelu"}, {}),
    ("sequence-classification", "bert"): (SIZES, {}),
    ("sequence-classification", "qwen2"): (GROUPED, {}),
    ("sequence-classification", "bart"): (BART, {}),
    ("token-classification", "modernbert"): ({**SIZES, "pad_token_id": 0}, {}),
}
"""What differs in its attention, its experts, its masks, its head; tools/benchmarks/family_traces.py has the others."""

USUAL = ("falcon", "mixtral", "mt5")
"""Flash, experts, two stacks; the others are of `make test-all`."""
FEW = [family for family in FAMILIES if family[1] in USUAL]


@pytest.mark.parametrize(
    "families", [FEW, pytest.param([*set(FAMILIES) - set(FEW)], marks=pytest.mark.all)], ids=["usual", "others"]
)
def test_a_step_of_families(families: list[tuple[str, str]]) -> None:
    for task, kind in families:
        check(task, kind)


def check(task: str, kind: str) -> None:
    config, settings = FAMILIES[task, kind]
    target = 48 if task == "seq2seq" else 0
    asked = request(
        {"vocab_size": 1000, **config, "model_type": kind},
        **{"task": task, "micro_batch": 2, "length": 64, "target_length": target, "eval_micro_batch": 2, **settings},
    )
    result = trace_full(asked)
    names = [moment.name for moment in result.training]
    assert (names[0], names[-1]) == ("the forward pass", "the optimizer step")
    last = result.training[-1].parts
    # Nothing outlives the step: what is there at its end are weights, gradients and states alone.
    assert last["activations"] == last["logits"] == 0
    assert last["weights"] >= 4 * result.parameters
    # Rounded up to 512 bytes each.
    assert last["gradients"] <= 4 * result.parameters + 512 * 200
    assert result.allocated_bytes > last["weights"] + last["optimizer"]
    assert result.reserved_bytes is not None and result.reserved_bytes >= result.allocated_bytes
    assert result.evaluation[0].name == "an evaluation" and result.flops > 0 and result.kernels > 50
