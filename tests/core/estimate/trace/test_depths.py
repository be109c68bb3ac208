"""Which shallow versions stand for a model, by its config."""

from __future__ import annotations

from typing import Any

from trainwiz.core.estimate.trace.layers import Stack, shallow_versions, with_depths
from transformers import AutoConfig

from tests.each import each


def versions_of(model_type: str, **values: Any) -> Any:
    return shallow_versions(AutoConfig.for_model(model_type, **values))


@each(
    ("model_type", "values", "first", "second", "times"),
    [
        ("llama", {"num_hidden_layers": 33}, (2,), (3,), 31),
        ("gemma2", {"num_hidden_layers": 27}, (3,), (5,), 12),
        ("gemma3_text", {"num_hidden_layers": 62}, (8,), (14,), 9),
        ("modernbert", {"num_hidden_layers": 22}, (4,), (7,), 6),
        ("qwen2_moe", {"num_hidden_layers": 24, "decoder_sparse_step": 2}, (2,), (4,), 11),
        ("deepseek_v3", {"num_hidden_layers": 61, "first_k_dense_replace": 3}, (4,), (5,), 57),
        ("longformer", {"num_hidden_layers": 12, "attention_window": [64] * 12}, (2,), (3,), 10),
        ("m2m_100", {"encoder_layers": 24, "decoder_layers": 24, "num_hidden_layers": 24}, (2, 2), (3, 3), 22),
        ("bart", {"encoder_layers": 24, "decoder_layers": 12}, (4, 2), (6, 3), 10),
        ("t5", {"num_layers": 24}, (2, 2), (3, 3), 22),
    ],
)
def test_depths_cover_the_pattern(
    model_type: str, values: dict[str, Any], first: tuple[int, ...], second: tuple[int, ...], times: int
) -> None:
    found = versions_of(model_type, **values)
    assert (found.first, found.second, found.times) == (first, second, times)
    for stack, one, other in zip(found.stacks, first, second, strict=True):
        assert one + times * (other - one) == stack.layers
        assert one >= stack.prefix + stack.period


@each(
    ("model_type", "values"),
    [
        ("llama", {"num_hidden_layers": 1}),
        ("llama", {"num_hidden_layers": 6}),
        ("marian", {"encoder_layers": 4, "decoder_layers": 4}),
        ("funnel", {}),
    ],
)
def test_where_nothing_is_saved_or_known_there_are_none(model_type: str, values: dict[str, Any]) -> None:
    assert versions_of(model_type, **values) is None


def rebuilt(values: dict[str, Any], depths: tuple[int, ...]) -> Any:
    whole = AutoConfig.for_model(**values)
    found = shallow_versions(whole)
    assert found is not None
    return AutoConfig.for_model(**with_depths(values, whole, found.stacks, depths))


def test_a_config_of_other_depths() -> None:
    """Both names of a depth are changed, and what is said of each layer is said of the first ones."""
    both = {"model_type": "marian", "encoder_layers": 24, "decoder_layers": 24, "num_hidden_layers": 24}
    marian = rebuilt(both, (3, 2))
    assert (marian.encoder_layers, marian.decoder_layers, marian.num_hidden_layers) == (3, 2, 3)
    assert rebuilt({"model_type": "gpt2", "num_hidden_layers": 24}, (3,)).n_layer == 3
    t5 = rebuilt({"model_type": "t5", "num_layers": 24}, (2, 3))
    assert (t5.num_layers, t5.num_decoder_layers) == (2, 3)
    kinds = ["sliding_attention", "full_attention"] * 13
    gemma = {"model_type": "gemma2", "num_hidden_layers": 26, "layer_types": kinds}
    assert rebuilt(gemma, (4,)).layer_types == kinds[:4]
    neo = {"model_type": "gpt_neo", "num_layers": 24, "attention_types": [[["global", "local"], 12]]}
    assert rebuilt(neo, (4,)).attention_layers == ["global", "local"] * 2
    # The config that was given stays as it is.
    values = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "num_hidden_layers": 62}}
    assert rebuilt(values, (8,)).text_config.num_hidden_layers == 8
    assert values["text_config"] == {"model_type": "gemma3_text", "num_hidden_layers": 62}
    # Depths that leave whole patterns away.
    assert Stack(("n",), 26, 0, 6).depths() == [8, 14, 20, 26] and Stack(("n",), 14, 3, 1).depths() == [4, 5, 6, 7]
