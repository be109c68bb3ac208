"""Parameter counts against the real transformers models, built on the meta device (no memory, no weights)."""

from trainwiz.core.estimate.architecture import attention_projections, lora_parameters
from trainwiz.core.estimate.families import read_architecture

from tests.each import each

ESM = {"model_type": "esm", "vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32, "max_position_embeddings": 1026}

SMALL = {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
GPT = {"n_embd": 96, "n_layer": 3, "n_head": 4, "vocab_size": 1000}
KIN = {**SMALL, "num_key_value_heads": 2, "intermediate_size": 200, "vocab_size": 1000}
PAIR = {
    "d_model": 96, "vocab_size": 1000, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 6, "encoder_ffn_dim": 200, "decoder_ffn_dim": 300,
}  # fmt: skip
CONFIGS = {
    "esm2-650m": ESM | {
        "hidden_size": 1280, "num_hidden_layers": 33, "num_attention_heads": 20, "intermediate_size": 5120,
        "position_embedding_type": "rotary", "token_dropout": True,
    },
    "esm-absolute": ESM | SMALL | {
        "num_attention_heads": 6, "intermediate_size": 200, "position_embedding_type": "absolute",
        "emb_layer_norm_before": True,
    },
    "bert": {"model_type": "bert", **SMALL},
    "gpt2": {"model_type": "gpt2", **GPT},
    "gpt_bigcode": {"model_type": "gpt_bigcode", **GPT},
    "gpt_neox": {"model_type": "gpt_neox", **SMALL, "intermediate_size": 300, "vocab_size": 1000},
    "t5": {"model_type": "t5", "d_model": 96, "d_kv": 16, "num_heads": 4, "d_ff": 300, "num_layers": 3},
    "t5-gated": {
        "model_type": "t5", "d_model": 96, "num_layers": 2, "num_decoder_layers": 3, "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
    },
    "m2m_100": {"model_type": "m2m_100", **PAIR},
    "marian": {"model_type": "marian", **PAIR, "pad_token_id": 999},
    **{name: {"model_type": name, **KIN} for name in ("llama", "mistral", "qwen2")},
    "llama-biased-tied": {
        "model_type": "llama", **KIN, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
    },
}  # fmt: skip


def meta_model(config: dict):
    import torch
    import transformers

    loaded = transformers.AutoConfig.for_model(**config)
    masked = config["model_type"] in {"esm", "bert"}
    kind = (
        transformers.AutoModelForMaskedLM
        if masked
        else transformers.AutoModelForSeq2SeqLM
        if loaded.is_encoder_decoder
        else transformers.AutoModelForCausalLM
    )
    with torch.device("meta"):
        return kind.from_config(loaded)


@each("name", CONFIGS)
def test_counts_equal_the_real_model(name: str) -> None:
    architecture, reason = read_architecture(CONFIGS[name])
    assert architecture is not None, reason
    model = meta_model(CONFIGS[name])
    assert architecture.parameters == sum(p.numel() for p in model.parameters())
    assert architecture.trainable_parameters == sum(p.numel() for p in model.parameters() if p.requires_grad)
    import torch

    linear = sum(
        module.weight.numel()
        for module in model.modules()
        if isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"
    )
    contact_head = sum(p.numel() for n, p in model.named_parameters() if n.endswith("regression.weight"))
    assert architecture.linear_parameters == linear - contact_head


@each("name", ["llama", "gpt2", "t5", "m2m_100", "gpt_neox", "esm-absolute"])
def test_lora_counts_equal_peft(name: str) -> None:
    import peft

    architecture, _ = read_architecture(CONFIGS[name])
    assert architecture is not None
    targets = attention_projections(architecture)
    model = peft.get_peft_model(meta_model(CONFIGS[name]), peft.LoraConfig(r=8, target_modules=list(targets)))
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert lora_parameters(architecture, 8, targets) == trainable


@each(
    ("config", "words"),
    [
        ({}, "no model_type"),
        ({"model_type": "mamba", "vocab_size": 100, "hidden_size": 64}, "'mamba'"),
        ({"model_type": "llama", "hidden_size": 64}, "num_attention_heads"),
        ({"model_type": "bert", "hidden_size": "wide"}, "do not go together"),
        ({"model_type": "bert", "num_attention_heads": 0}, "do not go together"),
        ({"model_type": "bert", "num_hidden_layers": 0}, "below 1"),
    ],
)
def test_what_cannot_be_read_says_why(config: dict, words: str) -> None:
    architecture, reason = read_architecture(config)
    assert architecture is None
    assert words in reason


@each("size", [float("inf"), 1e300, 10**300, -(10**300), float("nan"), "many", [3]])
def test_a_size_that_is_none_is_a_reason(size: object) -> None:
    config = {"model_type": "esm", "vocab_size": 33, "hidden_size": size}
    assert read_architecture(config) == (None, "the esm config has values that do not go together")
