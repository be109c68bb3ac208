"""Languages of a multilingual tokenizer (NLLB, M2M100, mBART): a token in front of each text names its language."""

from __future__ import annotations

from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.errors import UsageError
from trainwiz.core.findings import Finding
from trainwiz.core.language import mark, tr
from transformers import PreTrainedTokenizerBase

NEEDS_SOURCE = mark(
    "the tokenizer of {name} is multilingual and must know the source language: "
    "give {key} (for NLLB a code such as {example})."
)
NEEDS_TARGET = mark(
    "the tokenizer of {name} is multilingual and must know the target language: "
    "give {key} (for NLLB a code such as {example})."
)


def set_languages(tokenizer: PreTrainedTokenizerBase, config: RunConfig) -> None:
    """Give the tokenizer the languages of the run; nothing for one that knows none. Raises UsageError."""
    if config.task != "seq2seq" or not hasattr(tokenizer, "set_src_lang_special_tokens"):
        return
    findings = []
    for side, attribute in (("source", "src_lang"), ("target", "tgt_lang")):
        key = f"model.{side}_language"
        language = getattr(config.model, f"{side}_language")
        if language is None:
            example = "zho_Hans" if side == "source" else "eng_Latn"
            form = NEEDS_SOURCE if side == "source" else NEEDS_TARGET
            message = tr(form, name=tokenizer.name_or_path, key=key, example=example)
            findings.append(Finding("missing_language", "error", key, message))
            continue
        if not _knows(tokenizer, language):
            message = tr(
                "the tokenizer of {name} knows no language {language} ({key}).",
                name=tokenizer.name_or_path,
                language=repr(language),
                key=key,
            )
            findings.append(Finding("unknown_language", "error", key, message))
            continue
        setattr(tokenizer, attribute, language)
    if findings:
        raise UsageError(findings)


def _knows(tokenizer: Any, language: str) -> bool:
    codes = getattr(tokenizer, "lang_code_to_token", None) or getattr(tokenizer, "lang_code_to_id", None)
    if codes:
        return language in codes
    return language in tokenizer.get_vocab()


def forced_first_token(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The token that every target of this tokenizer begins with, which names its language; None where there is none."""
    if not hasattr(tokenizer, "set_src_lang_special_tokens"):
        return None
    first = int(tokenizer(text_target="a")["input_ids"][0])
    return first if first in tokenizer.all_special_ids and first != tokenizer.eos_token_id else None
