"""Whether the texts of a causal language model are joined and cut into sequences of full length."""

from __future__ import annotations

from trainwiz.core.config import RunConfig


def joins_texts(config: RunConfig) -> bool:
    """What `data.concatenate` says; where it is open, plain text that trains all weights is joined.

    A row with a target (a prompt and its response) stays a sample of its own, and so does every
    row of an adapter run, whose batch is counted in samples.
    """
    if config.task != "causal-lm":
        return False
    if config.data.concatenate is not None:
        return config.data.concatenate
    has_targets = any(source.target_column is not None for source in config.data.sources)
    return not has_targets and config.peft.method == "none"
