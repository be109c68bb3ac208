"""The Workload of a draft: what one process computes, from what is settled so far."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainwiz.core.data.answers import longest_generation
from trainwiz.core.data.joining import joins_texts
from trainwiz.core.data.padded_length import padded_length
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.architecture import Architecture, lora_targets
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.language import tr
from trainwiz.core.plan.arranging import Arrangement, multiple_of, usual_lengths
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.draft import Draft
from trainwiz.core.plan.lengths import lengths_of


def workload_of(
    draft: Draft,
    devices: Devices,
    architecture: Architecture | None,
    data: DataSummary | None,
    *,
    evaluates: bool = False,
) -> Workload | None:
    """None without a known architecture. With `evaluates`, what evaluation and generation need is in it."""
    if architecture is None:
        return None
    get = draft.get
    length = int(get("batch.sequence_length"))
    target = int(get("batch.target_length") or length)
    if data is not None:
        multiple = multiple_of(get)
        length = padded_length(min(length, _longest(data, data.lengths) or length), multiple, length)
        target = padded_length(min(target, _longest(data, data.target_lengths) or target), multiple, target)
    rank = int(get("peft.rank")) if get("peft.method") == "lora" else 0
    generates = evaluates and bool(get("evaluation.generate"))
    return Workload(
        architecture=architecture,
        micro_batch=get("batch.micro_batch_size") or 1,
        length=length,
        target_length=target,
        accumulation=get("batch.gradient_accumulation_steps") or 1,
        world_size=devices.world_size,
        precision=get("engine.precision"),
        attention=get("engine.attention"),
        checkpointing=bool(get("engine.checkpointing")),
        optimizer=get("engine.optimizer"),
        strategy=get("engine.strategy"),
        offload=get("engine.offload"),
        lora_rank=rank,
        lora_targets=lora_targets(architecture, get("peft.targets")) if rank else (),
        lora_dropout=bool(rank and get("peft.dropout")),
        loss_chunk=get("training.loss_chunk"),
        device=devices.device,
        eval_micro_batch=(get("batch.eval_micro_batch_size") or 0) if evaluates else 0,
        beams=int(get("evaluation.beams")),
        generation_length=longest_generation(draft.view()) if generates else 0,
        task=get("task"),
        model_config=_model_config(draft),
        label_smoothing=bool(get("training.label_smoothing")),
        clipping=bool(get("training.max_grad_norm")),
        capability=(devices.gpus[0].compute_capability or "") if devices.gpus else "",
        padded=not joins_texts(draft.view()),
        context_bytes=get("planning.context_bytes"),
        context_source=tr("as stated") if get("planning.context_bytes") is not None else "",
    )


def _model_config(draft: Draft) -> str:
    """The config of the model as training builds it, overrides included."""
    if draft.model_config is None:
        draft.model_config = model_json(draft.get("model.architecture"), draft.get("model.architecture_overrides"))
    return draft.model_config


def model_json(architecture: Mapping[str, Any] | None, overrides: Mapping[str, Any]) -> str:
    """A model's config as a workload and a trace's request hold it."""
    return json.dumps({**(architecture or {}), **overrides}, sort_keys=True, default=str)


MOST_TOKENS_OF_AN_ESTIMATE = 4
"""A token has at least one byte, and estimates take at most four bytes for one (core/data/token_counts.py)."""


def _longest(data: DataSummary, rows: tuple[int, ...]) -> int | None:
    """No batch is longer than the longest row, where every row was looked at; None where some were not."""
    if not data.rows_exact or data.rows + data.validation_rows > len(rows):
        return None
    lengths = lengths_of(rows)
    if lengths is None:
        return None
    return max(1, lengths.longest * (1 if data.length_unit == "tokens" else MOST_TOKENS_OF_AN_ESTIMATE))


def typical(
    work: Workload, data: DataSummary | None, arrangement: Arrangement = "drawn", multiple: int = 1
) -> Workload:
    """`work` at the lengths of a usual batch, for its time: each micro-batch is padded to its own longest row, and
    that to a `multiple`.

    In expectation, for a run takes the sum over its micro-batches. Without lengths, the full ones. Joined texts are
    of one length.
    """
    if data is None or not data.lengths:
        return work
    source, target = usual_lengths(work, data, arrangement if work.padded else "drawn", multiple)
    return replace(work, length=source, target_length=target)
