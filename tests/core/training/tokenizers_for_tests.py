"""Tokenizers of the kinds that models bring, made on the spot: nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from trainwiz.core.data.text_store import MemoryTexts, TextStore
from trainwiz.core.data.texts import TextRows
from trainwiz.core.training.tokenizer import trained_tokenizer
from transformers import PreTrainedTokenizerFast

SENTENCES = [
    f"the {a} {b} sees {number} stones" for number, a in enumerate(["old", "red", "tall"] * 20) for b in ("fox", "cat")
]
CHINESE = ["你好，世界。", "我喜欢学习机器翻译。", "今天天气很好。"]


def store(texts: list[str]) -> TextStore:
    return MemoryTexts(pa.array(texts, pa.large_string()))


def text_rows(texts: list[str], targets: list[str] | None = None, held_out: int = 0) -> TextRows:
    """The last `held_out` rows evaluate."""
    train, held = np.arange(len(texts) - held_out), np.arange(len(texts) - held_out, len(texts))
    return TextRows(store(texts), None if targets is None else store(targets), train, held)


def small_tokenizer(folder: Path, *, ends_texts: bool = False, vocabulary: int = 400) -> PreTrainedTokenizerFast:
    return trained_tokenizer(
        folder / "tokenizer", text_rows(SENTENCES + CHINESE), vocabulary, "seq2seq" if ends_texts else "causal-lm"
    )
