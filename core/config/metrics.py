"""What an evaluation of a run measures, and the metric that ranks its checkpoints."""

from __future__ import annotations

import re

from trainwiz.core.config.run import RunConfig

DEFAULT_METRIC = "eval_loss"
BLEU_METRIC = "eval_bleu"
LOWER_IS_BETTER = re.compile(r"loss|perplexity")


def known_metrics(config: RunConfig) -> tuple[str, ...]:
    """The metrics that an evaluation of this run gives (core/training/evaluation.py and generation.py)."""
    names = [DEFAULT_METRIC, "eval_accuracy", "eval_perplexity"]
    if config.task == "masked-lm":
        names.append("eval_hidden_loss")
    elif config.evaluation.generate:
        names.append(BLEU_METRIC)
    return tuple(names)


def ranking_metric(config: RunConfig) -> str:
    """evaluation.metric under its full name: `bleu` is `eval_bleu`."""
    metric = config.evaluation.metric or DEFAULT_METRIC
    return metric if metric.startswith("eval_") else f"eval_{metric}"


def lower_is_better(metric: str) -> bool:
    """Losses and perplexities are better when lower, all other metrics when higher."""
    return LOWER_IS_BETTER.search(metric) is not None


def generates_at_saves(config: RunConfig) -> bool:
    """Whether each checkpoint needs a BLEU of its own, whatever evaluation.generate_at says."""
    return config.checkpoint.keep_best and ranking_metric(config) == BLEU_METRIC
