"""What follows from the model that was chosen: its task, and a sample of that task where a sample is all there is."""

from __future__ import annotations

from trainwiz.core.catalog.model import ModelSpec
from trainwiz.core.config import RunConfig
from trainwiz.core.config.modes import smoke_sample
from trainwiz.core.data.samples import SAMPLES
from trainwiz.core.findings import Finding, Remedy
from trainwiz.core.language import tr

SOURCES = "data.sources"
PLANNED_ONLY = frozenset({"sequence-classification"})
"""Tasks that this version plans and does not train."""


def follow_task(config: RunConfig, model: ModelSpec | None) -> RunConfig:
    """`config` with the task that the model is made for, unless the user named another."""
    if model is None or model.task == config.task or config.origin("task").origin == "you":
        return config
    return config.with_values({"task": model.task}, "solved", {"task": tr("what {name} is made for", name=model.name)})


def with_task_of(config: RunConfig, model: ModelSpec | None) -> RunConfig:
    """`follow_task`, and where the data are a sample that nobody asked for, the sample of the new task."""
    changed = follow_task(config, model)
    if changed is config or changed.task in PLANNED_ONLY or not _is_sample_by_default(config):
        return changed
    return changed.with_values(
        {SOURCES: [smoke_sample(changed)]},
        "solved",
        {SOURCES: tr("the sample that ships with trainwiz for {task}", task=changed.task)},
    )


def task_is_known(config: RunConfig, model: ModelSpec | None) -> bool:
    """The model says the task, or somebody named it; otherwise what the config holds is a default that means nothing."""
    return model is not None or config.origin("task").origin in ("you", "profile")


def other_task_findings(config: RunConfig, model: ModelSpec | None) -> tuple[Finding, ...]:
    """A task that the model was not made for: its head and its inputs are those of its own task."""
    if model is None or model.task == config.task or config.task in PLANNED_ONLY:
        return ()
    message = tr(
        "{name} is a model for {task}; it cannot be trained for {config_task}.",
        name=model.name,
        task=model.task,
        config_task=config.task,
    )
    remedy = Remedy(tr("train it for {task}", task=model.task), changes={"task": model.task})
    return (Finding("task_of_another_model", "error", "task", message, (remedy,)),)


def names_no_data(config: RunConfig) -> bool:
    """Whether the sample is there for want of data. A plan for another machine is not of a run on the sample, whose
    short rows would say how much memory the real ones need."""
    named = any(
        key.startswith(SOURCES) and origin.origin in ("you", "profile") for key, origin in config.origins.items()
    )
    return config.mode.kind == "train" and not named


def unnamed_data() -> Finding:
    message = tr("No data is named: every row is taken to be as long as batch.sequence_length.")
    return Finding("no_data_named", "note", SOURCES, message, (Remedy(tr("name the data: --dataset FILE")),))


def _is_sample_by_default(config: RunConfig) -> bool:
    chosen = any(key.startswith(SOURCES) and origin.origin == "you" for key, origin in config.origins.items())
    return not chosen and all(source.name in SAMPLES for source in config.data.sources)
