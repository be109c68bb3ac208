"""Whether a run may lay its rows end to end (data.packing), and what it says then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainwiz.core.data.joining import joins_texts
from trainwiz.core.findings import Finding
from trainwiz.core.language import tr
from trainwiz.core.plan.facts import Facts
from trainwiz.core.plan.words import percent

KEY = "data.packing"
_TRIED = """
    apertus arcee biogpt cohere ernie4_5 esm exaone4 gemma gemma3_text glm glm4 gpt2 gpt_bigcode gpt_neox granite helium
    llama ministral mistral olmo olmo2 olmo3 opt persimmon phi phi3 qwen2 qwen3 seed_oss smollm3 starcoder2
"""
TRIED = frozenset(_TRIED.split())
"""Types of models whose packed rows gave the logits of padded ones (transformers 5.23, a test goes through them). Others
drop the ends of the rows on the way to their attention (stablelm, nemotron), carry a state from row to row (mamba), or
round a row by what its neighbours choose (mixtures of experts)."""
SHARED = ("zero3", "fsdp")
"""Engines that hold a part of the weights, which the check before the first step cannot compute with alone."""


def packing_findings(facts: Facts) -> list[Finding]:
    config = facts.config
    if not config.data.packing:
        return []
    off = facts.remedy(tr("pad the rows"), {KEY: False})
    if joins_texts(config):
        message = tr("Texts are joined into sequences of one length, without padding: {key} changes nothing.", key=KEY)
        return [Finding("nothing_to_pack", "note", KEY, message, (off,))]
    problems = list(_problems(facts))
    if problems:
        remedies = [facts.remedy(words, changes) for _, words, changes in problems if changes and len(problems) == 1]
        message = " ".join(message for message, *_ in problems)
        return [Finding("packing_not_possible", "error", KEY, message, (off, *remedies))]
    return [Finding("packed", "note", KEY, _said(facts))]


def _problems(facts: Facts) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(sentence, words of a remedy, its changes, which may be none) for each thing in the way."""
    config, kind = facts.config, facts.model_type
    if config.task == "seq2seq":
        message = tr(
            "Rows of an encoder-decoder cannot lie end to end here: its two sides would end at different places."
        )
        yield message, "", {}
        return
    architecture = {**(config.model.architecture or {}), **config.model.architecture_overrides}
    if kind == "esm" and architecture.get("position_embedding_type", "absolute") != "rotary":
        # Its table of positions begins behind the padding's own; ESM-1b and ESM-1v are such.
        kind = "esm (position_embedding_type=absolute)"
    if kind is not None and kind not in TRIED:
        yield tr("Models of type {kind} were not tried with rows end to end.", kind=kind), "", {}
    if config.engine.attention == "eager":
        message = tr(
            "Eager attention computes every row with every other: rows end to end need sdpa or flash_attention_2."
        )
        yield message, tr("attention by sdpa"), {"engine.attention": "sdpa"}
    if config.engine.compile:
        message = tr("torch.compile would compile anew for each step of rows end to end.")
        yield message, tr("without torch.compile"), {"engine.compile": False}
    if config.engine.strategy in SHARED:
        message = tr(
            "With {strategy} each process holds a part of the weights: packing cannot be checked before the first step.",
            strategy=config.engine.strategy,
        )
        yield message, "", {}
    window, length = architecture.get("sliding_window"), config.batch.sequence_length
    if isinstance(window, int) and architecture.get("use_sliding_window", True) and window < length:
        message = tr(
            "This model looks {window} tokens back and rows have up to {length}: end to end they would look further.",
            window=f"{window:,}",
            length=f"{length:,}",
        )
        yield message, tr("rows of up to {length} tokens", length=f"{window:,}"), {"batch.sequence_length": window}


def _said(facts: Facts) -> str:
    batch = facts.batch
    checked = tr("Before the first step the run compares them with padded rows, and ends where they differ.")
    if batch.padded_tokens is None or batch.drawn_tokens is None or batch.drawn_waste is None:
        return tr("Rows lie end to end, without padding. {checked}", checked=checked)
    return tr(
        "Rows lie end to end: {packed} tokens are computed a step; padded in the drawn order {drawn}, {waste} of them "
        "padding. {checked}",
        packed=f"{batch.padded_tokens:,}",
        drawn=f"{batch.drawn_tokens:,}",
        waste=percent(batch.drawn_waste),
        checked=checked,
    )
