"""Special tokens of a model and of its tokenizer: brought together where the model starts from scratch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr
from transformers import PreTrainedTokenizerBase

SPECIAL = ("pad_token_id", "bos_token_id", "eos_token_id")
FOLLOWS_ANOTHER = ("decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id")
"""Keys that name a token by the part it plays: opus-mt starts its decoder with the padding, NLLB with the end."""


def with_token_ids(values: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """The architecture with the special tokens of `tokenizer`.

    A key that names the architecture's own padding, beginning or end (as decoder_start_token_id
    does) names the tokenizer's after this. An encoder-decoder without a decoder start gets the
    padding, as T5 has it.
    """
    named: dict[str, int | None] = {key: getattr(tokenizer, key) for key in SPECIAL}
    parts = {values[key]: key for key in reversed(SPECIAL) if isinstance(values.get(key), int)}
    changed = dict(values)
    for key, number in named.items():
        own = values.get(key)
        if number is not None and not (isinstance(own, list) and number in own):
            changed[key] = number
    for key in FOLLOWS_ANOTHER:
        part = parts.get(values.get(key))
        if part is not None and named[part] is not None:
            changed[key] = named[part]
    if changed.get("is_encoder_decoder") and changed.get("decoder_start_token_id") is None:
        changed["decoder_start_token_id"] = changed.get("pad_token_id")
    return changed


def check_vocabulary(vocabulary: int, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises UsageError when the tokenizer makes numbers that the model has no embedding for."""
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= vocabulary:
        raise usage_error(
            "tokenizer_too_large",
            "model.tokenizer",
            tr(
                "The tokenizer has {entries} entries and the model embeds {vocabulary}; choose a tokenizer that fits "
                "(model.tokenizer), or raise model.architecture_overrides.vocab_size for a model from scratch.",
                entries=f"{largest + 1:,}",
                vocabulary=f"{vocabulary:,}",
            ),
        )
