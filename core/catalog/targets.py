"""Which modules of a model LoRA can adapt, and which of the names that were asked for it does not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainwiz.core.estimate.architecture import ALL_LINEAR, Architecture
from trainwiz.core.estimate.families import read_architecture

BESIDE_THE_BLOCKS: Mapping[str, tuple[str, ...]] = {
    "bert": ("word_embeddings", "position_embeddings", "token_type_embeddings", "transform.dense", "decoder"),
    "esm": ("word_embeddings", "lm_head.dense", "lm_head.decoder", "decoder"),
    "gpt2": ("wte", "wpe", "lm_head"),
    "gpt_bigcode": ("wte", "wpe", "lm_head"),
    "gpt_neox": ("embed_in", "embed_out"),
    "llama": ("embed_tokens", "lm_head"),
    "m2m_100": ("shared", "embed_tokens", "lm_head"),
    "marian": ("shared", "embed_tokens", "lm_head"),
    "mistral": ("embed_tokens", "lm_head"),
    "qwen2": ("embed_tokens", "lm_head"),
    "t5": ("shared", "embed_tokens", "relative_attention_bias", "lm_head"),
}
"""Model type -> embeddings and head: adapters on them are rare, and possible."""


def known_targets(architecture: Architecture | Mapping[str, Any]) -> tuple[str, ...]:
    """Module names of the blocks that LoRA can adapt, in the model's order; () for a family that is not known.

    `architecture` is one of the estimator, or a Hugging Face config as a dict.
    """
    known = _read(architecture)
    return () if known is None else known.linear_names()


def unknown_targets(architecture: Architecture | Mapping[str, Any], targets: Sequence[str]) -> tuple[str, ...]:
    """Those of `targets` that name no module of the model; () where the family is not known.

    A target names a module by the end of its path, as peft reads it: "q_proj", "self_attn.q_proj" and
    "model.layers.0.self_attn.q_proj" all do. peft adapts what it finds and says nothing of the rest.
    """
    known = _read(architecture)
    if known is None or tuple(targets) == ALL_LINEAR:
        return ()
    names = (*known.linear_names(), *BESIDE_THE_BLOCKS.get(known.model_type, ()))
    return tuple(target for target in targets if not any(_same(target, name) for name in names))


def _read(architecture: Architecture | Mapping[str, Any]) -> Architecture | None:
    return architecture if isinstance(architecture, Architecture) else read_architecture(architecture)[0]


def _same(target: str, name: str) -> bool:
    """One is the other, or the end of its path."""
    return target == name or name.endswith(f".{target}") or target.endswith(f".{name}")
