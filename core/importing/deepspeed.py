"""The JSON of DeepSpeed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.importing.deepspeed_zero import read_zero
from trainwiz.core.importing.document import Document, read_document, say_twice
from trainwiz.core.importing.report import Collector, Imported, refusal
from trainwiz.core.importing.settings import as_bool, as_count, as_number, is_auto, map_number, shown
from trainwiz.core.importing.words import (
    FP16_DROPPED,
    KNOWN_OPTIMIZERS,
    KNOWN_SCHEDULERS,
    MASTER,
    NOT_OFFERED,
    OPTIMIZER_DROPPED,
    OPTIMIZER_PARAMS,
    OPTIMIZERS,
    SCALING,
    SCHEDULER_DROPPED,
    SCHEDULER_PARAMS,
    SCHEDULES,
    TELLTALES,
    TOP_DROPPED,
)
from trainwiz.core.language import mark, tr

# Precision, optimizer and scheduler of a DeepSpeed JSON.

AUTO = mark('"auto" leaves it to the arguments of the Trainer.')


def read_precision(collector: Collector, document: Document, name: str, section: Any) -> None:
    """fp16, bf16 (bfloat16 in old files) or Apex's amp."""
    if not isinstance(section, Mapping):
        collector.unknown(name, section, document.line(name))
        return
    today = "bf16" if name == "bfloat16" else name
    if today != name:
        collector.rename(name, today, document.line(name))
    for inner, value in section.items():
        full, line = f"{name}.{inner}", document.line(name, str(inner))
        if name == "amp":
            collector.drop(full, value, mark("trainwiz mixes precision with torch, not with Apex."), line)
        elif inner == "enabled":
            _enabled(collector, document, full, today, value, line)
        elif today == "fp16" and inner in FP16_DROPPED:
            _scaling(collector, full, str(inner), value, line)
        elif str(inner).endswith(("master_weights_and_grads", "optimizer_states", "grad_overflow", "grad_update")):
            collector.drop(full, value, MASTER, line)
        else:
            collector.unknown(full, value, line)


def _enabled(collector: Collector, document: Document, full: str, name: str, value: Any, line: int | None) -> None:
    if is_auto(value):
        collector.drop(full, value, AUTO, line)
        return
    on = as_bool(value)
    if on:
        collector.map(full, value, "engine.precision", name, line)
    elif on is None:
        collector.unknown(full, value, line)
    elif _all_off(document):
        # Neither half is on, and nothing may switch one on: DeepSpeed then computes in fp32.
        collector.map(full, value, "engine.precision", "fp32", line)
    else:
        collector.drop(full, value, mark("Off leaves the choice to the other halves of a float."), line)


def _all_off(document: Document) -> bool:
    """fp16 and bf16 are off for sure; a section that is not there is off."""
    sections = [document.values.get(name) for name in ("fp16", "bf16", "bfloat16", "amp")]
    return all(
        section is None or (isinstance(section, Mapping) and as_bool(section.get("enabled", False)) is False)
        for section in sections
    )


def _scaling(collector: Collector, full: str, inner: str, value: Any, line: int | None) -> None:
    collector.drop(full, value, SCALING, line)
    if inner == "loss_scale" and (as_number(value) or 0) > 0:
        message = tr(
            "{file}: the fixed loss scale {value} has no place; trainwiz scales the loss dynamically.",
            file=collector.file,
            value=shown(value),
        )
        collector.find("not_offered", "warning", message, line)


def read_optimizer(collector: Collector, document: Document, section: Any) -> None:
    """`optimizer`: its type and parameters."""
    if not isinstance(section, Mapping):
        collector.unknown("optimizer", section, document.line("optimizer"))
        return
    params = section.get("params")
    for name, value in section.items():
        line = document.line("optimizer", str(name))
        if name == "type":
            _optimizer_type(collector, value, params if isinstance(params, Mapping) else {}, line)
        elif name == "params" and isinstance(value, Mapping):
            for inner, setting in value.items():
                _optimizer_param(collector, str(inner), setting, document.line("optimizer", "params", str(inner)))
        elif name == "legacy_fusion":
            collector.drop("optimizer.legacy_fusion", value, NOT_OFFERED, line)
        else:
            collector.unknown(f"optimizer.{name}", value, line)


def _optimizer_type(collector: Collector, value: Any, params: Mapping[str, Any], line: int | None) -> None:
    word = str(value).strip().lower()
    taken = OPTIMIZERS.get(word)
    if taken is not None and not (word == "adam" and as_bool(params.get("adam_w_mode", True)) is False):
        collector.map("optimizer.type", value, "engine.optimizer", taken, line)
        return
    known = word in KNOWN_OPTIMIZERS or taken is not None
    if known:
        collector.drop("optimizer.type", value, NOT_OFFERED, line)
        message = tr(
            "{file}: trainwiz has no optimizer {name}; the plan takes AdamW, for which the learning rate may have to "
            "be another.",
            file=collector.file,
            name=shown(value),
        )
    else:
        collector.unknown("optimizer.type", value, line)
        message = tr(
            "{file}: DeepSpeed has no optimizer {name} of its own; the plan takes AdamW unless --optimizer says "
            "another.",
            file=collector.file,
            name=shown(value),
        )
    collector.find("not_offered", "warning", message, line)


def _optimizer_param(collector: Collector, name: str, value: Any, line: int | None) -> None:
    full = f"optimizer.params.{name}"
    if is_auto(value):
        collector.drop(full, value, AUTO, line)
    elif name == "betas" and isinstance(value, list) and len(value) == 2:
        for key, beta in zip(("training.adam_beta1", "training.adam_beta2"), value, strict=True):
            map_number(collector, full, value, key, as_number(beta), line)
    elif name in OPTIMIZER_PARAMS:
        map_number(collector, full, value, OPTIMIZER_PARAMS[name], as_number(value), line)
    elif name in OPTIMIZER_DROPPED:
        collector.drop(full, value, OPTIMIZER_DROPPED[name], line)
    else:
        collector.unknown(full, value, line)


def read_scheduler(collector: Collector, document: Document, section: Any) -> None:
    """`scheduler`: its type and parameters."""
    if not isinstance(section, Mapping):
        collector.unknown("scheduler", section, document.line("scheduler"))
        return
    kind = section.get("type")
    for name, value in section.items():
        line = document.line("scheduler", str(name))
        if name == "type":
            _scheduler_type(collector, value, line)
        elif name == "params" and isinstance(value, Mapping):
            for inner, setting in value.items():
                place = document.line("scheduler", "params", str(inner))
                _scheduler_param(collector, document, str(kind), str(inner), setting, place)
            if kind in SCHEDULES and as_count(value.get("warmup_num_steps")) not in (0, 1):
                _warmup_shape(collector, value, line)
        else:
            collector.unknown(f"scheduler.{name}", value, line)


def _scheduler_type(collector: Collector, value: Any, line: int | None) -> None:
    if value in SCHEDULES:
        collector.map("scheduler.type", value, "training.schedule", SCHEDULES[value], line)
        return
    if value in KNOWN_SCHEDULERS:
        collector.drop("scheduler.type", value, NOT_OFFERED, line)
    else:
        collector.unknown("scheduler.type", value, line)
    message = tr(
        "{file}: trainwiz has no scheduler {name}; it has linear, cosine, constant and polynomial: --set "
        "training.schedule=cosine",
        file=collector.file,
        name=shown(value),
    )
    collector.find("not_offered", "warning", message, line)


def _scheduler_param(
    collector: Collector, document: Document, kind: str, name: str, value: Any, line: int | None
) -> None:
    full = f"scheduler.params.{name}"
    if is_auto(value):
        collector.drop(full, value, AUTO, line)
    elif kind not in SCHEDULES:
        collector.drop(full, value, mark("It belongs to a scheduler that trainwiz does not have."), line)
    elif name == "warmup_max_lr":
        _peak(collector, document, full, value, line)
    elif name == "cos_min_ratio" and as_number(value) is not None and "training.learning_rate" in collector.values:
        final = float(f"{collector.values['training.learning_rate'] * (as_number(value) or 0.0):.6g}")
        collector.map(full, value, "training.final_learning_rate", final, line)
    elif name in SCHEDULER_PARAMS:
        number = as_count(value) if name == "total_num_steps" else as_number(value)
        map_number(collector, full, value, SCHEDULER_PARAMS[name], number, line)
    elif name in SCHEDULER_DROPPED or name == "cos_min_ratio":
        collector.drop(full, value, SCHEDULER_DROPPED.get(name, AUTO), line)
    else:
        collector.unknown(full, value, line)


def _peak(collector: Collector, document: Document, full: str, value: Any, line: int | None) -> None:
    """The scheduler sets the rate at every step, so what the optimizer says beside it has no effect."""
    peak, other = as_number(value), collector.values.get("training.learning_rate")
    if other is not None and peak is not None and peak != other:
        message = tr(
            "{file}: optimizer.params.lr is {other} and scheduler.params.warmup_max_lr {peak}; the scheduler sets the "
            "rate at every step, so {peak} is taken.",
            file=collector.file,
            other=f"{other:g}",
            peak=f"{peak:g}",
        )
        collector.find("contradiction", "warning", message, line)
        collector.take_back("optimizer.params.lr", mark("The scheduler sets the rate at every step."))
    map_number(collector, full, value, "training.learning_rate", peak, line)


def _warmup_shape(collector: Collector, params: Mapping[str, Any], line: int | None) -> None:
    if str(params.get("warmup_type", "log")).lower() != "linear":
        message = tr(
            "{file}: DeepSpeed warms up with the logarithm of the step unless warmup_type is linear; trainwiz warms up "
            "linearly.",
            file=collector.file,
        )
        collector.find("not_offered", "note", message, line)


# The JSON of DeepSpeed, with or without comments.

BATCH: Mapping[str, str] = {
    "train_batch_size": "batch.target_samples",
    "train_micro_batch_size_per_gpu": "batch.micro_batch_size",
    "gradient_accumulation_steps": "batch.gradient_accumulation_steps",
}


def read(text: str, file_name: str) -> Imported:
    """Raises NotImportable for what is not of DeepSpeed or is broken."""
    return read_settings(read_document(text, file_name), file_name)


def read_settings(document: Document, file_name: str) -> Imported:
    """The same for a document that was parsed already."""
    if not TELLTALES & set(document.values):
        message = tr(
            "{file} has no setting of DeepSpeed, such as zero_optimization or train_micro_batch_size_per_gpu.",
            file=file_name,
        )
        raise refusal(file_name, message)
    collector = Collector("deepspeed", file_name)
    say_twice(collector, document)
    for name, value in document.values.items():
        _key(collector, document, name, value)
    if "zero_optimization" not in document.values:
        message = tr("{file}: without zero_optimization DeepSpeed shards nothing, which is DDP.", file=collector.file)
        collector.find("other_program", "note", message)
    _batch_contradiction(collector, document)
    _both_halves(collector, document)
    return collector.done()


def _key(collector: Collector, document: Document, name: str, value: Any) -> None:
    line = document.line(name)
    if name in BATCH:
        _batch(collector, name, value, line)
    elif name == "gradient_clipping":
        if is_auto(value):
            collector.drop(name, value, AUTO, line)
        else:
            map_number(collector, name, value, "training.max_grad_norm", as_number(value), line)
    elif name in ("fp16", "bf16", "bfloat16", "amp"):
        read_precision(collector, document, name, value)
    elif name == "zero_optimization":
        read_zero(collector, document, value)
    elif name == "optimizer":
        read_optimizer(collector, document, value)
    elif name == "scheduler":
        read_scheduler(collector, document, value)
    elif name in TOP_DROPPED:
        drop_all(collector, document, name, value, TOP_DROPPED[name])
    else:
        collector.unknown(name, value, line)


def drop_all(collector: Collector, document: Document, name: str, value: Any, why: str) -> None:
    """A key, or each key of a section, for one reason."""
    if not isinstance(value, Mapping) or not value:
        collector.drop(name, value, why, document.line(name))
        return
    for inner, setting in value.items():
        collector.drop(f"{name}.{inner}", setting, why, document.line(name, str(inner)))


def _batch(collector: Collector, name: str, value: Any, line: int | None) -> None:
    if is_auto(value):
        collector.drop(name, value, AUTO, line)
    elif as_count(value) is None:
        collector.unknown(name, value, line)
    else:
        map_number(collector, name, value, BATCH[name], as_count(value), line)


def _batch_contradiction(collector: Collector, document: Document) -> None:
    """train_batch_size is micro-batch x accumulation x processes; DeepSpeed refuses anything else."""
    total, micro, accumulation = (as_count(document.values.get(name)) for name in BATCH)
    if total is None or micro is None or micro < 1:
        return
    window = micro * max(1, accumulation or 1)
    if total % window == 0:
        return
    message = tr(
        "{file}: train_batch_size {total} is no multiple of train_micro_batch_size_per_gpu {micro} x "
        "gradient_accumulation_steps {accumulation}, so no number of GPUs makes it true; micro-batch and accumulation "
        "are taken.",
        file=collector.file,
        total=total,
        micro=micro,
        accumulation=max(1, accumulation or 1),
    )
    collector.find("contradiction", "warning", message, document.line("train_batch_size"))
    why = mark("It contradicts micro-batch and accumulation.")
    collector.take_back("train_batch_size", why)


def _both_halves(collector: Collector, document: Document) -> None:
    on = [name for name in ("fp16", "bf16", "bfloat16") if _is_on(document.values.get(name))]
    if len(on) > 1:
        message = tr(
            "{file}: {first} and {second} are both enabled, which DeepSpeed refuses; choose one: --precision bf16 or "
            "--precision fp16. Neither is taken.",
            file=collector.file,
            first=on[0],
            second=on[1],
        )
        collector.find("contradiction", "warning", message, document.line(on[1]))
        for name in on:
            collector.take_back(f"{name}.enabled", mark("Both halves are enabled, which cannot be."))


def _is_on(section: Any) -> bool:
    return isinstance(section, Mapping) and section.get("enabled") is True
