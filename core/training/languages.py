"""Languages of a multilingual tokenizer (NLLB, M2M100, mBART): a token in front of each text names its language."""

from __future__ import annotations

from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.errors import UsageError
from trainwiz.core.findings import Finding
from transformers import PreTrainedTokenizerBase


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
            message = (
                f"the tokenizer of {tokenizer.name_or_path} is multilingual and must know the {side} language: "
                f"give {key} (for NLLB a code such as {example})."
            )
            findings.append(Finding("missing_language", "error", key, message))
            continue
        if not _knows(tokenizer, language):
            message = f"the tokenizer of {tokenizer.name_or_path} knows no language {language!r} ({key})."
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
