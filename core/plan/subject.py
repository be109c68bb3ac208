"""What follows from the model and the data that were chosen: the task, a sample of it where a sample is all there is, the run's name."""

from __future__ import annotations

import re
from pathlib import Path

from trainwiz.core.catalog.model import ModelSpec
from trainwiz.core.config import RunConfig
from trainwiz.core.config.modes import smoke_sample
from trainwiz.core.data.formats import file_endings
from trainwiz.core.data.samples import SAMPLES
from trainwiz.core.findings import Finding, Remedy
from trainwiz.core.language import tr
from trainwiz.core.profile.profile import Profile
from trainwiz.core.profile.reasons import changed_causes

SOURCES = "data.sources"
LONGEST_PART = 36
"""Letters of the model's or the data's name in that of a run."""
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


def with_run_name(config: RunConfig, profile: Profile | None) -> RunConfig:
    """`config` named after its model and data ("qwen2-tiny-mydata"), unless the user named it or both are the profile's."""
    subject = {"model.name": config.model.name, SOURCES: config.data.sources}
    is_the_profile = profile is not None and not any(changed_causes(profile.values, subject))
    if is_the_profile or config.origin("name").origin == "you":
        return config
    parts = (_short_name(config.model.name), _short_name(config.data.sources[0].name))
    return config.model_copy(update={"name": "-".join(filter(None, parts)) or config.name})


def _short_name(source: str) -> str:
    """The last part of a path or hub id, without the ending of a file, as a part of a run's name."""
    path = Path(source)
    name = path.parent.name if path.name == "config.json" else path.name or path.absolute().name
    ending = max((end for end in file_endings() if name.lower().endswith(end)), key=len, default="")
    return re.sub(r"[^\w.-]+", "-", name.removesuffix(name[len(name) - len(ending) :]))[:LONGEST_PART].strip("-._")


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


def no_data_findings(config: RunConfig) -> tuple[Finding, ...]:
    """A fine-tuning whose data nobody named: what it learns would be a guess, of a sample or of a profile's other task."""
    chosen = any(key.startswith(SOURCES) and origin.origin == "you" for key, origin in config.origins.items())
    trains = config.mode.kind == "train" and config.mode.trace_steps is None
    if chosen or not trains or config.model.init != "pretrained":
        return ()
    name, of_profile = config.data.sources[0].name, config.origin(SOURCES).origin == "profile"
    if not of_profile:
        message = tr("No data is named: {name} ships with trainwiz to try it out, and teaches nothing.", name=name)
    elif config.origin("task").origin == "solved":
        message = tr("No data is named: {name} is for the profile's own model, which is for another task.", name=name)
    else:
        return ()
    remedies = (
        Remedy(tr("name your data: --dataset FILE")),
        Remedy(tr("take {name} all the same: --dataset {name}", name=name)),
    )
    return (Finding("no_data_named", "error", SOURCES, message, remedies),)


def _is_sample_by_default(config: RunConfig) -> bool:
    chosen = any(key.startswith(SOURCES) and origin.origin == "you" for key, origin in config.origins.items())
    return not chosen and all(source.name in SAMPLES for source in config.data.sources)
