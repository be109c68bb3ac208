"""Families: what is read of a config against the models of transformers, and the formulas against recorded traces.

The limit of the formulas is 15 %; the attentions of DeBERTa (disentangled) and LED (windows and global tokens) have a
wider one, for the formulas know nothing of them.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

import pytest
from trainwiz.core.estimate.architecture import Architecture
from trainwiz.core.estimate.decoders import FAMILIES
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.memory import APPROXIMATE_SPREAD, estimate_evaluation, estimate_memory
from trainwiz.core.estimate.peak import evaluation_peak, peak_of

from tests.each import each
from tools.benchmarks.family_traces import FILE, workload

EXACT: dict[str, tuple[str, ...]] = {
    "causal-lm": (
        "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3", "granite", "seed_oss",
        "gemma", "gemma2", "gemma3_text", "phi", "phi3", "olmo2", "olmo3", "starcoder2",
        "opt", "mpt", "gpt2", "gpt_bigcode", "gpt_neox",
        "qwen3_5_text", "gemma4_text", "gpt_oss",
    ),
    "masked-lm": ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "albert", "mpnet", "modernbert"),
    "seq2seq": (
        "t5", "mt5", "umt5", "bart", "mbart", "marian", "m2m_100",
    ),
    "sequence-classification": ("bert", "roberta", "distilbert", "electra", "albert", "llama", "gpt2", "t5", "bart", "modernbert"),
    "token-classification": ("bert", "roberta", "distilbert", "albert", "llama", "gpt2", "modernbert"),
}  # fmt: skip
GUESSED = {**dict.fromkeys(("olmoe", "glm", "persimmon", "helium", "exaone4", "arcee"), 0.001), "big_bird": 0.02}
"""Read by common keys: how far off they may be."""
DEPTHS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers"
)  # fmt: skip


def built(config: Any, task: str = "") -> Any:
    """The model of transformers, without numbers; of a config that names no task as its family is pretrained."""
    import torch
    import transformers

    if not task:
        task = "masked-lm" if config.model_type == "esm" else "seq2seq" if config.is_encoder_decoder else "causal-lm"
    makers = {
        "causal-lm": transformers.AutoModelForCausalLM,
        "masked-lm": transformers.AutoModelForMaskedLM,
        "seq2seq": transformers.AutoModelForSeq2SeqLM,
        "sequence-classification": transformers.AutoModelForSequenceClassification,
        "token-classification": transformers.AutoModelForTokenClassification,
    }
    with torch.device("meta"):
        return makers[task].from_config(config)


def counted(model: Any) -> tuple[int, int]:
    """(parameters, frozen ones)."""
    sizes = [(one.numel(), one.requires_grad) for one in model.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, trains in sizes if not trains)


def shallow(family: str) -> Any:
    """The config of two layers that transformers makes by itself."""
    import transformers

    config = transformers.AutoConfig.for_model(family)
    for name in DEPTHS:
        if hasattr(config, name):
            setattr(config, name, 2)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:2]
    return config


def read(config: dict[str, Any], task: str = "") -> Architecture:
    architecture, reason = read_architecture(config, task)
    assert architecture is not None, reason
    return architecture


@each(("task", "family"), [(task, family) for task, names in EXACT.items() for family in names])
def test_parameters_are_exact(task: str, family: str) -> None:
    config = shallow(family)
    architecture = read(json.loads(config.to_json_string(use_diff=False)), task)
    assert (architecture.parameters, architecture.frozen_parameters) == counted(built(config, task))
    assert not architecture.approximate or family in ("mpnet", "modernbert", "gpt_oss")


ESM = {"model_type": "esm", "vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32, "max_position_embeddings": 1026}
SMALL = {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 200}
CONFIGS: tuple[dict[str, Any], ...] = (
    ESM | SMALL | {"position_embedding_type": "rotary", "token_dropout": True},
    ESM | SMALL | {"position_embedding_type": "absolute", "emb_layer_norm_before": True},
    {
        "model_type": "t5", "d_model": 96, "num_layers": 2, "num_decoder_layers": 3, "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
    },
    {
        "model_type": "m2m_100", "d_model": 96, "vocab_size": 1000, "encoder_layers": 2, "decoder_layers": 3,
        "encoder_attention_heads": 4, "decoder_attention_heads": 6, "encoder_ffn_dim": 200, "decoder_ffn_dim": 300,
    },
    {
        "model_type": "llama", **SMALL, "num_key_value_heads": 2, "vocab_size": 1000, "attention_bias": True,
        "mlp_bias": True, "tie_word_embeddings": True,
    },
)  # fmt: skip


@each("config", CONFIGS)
def test_parameters_of_unusual_configs_are_exact(config: dict[str, Any]) -> None:
    import transformers

    architecture, model = read(config), built(transformers.AutoConfig.for_model(**config))
    assert (architecture.parameters, architecture.frozen_parameters) == counted(model)


@each("family", GUESSED)
def test_other_families_are_read_by_common_keys(family: str) -> None:
    task, classes = ("masked-lm", ["ForMaskedLM"]) if family == "big_bird" else ("causal-lm", ["X"])
    config = shallow(family)
    architecture = read({**json.loads(config.to_json_string(use_diff=False)), "architectures": classes})
    assert architecture.approximate
    assert architecture.parameters == pytest.approx(counted(built(config, task))[0], rel=GUESSED[family])


LLAMA_LIKE = {"vocab_size": 1000, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


@each("value", [None, {}, "x", -1, 1e30])
@each("key", ["num_attention_heads", "vocab_size", "num_experts"])
@each("model_type", ["made_up", "qwen3_moe"])
def test_bad_values_never_raise(model_type: str, key: str, value: Any) -> None:
    architecture, reason = read_architecture({**LLAMA_LIKE, "model_type": model_type, key: value})
    assert (architecture is None) == bool(reason)
    if value == -1 and architecture is not None:
        # A key that this family does not have.
        assert key == "num_experts"


@each(
    "more", [{}, {"hidden_act": "relu2"}, {"hidden_act": "gelu", "layer_norm_eps": 1e-5}, {"is_encoder_decoder": True}]
)
@each("model_type", ["made_up", "made_up_bert", "chatglm", "qwen", "esm", "bert", "t5", "bart", *FAMILIES])
def test_adapters_can_sit_on_the_matrices_that_are_counted_and_on_no_others(model_type: str, more: dict) -> None:
    """An unknown family without a gate had three feed-forward modules for its two matrices: LoRA counted too much."""
    config = {**LLAMA_LIKE, "intermediate_size": 176, "padded_vocab_size": 1000, "model_type": model_type, **more}
    architecture, reason = read_architecture(config)
    assert architecture is not None, reason
    for block in architecture.blocks:
        assert sum(inputs * outputs for _, inputs, outputs in block.linears) == block.linear_parameters


QWEN: dict[str, Any] = {
    "model_type": "qwen", "architectures": ["QWenLMHeadModel"], "vocab_size": 151936, "kv_channels": 128,
    "tie_word_embeddings": False, "no_bias": True, "seq_length": 8192,
}  # fmt: skip
CHATGLM3: dict[str, Any] = {
    "model_type": "chatglm", "architectures": ["ChatGLMModel"], "padded_vocab_size": 65024, "hidden_size": 4096,
    "ffn_hidden_size": 13696, "num_layers": 28, "num_attention_heads": 32, "kv_channels": 128, "seq_length": 8192,
    "multi_query_attention": True, "multi_query_group_num": 2, "add_qkv_bias": True, "tie_word_embeddings": False,
}  # fmt: skip
NO_SIZES: tuple[Any, ...] = (float("inf"), 10**300, float("nan"), [3])


@each(("config", "words"), [
    ({}, "no model_type"),
    ({"model_type": "mamba", "vocab_size": 1, "hidden_size": 64, "num_hidden_layers": 2}, "num_attention_heads"),
    ({key: value for key, value in CHATGLM3.items() if key != "padded_vocab_size"}, "vocab_size"),
    ({"model_type": "llama", "hidden_size": 64}, "num_attention_heads"),
    ({"model_type": "bert", "hidden_size": "wide"}, "has inconsistent values"),
    ({"model_type": "bert", "num_attention_heads": 0}, "has inconsistent values"),
    ({"model_type": "bert", "num_hidden_layers": 0}, "below 1"),
    *(({"model_type": "esm", "vocab_size": 33, "hidden_size": size}, "has inconsistent values") for size in NO_SIZES),
])  # fmt: skip
def test_what_cannot_be_read_says_why(config: dict, words: str) -> None:
    architecture, reason = read_architecture(config)
    assert architecture is None
    assert words in reason


def test_gate_and_value_of_the_first_qwen_share_its_intermediate_size() -> None:
    sizes = {"hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "vocab_size": 152064}
    made = read({**QWEN, **sizes, "intermediate_size": 27392})
    assert (made.parameters, made.blocks[0].ffn) == (14_167_290_880, 13696)
    assert made.approximate, "no trace can be made of code that comes with a model"


def test_chatglm_has_padded_words_and_shared_keys() -> None:
    made = read(CHATGLM3)
    assert made.parameters == 6_243_584_000
    assert (made.vocabulary, made.blocks[0].kv_heads) == (65024, 2)
    assert {name: (first, second) for name, first, second in made.blocks[0].linears} == {
        "query_key_value": (4096, 4608),
        "self_attention.dense": (4096, 4096),
        "dense_h_to_4h": (4096, 2 * 13696),
        "dense_4h_to_h": (13696, 4096),
    }
    assert read({**CHATGLM3, "multi_query_attention": False}).blocks[0].kv_heads == 32


RECORDED: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
CASES = [(one, setting) for one in RECORDED for setting in one["traces"]]
LIMIT = 0.15
OUTLIER_LIMIT = 0.25
OUTLIERS = ("deberta-v2", "led")


def errors(one: dict[str, Any], setting: str) -> list[float]:
    """Relative, of training and of evaluation."""
    work, trace = workload(one["config"], one["task"], setting), one["traces"][setting]
    found = [peak_of(work).allocated_bytes / trace["training"] - 1]
    evaluating = evaluation_peak(work)
    if evaluating is not None:
        found.append(evaluating.allocated_bytes / trace["evaluation"] - 1)
    return found


@each(("one", "setting"), CASES)
def test_each_family(one: dict[str, Any], setting: str) -> None:
    limit = OUTLIER_LIMIT if one["family"] in OUTLIERS else LIMIT
    assert max(map(abs, errors(one, setting))) <= limit
    work, counted = workload(one["config"], one["task"], setting), one["traces"][setting]["parameters"]
    parameters = work.architecture.parameters + work.adapter_parameters
    assert parameters == pytest.approx(counted, rel=0.2 if work.architecture.approximate else 0)
    assert ("unknown model family" in estimate_memory(work).basis) == work.architecture.approximate


def test_the_errors_as_a_whole() -> None:
    known = [abs(error) for one, setting in CASES if not approximate(one) for error in errors(one, setting)]
    guessed = [abs(error) for one, setting in CASES if approximate(one) for error in errors(one, setting)]
    assert statistics.median(known) < 0.015
    assert sum(error < 0.05 for error in known) > 0.9 * len(known)
    assert sum(error < APPROXIMATE_SPREAD for error in guessed) > 0.9 * len(guessed)


def test_the_interval_holds_what_the_allocator_reserves() -> None:
    """nvidia-smi's figure: reserved memory of the replay, and a context in the middle of its range."""
    outside = []
    for one, setting in CASES:
        work, trace = workload(one["config"], one["task"], setting), one["traces"][setting]
        parts = [one for one in (estimate_memory(work), estimate_evaluation(work)) if one is not None]
        fullest = max(parts, key=lambda estimate: estimate.device_used_bytes)
        shown = trace["reserved"] + fullest.breakdown["context"]
        if not fullest.low_bytes <= shown <= fullest.high_bytes:
            outside.append((one["family"], setting, shown / fullest.device_used_bytes))
    assert len(outside) < 0.1 * len(CASES), outside


def approximate(one: dict[str, Any]) -> bool:
    return workload(one["config"], one["task"], next(iter(one["traces"]))).architecture.approximate
