"""The table of what transformers cannot do, against the transformers that is installed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
from trainwiz.core.catalog.model_config import (
    NO_CHECKPOINTING,
    NO_FLASH,
    NO_LABEL_COUNT,
    NO_SDPA,
    has_attention,
    has_checkpointing,
)

_COMMON = (
    "albert bart bert bloom deberta-v2 distilbert esm falcon gemma2 gemma3_text gpt2 gpt_neox gpt_oss gptj led llama "
    "longt5 m2m_100 marian mistral mixtral mt5 opt phi qwen2 qwen3 roberta t5"
)
COMMON = _COMMON.split()


def _classes(model_types: set[str] | None = None) -> Iterator[tuple[str, type]]:
    import transformers
    from transformers.models.auto import modeling_auto

    for task in ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SEQUENCE_CLASSIFICATION"):
        for model_type, names in getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES").items():
            if model_types is None or model_type in model_types:
                for name in (names,) if isinstance(names, str) else names:
                    yield model_type, getattr(transformers, name)


def _flash(model: type) -> bool:
    kernels = model._compatible_flash_implementations  # type: ignore[attr-defined]
    return bool(model._supports_flash_attn) and (kernels is None or "flash_attention_2" in kernels)  # type: ignore[attr-defined]


def _takes_label_count(model: type) -> bool:
    """As the Trainer looks for it."""
    stated = getattr(model, "accepts_loss_kwargs", None)
    parameters = inspect.signature(model.forward).parameters.values()  # type: ignore[attr-defined]
    return stated if stated is not None else any(one.kind == one.VAR_KEYWORD for one in parameters)


def _compare(model_types: set[str] | None) -> set[str]:
    seen = set()
    for model_type, model in _classes(model_types):
        seen.add(model_type)
        assert has_attention(model_type, "sdpa") == model._supports_sdpa, model  # type: ignore[attr-defined]
        assert has_attention(model_type, "flash_attention_2") == _flash(model), model
        assert has_checkpointing(model_type) == model.supports_gradient_checkpointing, model  # type: ignore[attr-defined]
        if not model.__name__.endswith("ForSequenceClassification"):
            assert (model_type not in NO_LABEL_COUNT) == _takes_label_count(model), model
    return seen


def test_common_types_are_as_transformers_has_them() -> None:
    assert _compare(set(COMMON)) == set(COMMON)
    assert all(has_attention(kind, "eager") for kind in (*COMMON, None))


@pytest.mark.all
def test_every_type_is_as_transformers_has_it() -> None:
    assert _compare(None) >= NO_SDPA | NO_FLASH | NO_CHECKPOINTING | NO_LABEL_COUNT
