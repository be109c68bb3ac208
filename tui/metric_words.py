"""How measurements on held-out rows read: the same words in the headless run, `runs show` and the monitor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trainwiz.core.language import mark, tr

EVALUATION_WORDS: tuple[tuple[str, str], ...] = (
    ("eval_loss", mark("loss {value}")),
    ("eval_perplexity", mark("perplexity {value}")),
    ("eval_accuracy", mark("accuracy {value}")),
    ("eval_bleu", mark("BLEU {value}")),
)
"""Name in metrics.jsonl -> words, in the order of showing."""


def evaluation_parts(values: Mapping[str, Any]) -> list[str]:
    """["loss 2.61", "perplexity 13.6", "BLEU 24.1"] of an evaluation line; what is not there is left out."""
    parts = []
    for name, words in EVALUATION_WORDS:
        value = values.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            parts.append(tr(words, value=measured(name, value)))
    return parts


def measured(name: str, value: float) -> str:
    """A measurement in the digits that mean something."""
    if not math.isfinite(value):
        return tr("not a number")
    if name == "eval_accuracy":
        return f"{value * 100:.1f} %"
    if name == "eval_perplexity":
        return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    return f"{value:.1f}" if name == "eval_bleu" else f"{value:.3g}" if abs(value) < 0.1 else f"{value:.2f}"


def engine_problems(engine: Mapping[str, Any]) -> list[str]:
    """What runs otherwise than planned, one sentence each, from the engine record of a run's state."""
    findings = engine.get("findings")
    told = [item.get("message") for item in findings if isinstance(item, dict)] if isinstance(findings, list) else []
    problems = [message for message in told if isinstance(message, str)]
    planned, actual = engine.get("planned"), engine.get("actual")
    if not problems and planned and actual and planned != actual:
        problems = [tr("The engine is {actual} and was planned as {planned}.", actual=actual, planned=planned)]
    return problems
