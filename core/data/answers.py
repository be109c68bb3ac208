"""How a prompt and its generated answer share a sequence, and how long a generated text may get."""

from __future__ import annotations

from trainwiz.core.config import RunConfig


def prompt_room(config: RunConfig) -> int:
    """Tokens of a causal sequence that a prompt may have when its answer is generated: at least half of them."""
    length = config.batch.sequence_length
    return max(length // 2, length - (config.evaluation.generation_length or length))


def longest_generation(config: RunConfig) -> int:
    """Most tokens of a generated text.

    A causal model's answer fits the sequence length together with its prompt, as it does in
    training, so that evaluation.generation_length counts up to half of it.
    """
    if config.task == "causal-lm":
        return config.batch.sequence_length - prompt_room(config)
    batch = config.batch
    return config.evaluation.generation_length or batch.target_length or batch.sequence_length
