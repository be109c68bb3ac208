"""Records family_traces.json: python -m tools.benchmarks.family_traces

Forty-seven families of transformers, small but not tiny, in four settings each, traced in full by the
product's own tracer. The configs are those that transformers writes, so readers see what users have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainwiz.core.estimate.architecture import Architecture
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.workload import Workload

FILE = Path(__file__).resolve().parents[2] / "tests/core/estimate/family_traces.json"
B = {"hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 8, "intermediate_size": 3072}
D = {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 8, "intermediate_size": 2816}
WIDE = {**D, "intermediate_size": 4096}
NARROW = {**D, "intermediate_size": 1024}
N = {"n_embd": 1024, "n_head": 16, "n_layer": 8}
S = {
    "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
    "encoder_attention_heads": 12, "decoder_attention_heads": 12,
}  # fmt: skip
GROUPED = {"num_key_value_heads": 4}
ALL_HEADS = {"num_key_value_heads": 16}
EXPERTS = {"num_experts": 16, "num_experts_per_tok": 4}
LOCAL_EXPERTS = {"num_local_experts": 8, "num_experts_per_tok": 2}
DELTA = {
    "linear_num_key_heads": 8, "linear_num_value_heads": 16, "linear_key_head_dim": 64, "linear_value_head_dim": 64
}  # fmt: skip
PARTS = {
    "global_head_dim": 128, "vocab_size_per_layer_input": 32000, "hidden_size_per_layer_input": 64,
    "num_kv_shared_layers": 2,
}  # fmt: skip
ALL = ("bf16", "fp32 eager", "bf16-true checkpointed", "lora")
EAGER = ("fp32 eager",)
FULL = ALL[:3]
FAMILIES: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "phi": ("causal-lm", WIDE, ALL),
    "phi3": ("causal-lm", {**D, "num_key_value_heads": 8, "pad_token_id": 0}, ALL),
    "gemma": ("causal-lm", {**D, **GROUPED, "head_dim": 64}, ALL),
    "gemma2": ("causal-lm", {**D, **GROUPED, "head_dim": 64}, EAGER),
    "gemma3_text": ("causal-lm", {**D, **GROUPED, "head_dim": 64}, ALL),
    "qwen3": ("causal-lm", {**D, **GROUPED, "head_dim": 64}, ALL),
    "qwen3_5_text": ("causal-lm", {**D, **GROUPED, **DELTA, "head_dim": 64}, ALL),
    "gemma4_text": ("causal-lm", {**D, **GROUPED, **PARTS, "head_dim": 64}, ALL),
    "mixtral": ("causal-lm", {**D, **GROUPED, **LOCAL_EXPERTS, "intermediate_size": 1792}, ALL),
    "qwen3_moe": ("causal-lm", {**D, **GROUPED, **EXPERTS, "head_dim": 64, "moe_intermediate_size": 512}, ALL),
    "opt": ("causal-lm", {**WIDE, "ffn_dim": 4096, "word_embed_proj_dim": 1024}, ALL),
    "bloom": ("causal-lm", {"hidden_size": 1024, "n_head": 16, "n_layer": 8}, EAGER),
    "falcon": ("causal-lm", {**D, "ffn_hidden_size": 4096}, FULL),
    "gpt_neox": ("causal-lm", WIDE, ALL),
    "gptj": ("causal-lm", {**N, "rotary_dim": 32}, EAGER),
    "mpt": ("causal-lm", {"d_model": 1024, "n_heads": 16, "n_layers": 8}, EAGER),
    "stablelm": ("causal-lm", {**D, **ALL_HEADS}, ALL),
    "starcoder2": ("causal-lm", {**D, "num_key_value_heads": 2}, ALL),
    "olmo2": ("causal-lm", {**D, **ALL_HEADS}, ALL),
    "cohere": ("causal-lm", {**D, **ALL_HEADS}, ALL),
    "granite": ("causal-lm", {**D, **GROUPED}, ALL),
    "roberta": ("masked-lm", B, FULL),
    "bert": ("masked-lm", B, FULL),
    "distilbert": ("masked-lm", {"dim": 768, "n_heads": 12, "n_layers": 6, "hidden_dim": 3072}, FULL),
    "electra": ("masked-lm", {**B, "embedding_size": 128}, FULL),
    "albert": ("masked-lm", {**B, "embedding_size": 128}, ALL[:2]),
    "modernbert": ("masked-lm", {**B, "intermediate_size": 1152, "pad_token_id": 0}, FULL),
    "mpnet": ("masked-lm", B, EAGER),
    "deberta-v2": (
        "masked-lm",
        {**B, "relative_attention": True, "position_buckets": 256, "pos_att_type": ["p2c", "c2p"]},
        EAGER,
    ),
    "bart": ("seq2seq", S, ALL),
    "pegasus": ("seq2seq", S, ALL),
    "mbart": ("seq2seq", S, ALL),
    "blenderbot": ("seq2seq", S, ALL),
    "mt5": ("seq2seq", {"d_model": 512, "d_ff": 1024, "num_layers": 8, "num_heads": 6, "d_kv": 64}, ALL),
    "t5": (
        "seq2seq",
        {"d_model": 768, "d_ff": 3072, "num_layers": 6, "num_heads": 12, "d_kv": 64, "decoder_start_token_id": 0},
        ALL,
    ),
    "llama": ("sequence-classification", {**D, "pad_token_id": 0}, FULL),
    "granitemoe": ("causal-lm", {**NARROW, **GROUPED, **LOCAL_EXPERTS}, ALL),
    "glm": ("causal-lm", {**D, "num_key_value_heads": 2, "head_dim": 64, "pad_token_id": 0}, ALL),
    "persimmon": ("causal-lm", D, FULL),
    "helium": ("causal-lm", {**D, **ALL_HEADS, "head_dim": 64}, ALL),
    "exaone4": ("causal-lm", {**D, **GROUPED}, ALL),
    "olmoe": ("causal-lm", {**D, **ALL_HEADS, **EXPERTS, "intermediate_size": 512}, ALL),
    "led": ("seq2seq", {**S, "attention_window": [256] * 6}, EAGER),
    "big_bird": ("masked-lm", B, EAGER),
    "gpt_oss": ("causal-lm", {**NARROW, **GROUPED, "num_local_experts": 8, "head_dim": 64}, EAGER),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "bf16": {"precision": "bf16", "micro_batch": 4, "length": 512, "eval_micro_batch": 4},
    "fp32 eager": {"precision": "fp32", "attention": "eager", "micro_batch": 4, "length": 256},
    "bf16-true checkpointed": {
        "precision": "bf16-true", "micro_batch": 8, "length": 512, "checkpointing": True, "accumulation": 2,
        "eval_micro_batch": 8,
    },
    "lora": {"precision": "bf16", "micro_batch": 4, "length": 512, "lora_rank": 8, "lora_dropout": True},
}  # fmt: skip


_ATTENTION = "q_proj k_proj v_proj o_proj out_proj query key value c_attn query_key_value q k v o"


def attention_projections(architecture: Architecture) -> tuple[str, ...]:
    """What many published runs adapt."""
    return tuple(name for name in architecture.linear_names() if name in _ATTENTION.split())


def workload(config: dict[str, Any], task: str, setting: str) -> Workload:
    architecture, reason = read_architecture(config, task)
    assert architecture is not None, reason
    values = dict(SETTINGS[setting])
    values["length"] = min(values["length"], (architecture.max_positions or 514) - 2)
    if "lora_rank" in values:
        values["lora_targets"] = attention_projections(architecture)
    return Workload(
        architecture=architecture,
        target_length=values["length"] * 3 // 4,
        task=task,
        model_config=json.dumps(config, sort_keys=True),
        **values,
    )


def _written(family: str, values: dict[str, Any]) -> dict[str, Any]:
    """The config.json that transformers writes, without what it leaves empty."""
    from transformers import AutoConfig

    sizes = {"vocab_size": 32000, **values}
    config = json.loads(AutoConfig.for_model(family, **sizes).to_json_string(use_diff=False))
    kept = {key: value for key, value in config.items() if value is not None and key != "transformers_version"}
    for key in ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"):
        if isinstance(kept.get(key), int) and kept[key] >= kept["vocab_size"]:
            kept[key] = 0
    return {**kept, "model_type": family}


def _record() -> Iterator[dict[str, Any]]:
    from trainwiz.core.estimate.trace.replay import trace_full
    from trainwiz.core.tracing.request import TraceRequest

    # What a step computes, moves and launches was counted by a tracer of 2026-11-26, which the formulas were fitted to.
    counted = {
        one["family"]: {
            name: {key: trace[key] for key in ("flops", "moved_bytes", "kernels")}
            for name, trace in one["traces"].items()
        }
        for one in json.loads(FILE.read_text(encoding="utf-8"))
    }
    for family, (task, values, settings) in FAMILIES.items():
        config = _written(family, values)
        traces = {}
        for setting in settings:
            request = TraceRequest.of(workload(config, task, setting))
            assert request is not None
            trace = trace_full(request)
            traces[setting] = {
                "training": trace.allocated_bytes,
                "evaluation": max((moment.bytes for moment in trace.evaluation), default=None),
                "reserved": trace.replay.likely if trace.replay else None,
                "parameters": trace.parameters,
                **counted[family][setting],
            }
        yield {"family": family, "task": task, "config": config, "traces": traces}


def main() -> None:
    """Goes family by family; what is written is whole."""
    FILE.write_text("[\n" + ",\n".join(json.dumps(one) for one in _record()) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
