"""What is special about ESM-2: its alphabet, which is built in and must be the model's own."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainwiz.core.data.proteins import ESM_VOCABULARY, MASK, PAD
from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr
from transformers import EsmTokenizer


def esm_tokenizer() -> EsmTokenizer:
    """ESM-2's tokenizer with the alphabet that is built in; saved beside the weights."""
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocab.txt"
        vocabulary.write_text("\n".join(ESM_VOCABULARY), encoding="utf-8")
        return EsmTokenizer(str(vocabulary))  # type: ignore[no-untyped-call]


def check_esm(kind: str, values: Mapping[str, Any]) -> None:
    """Raises UsageError for a model that is no ESM-2 or counts its letters otherwise."""
    if kind != "esm":
        raise usage_error(
            "model_not_supported",
            "model.name",
            tr(
                "masked-LM training knows ESM-2 models; this one is of type {kind}. Choose an ESM-2 model (--model).",
                kind=repr(kind),
            ),
        )
    expected = {"vocab_size": len(ESM_VOCABULARY), "pad_token_id": PAD, "mask_token_id": MASK}
    wrong = [
        tr("{key} is {value}, not {wanted}", key=key, value=values.get(key), wanted=wanted)
        for key, wanted in expected.items()
        if values.get(key) != wanted
    ]
    if wrong:
        message = tr("the model does not use ESM-2's alphabet: {problems}.", problems="; ".join(wrong))
        raise usage_error("alphabet_mismatch", "model.architecture", message)
