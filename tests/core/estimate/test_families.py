"""Parameter counts of every family against the models of transformers, built without weights."""

import json
from typing import Any

import pytest
from trainwiz.core.estimate.decoders import FAMILIES
from trainwiz.core.estimate.encoders import BERT_LIKE
from trainwiz.core.estimate.families import read_architecture

from tests.each import each

EXACT: dict[str, tuple[str, ...]] = {
    "causal-lm": (
        "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3", "granite", "seed_oss",
        "gemma", "gemma2", "gemma3_text", "phi", "phi3", "olmo", "olmo2", "olmo3", "cohere", "stablelm", "starcoder2",
        "opt", "gptj", "codegen", "gpt_neo", "bloom", "mpt", "falcon", "gpt2", "gpt_bigcode", "gpt_neox",
    ),
    "masked-lm": ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "albert", "mpnet", "modernbert"),
    "seq2seq": (
        "t5", "mt5", "umt5", "bart", "mbart", "pegasus", "blenderbot", "blenderbot-small", "plbart", "marian", "m2m_100",
    ),
    "sequence-classification": ("bert", "roberta", "distilbert", "electra", "albert", "llama", "gpt2", "t5", "bart"),
}  # fmt: skip
GUESSED = {**dict.fromkeys(("olmoe", "glm", "persimmon", "helium", "exaone4", "arcee"), 0.001), "big_bird": 0.02}
"""Read by common keys: how far off they may be."""
DEPTHS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers"
)  # fmt: skip


def counted(family: str, task: str) -> tuple[int, int, dict[str, Any]]:
    """(parameters, frozen ones, the config as transformers writes it) of a shallow model."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(family)
    for name in DEPTHS:
        if hasattr(config, name):
            setattr(config, name, 2)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:2]
    makers = {
        "causal-lm": transformers.AutoModelForCausalLM,
        "masked-lm": transformers.AutoModelForMaskedLM,
        "seq2seq": transformers.AutoModelForSeq2SeqLM,
        "sequence-classification": transformers.AutoModelForSequenceClassification,
    }
    with torch.device("meta"):
        model = makers[task].from_config(config)
    parameters = list(model.parameters())
    frozen = sum(one.numel() for one in parameters if not one.requires_grad)
    return sum(one.numel() for one in parameters), frozen, json.loads(config.to_json_string(use_diff=False))


@each(("task", "family"), [(task, family) for task, names in EXACT.items() for family in names])
def test_parameters_are_exact(task: str, family: str) -> None:
    parameters, frozen, config = counted(family, task)
    architecture, reason = read_architecture(config, task)
    assert architecture is not None, reason
    assert (architecture.parameters, architecture.frozen_parameters) == (parameters, frozen)
    assert not architecture.approximate or family in ("mpnet", "modernbert")


@each("family", GUESSED)
def test_other_families_are_read_by_common_keys(family: str) -> None:
    task = "masked-lm" if family == "big_bird" else "causal-lm"
    parameters, _, config = counted(family, task)
    architecture, reason = read_architecture(
        {**config, "architectures": ["ForMaskedLM" if task == "masked-lm" else "X"]}
    )
    assert architecture is not None, reason
    assert architecture.approximate
    assert architecture.parameters == pytest.approx(parameters, rel=GUESSED[family])


LLAMA_LIKE = {"vocab_size": 1000, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


def test_an_unknown_model_of_two_stacks() -> None:
    config = {"model_type": "made_up", "is_encoder_decoder": True, "vocab_size": 1000, "d_model": 64, "encoder_layers": 3,
              "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128,
              "decoder_ffn_dim": 128}  # fmt: skip
    architecture, _ = read_architecture(config)
    assert architecture is not None and architecture.approximate
    assert architecture.kind == "encoder-decoder"
    assert [block.layers for block in architecture.blocks] == [3, 2]


def test_the_text_part_of_a_model_of_several() -> None:
    config = {"model_type": "made_up_vision", "text_config": {**LLAMA_LIKE, "model_type": "made_up"}}
    architecture, _ = read_architecture(config)
    assert architecture is not None
    assert architecture.layers == 2


@each("model_type", ["mamba", "made_up", "timm"])
def test_what_has_no_heads_is_no_transformer(model_type: str) -> None:
    config = {"model_type": model_type, "vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2}
    architecture, reason = read_architecture(config)
    assert architecture is None
    assert f"'{model_type}'" in reason and "num_attention_heads" in reason


@each("value", [None, [], {}, "x", -1, 0, 1e30, True])
@each("key", ["num_attention_heads", "vocab_size", "intermediate_size", "num_key_value_heads", "num_experts"])
@each("model_type", ["made_up", "qwen3_moe"])
def test_bad_values_never_raise(model_type: str, key: str, value: Any) -> None:
    architecture, reason = read_architecture({**LLAMA_LIKE, "model_type": model_type, key: value})
    assert (architecture is None) == bool(reason)
    if value in (-1, 0) and value is not False and architecture is not None:
        # A key that this family does not have.
        assert key == "num_experts"


def test_experts_are_whole_in_memory_and_a_few_in_work() -> None:
    config = {
        **LLAMA_LIKE,
        "model_type": "mixtral",
        "intermediate_size": 128,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }
    architecture, _ = read_architecture(config)
    assert architecture is not None
    block = architecture.blocks[0]
    assert block.expert_parameters == 8 * 3 * 64 * 128
    assert block.linear_parameters - block.active_linear_parameters == 6 * 3 * 64 * 128
    assert "gate_proj" not in architecture.linear_names() and "q_proj" in architecture.linear_names()


def test_layers_without_experts_come_first() -> None:
    config = {**LLAMA_LIKE, "num_hidden_layers": 6, "model_type": "made_up", "intermediate_size": 128,
              "n_routed_experts": 4, "num_experts_per_tok": 2, "first_k_dense_replace": 2}  # fmt: skip
    architecture, _ = read_architecture(config)
    assert architecture is not None
    assert [(block.layers, block.experts) for block in architecture.blocks] == [(2, 0), (4, 4)]


def test_every_name_of_berts_kin_has_a_reader() -> None:
    for family in BERT_LIKE:
        architecture, reason = read_architecture({"model_type": family, "vocab_size": 100})
        assert architecture is not None, reason


def test_an_unknown_decoder_is_read_as_one_of_llamas_kin() -> None:
    config = {**LLAMA_LIKE, "intermediate_size": 176}
    guessed, llama = (read_architecture({**config, "model_type": kind})[0] for kind in ("made_up", "llama"))
    assert guessed is not None and llama is not None
    assert guessed.parameters == llama.parameters and guessed.linear_names() == llama.linear_names()
    assert guessed.approximate and not llama.approximate


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


def test_experts_without_a_gate_leave_attention_alone_to_adapters() -> None:
    config = {**LLAMA_LIKE, "model_type": "made_up", "intermediate_size": 128, "hidden_act": "relu2", "num_experts": 4}
    architecture, _ = read_architecture(config)
    assert architecture is not None and architecture.linear_names() == ("q_proj", "k_proj", "v_proj", "o_proj")
