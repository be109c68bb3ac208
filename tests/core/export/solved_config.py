"""Configs as a plan completes them, for the exports."""

from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.config.build import build_config
from trainwiz.core.profile.store import load_profile

OPEN: dict[str, Any] = {
    "engine.device": "cpu", "engine.precision": "fp32", "engine.attention": "sdpa", "engine.checkpointing": False,
    "engine.optimizer": "adamw_torch", "engine.strategy": "single", "engine.processes": 1, "batch.micro_batch_size": 2,
    "batch.gradient_accumulation_steps": 3, "batch.eval_micro_batch_size": 4, "training.max_steps": 10,
    "data.workers": 0, "data.validation_rows": 8, "checkpoint.every_steps": 5, "evaluation.every_steps": 5,
    "logging.every_steps": 1,
}  # fmt: skip
"""What a plan fills in, for a small run on a CPU."""


def solved_config(profile: str | None = None, **changes: Any) -> RunConfig:
    """A complete config: the profile's values where it has them, else `OPEN`; `changes` use "__" for the dot."""
    config = build_config(load_profile(profile) if profile else None, {})
    decided = load_profile(profile).values if profile else {}
    config = config.with_values({key: value for key, value in OPEN.items() if key not in decided}, "solved")
    return config.with_values({key.replace("__", "."): value for key, value in changes.items()}, "you")
