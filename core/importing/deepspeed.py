"""The JSON of DeepSpeed, with or without comments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwiz.core.importing.deepspeed_sections import read_optimizer, read_precision, read_scheduler
from trainwiz.core.importing.deepspeed_words import TELLTALES, TOP_DROPPED
from trainwiz.core.importing.deepspeed_zero import read_zero
from trainwiz.core.importing.document import Document, read_document, say_twice
from trainwiz.core.importing.report import Collector, Imported, refusal
from trainwiz.core.importing.values import as_count, as_number, is_auto, map_number
from trainwiz.core.language import mark, tr

BATCH: Mapping[str, str] = {
    "train_batch_size": "batch.target_samples",
    "train_micro_batch_size_per_gpu": "batch.micro_batch_size",
    "gradient_accumulation_steps": "batch.gradient_accumulation_steps",
}
AUTO = mark('"auto" leaves it to the arguments of the Trainer.')


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
