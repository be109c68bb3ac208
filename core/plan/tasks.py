"""What follows from the model and its task, and what contradicts it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import ceil
from pathlib import Path

from trainwiz.core.catalog.model_config import ModelSpec, known_targets, unknown_targets
from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import BLEU_METRIC, DEFAULT_METRIC, known_metrics, ranking_metric
from trainwiz.core.config.modes import smoke_sample
from trainwiz.core.data.formats import SAMPLES, file_endings
from trainwiz.core.data.lengths import joins_texts, longest_generation
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.estimate.architecture import ALL_LINEAR
from trainwiz.core.language import tr
from trainwiz.core.plan.draft import Draft, Facts
from trainwiz.core.profile.profile import Profile, changed_causes

# What follows from the model and the data that were chosen: the task, a sample of it where a sample is all there is, the run's name.

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


# Resolves what belongs to one task alone, and says what contradicts it.

LEAST_PASSES = 10
"""Of an overfit run over its batches."""


def resolve_task(draft: Draft) -> None:
    """Joined texts, target and generation lengths, the metric that ranks checkpoints."""
    task = draft.get("task")
    if task == "causal-lm":
        joined = joins_texts(draft.view())
        why = tr("plain texts fill every sequence: no padding") if joined else tr("each row stays a sample of its own")
        draft.resolve("data.concatenate", joined, why)
    if task == "seq2seq":
        draft.resolve("batch.target_length", int(draft.get("batch.sequence_length")), tr("as long as the input"))
    if draft.get("peft.method") == "lora":
        if not draft.get("peft.targets"):
            draft.put("peft.targets", list(ALL_LINEAR), tr("every linear layer of the blocks, as QLoRA found best"))
        draft.resolve("peft.alpha", 2.0 * int(draft.get("peft.rank")), tr("twice the rank"))
    if draft.get("evaluation.generate"):
        why = (
            tr("half of a sequence: the prompt has the rest")
            if task == "causal-lm"
            else tr("as long as the longest target")
        )
        draft.resolve("evaluation.generation_length", longest_generation(draft.view()), why)
    if draft.get("checkpoint.keep_best"):
        draft.resolve("evaluation.metric", DEFAULT_METRIC, tr("every evaluation measures it"))


def task_findings(facts: Facts) -> list[Finding]:
    return [
        *_model(facts),
        *_targets(facts),
        *_generation(facts),
        *_best(facts),
        *_joined(facts),
        *_overfit(facts),
        *_assumed(facts),
    ]


def _model(facts: Facts) -> Iterator[Finding]:
    config = facts.config
    kind = (config.model.architecture or {}).get("model_type")
    if config.task == "masked-lm" and kind not in (None, "esm"):
        message = tr(
            "This version trains masked-lm on ESM-2 models, and {name} is a {kind} model.",
            name=config.model.name,
            kind=kind,
        )
        remedy = facts.remedy(tr("take an ESM-2"), {"model.name": "esm2-8m"})
        yield Finding("model_not_supported", "error", "model.name", message, (remedy,))


def _targets(facts: Facts) -> Iterator[Finding]:
    """A LoRA target that the model does not have: peft says nothing as long as it finds another."""
    peft = facts.config.peft
    if peft.method != "lora" or not peft.targets or facts.work is None:
        return
    missing = unknown_targets(facts.work.architecture, peft.targets)
    if missing:
        names = known_targets(facts.work.architecture)
        message = tr(
            "{name} has no module {missing} for LoRA (peft.targets); it has {names}.",
            name=facts.config.model.name,
            missing=", ".join(missing),
            names=", ".join(names),
        )
        remedy = facts.remedy(tr("adapt every linear layer"), {"peft.targets": list(ALL_LINEAR)})
        yield Finding("unknown_lora_target", "error", "peft.targets", message, (remedy,))


def _generation(facts: Facts) -> Iterator[Finding]:
    evaluation, config = facts.config.evaluation, facts.config
    if not evaluation.generate:
        return
    off = facts.remedy(tr("do not generate"), {"evaluation.generate": False})
    if config.task == "masked-lm":
        message = tr("evaluation.generate is for tasks that write text; a masked language model writes none.")
        yield Finding("nothing_to_generate", "error", "evaluation.generate", message, (off,))
    elif not _has_targets(config):
        message = tr("evaluation.generate compares with a target, and no source of this run has a target_column.")
        yield Finding("nothing_to_generate", "error", "evaluation.generate", message, (off,))
    asked, longest = evaluation.generation_length, longest_generation(config)
    if asked is not None and asked > longest:
        message = tr(
            "Generated answers end at {longest} tokens, not at {asked}: the prompt needs the other half "
            "of {sequence_length} tokens (batch.sequence_length).",
            longest=f"{longest:,}",
            asked=f"{asked:,}",
            sequence_length=f"{config.batch.sequence_length:,}",
        )
        remedy = facts.remedy(tr("take the whole answer"), {"batch.sequence_length": 2 * asked})
        yield Finding("generation_cut", "warning", "evaluation.generation_length", message, (remedy,))


def _best(facts: Facts) -> Iterator[Finding]:
    """What core/training/disk_guard.py would refuse at the start."""
    config = facts.config
    if not config.checkpoint.keep_best:
        return
    if config.data.validation_rows == 0 and not config.data.validation_sources:
        message = tr("checkpoint.keep_best chooses by the score on held-out rows, and none are held out.")
        remedy = facts.remedy(tr("keep the newest"), {"checkpoint.keep_best": False})
        yield Finding("nothing_held_out", "error", "checkpoint.keep_best", message, (remedy,))
        return
    metric, known = ranking_metric(config), known_metrics(config)
    if metric in known:
        return
    message = tr(
        "This run measures no {metric} (evaluation.metric); it measures {known}.", metric=metric, known=", ".join(known)
    )
    remedies = [facts.remedy(tr("choose by {metric}", metric=DEFAULT_METRIC), {"evaluation.metric": DEFAULT_METRIC})]
    if metric == BLEU_METRIC and _has_targets(config):
        remedies.insert(0, facts.remedy(tr("generate, for BLEU"), {"evaluation.generate": True}))
    yield Finding("unknown_metric", "error", "evaluation.metric", message, tuple(remedies))


def _has_targets(config: RunConfig) -> bool:
    """Whether there is something to compare a generated text with."""
    named = any(source.target_column is not None for source in config.data.sources)
    return config.task == "seq2seq" or (config.task == "causal-lm" and named)


def _joined(facts: Facts) -> Iterator[Finding]:
    """Joining throws the border between a prompt and its response away."""
    config = facts.config
    if not config.data.concatenate:
        return
    if config.task != "causal-lm":
        message = tr("data.concatenate is for causal language models; each row of this task stays a sample.")
        remedy = facts.remedy(tr("keep each row a sample"), {"data.concatenate": None})
        yield Finding("nothing_to_join", "error", "data.concatenate", message, (remedy,))
        return
    if any(source.target_column is not None for source in config.data.sources):
        message = tr("data.concatenate joins whole texts: a target_column would be lost in them.")
        remedy = facts.remedy(tr("keep each row a sample"), {"data.concatenate": False})
        yield Finding("joined_targets", "error", "data.concatenate", message, (remedy,))


def _overfit(facts: Facts) -> Iterator[Finding]:
    """Batches that come too seldom to be known by heart: the loss would say nothing about the model."""
    mode, batch, steps = facts.config.mode, facts.batch, facts.steps
    if mode.kind != "overfit" or not mode.overfit_batches or steps is None:
        return
    batches = float(mode.overfit_batches)
    if facts.data is not None:
        batches = min(batches, max(1.0, facts.data.rows / (batch.micro_batch * batch.world_size)))
    passes = steps * batch.accumulation / batches
    if passes >= LEAST_PASSES:
        return
    message = tr(
        "{steps} steps see each of the {count} batches {passes} times: too seldom to know them by heart.",
        steps=f"{steps:,}",
        count=f"{batches:,.0f}",
        passes=f"{passes:.2g}",
    )
    enough = ceil(LEAST_PASSES * batches / batch.accumulation)
    words = tr("train {steps} steps", steps=f"{enough:,}")
    remedy = facts.remedy(words, {"training.max_steps": enough})
    yield Finding("overfit_too_seldom", "warning", "mode.overfit_batches", message, (remedy,))


def _assumed(facts: Facts) -> Iterator[Finding]:
    if facts.data is not None or facts.counted is None or facts.config.mode.kind != "train":
        return
    rows = facts.counted.rows
    if facts.config.training.max_steps is not None and facts.config.origin("training.max_steps").origin != "solved":
        return
    message = tr(
        "The rows are not here to count: {rows} are taken, as many as max_rows of the sources let through.",
        rows=f"{rows:,}",
    )
    yield Finding("rows_assumed", "note", "data.sources", message)
