"""What follows from the model that was chosen: its task, and a sample of that task where a sample is all there is."""

from __future__ import annotations

from typing import Any

from trainwiz.core.catalog.model import ModelSpec
from trainwiz.core.config import RunConfig
from trainwiz.core.config.modes import smoke_sample
from trainwiz.core.data.samples import SAMPLES

SOURCES = "data.sources"


def with_task_of(config: RunConfig, model: ModelSpec | None) -> RunConfig:
    """`config` with the task that the model is made for, unless the user named another.

    Where the data are a sample that nobody asked for, the sample of the new task takes its place.
    """
    if model is None or model.task == config.task or config.origin("task").origin == "you":
        return config
    values: dict[str, Any] = {"task": model.task}
    reasons = {"task": f"what {model.name} is made for"}
    changed = config.with_values(values, "solved", reasons)
    if not _is_sample_by_default(config):
        return changed
    return changed.with_values(
        {SOURCES: [smoke_sample(changed)]}, "solved", {SOURCES: f"the sample that ships with trainwiz for {model.task}"}
    )


def _is_sample_by_default(config: RunConfig) -> bool:
    chosen = any(key.startswith(SOURCES) and origin.origin == "you" for key, origin in config.origins.items())
    return not chosen and all(source.name in SAMPLES for source in config.data.sources)
