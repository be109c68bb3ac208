"""The parts of a probe: the run's model with random weights, its rows, its loss."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.data.length_order import StepShape
from trainwiz.core.data.packing import packs_rows
from trainwiz.core.errors import UsageError
from trainwiz.core.export.solved import processes, uses_deepspeed
from trainwiz.core.launch.probe_order import ProbeOrder
from trainwiz.core.training.batches import PaddedBatch
from trainwiz.core.training.evaluation_schedule import EvaluationSchedule
from trainwiz.core.training.loss import StepLoss
from trainwiz.core.training.model import random_model
from trainwiz.core.training.model_inputs import ModelInputs, batch_alone, decoder_only, encoder_decoder
from trainwiz.core.training.packing import with_packing
from trainwiz.core.training.parts import TaskParts
from trainwiz.core.training.probe_rows import Lengths, data_rows, generated_rows, vocabulary_of
from trainwiz.core.training.probe_sampling import SpreadSampler
from trainwiz.core.training.probe_trainer import Answers
from trainwiz.core.training.sampling import EpochSampler, length_order

INPUTS: dict[str, ModelInputs] = {"masked-lm": batch_alone, "causal-lm": decoder_only, "seq2seq": encoder_decoder}


def probe_parts(
    config: RunConfig, folder: Path, order: ProbeOrder, device: torch.device, answers: Answers
) -> TaskParts:
    """Rows that cannot be read here are generated; `answers` says so. Raises UsageError for a model that cannot be built."""
    # A large model is filled with random numbers where that is quick; ZeRO-3 shares it out while it is made.
    on_device = device if device.type == "cuda" and not uses_deepspeed(config) else contextlib.nullcontext()
    with on_device:
        model = random_model(config)
    rows, collate, lengths = None, PaddedBatch.of(config, 0), None
    if order.rows == "data":
        try:
            rows, collate, lengths = data_rows(config, folder)  # type: ignore[assignment]
        except UsageError as error:
            answers.say("rows", rows="lengths" if order.lengths else "longest", why=error.findings[0].message)
    if rows is None or lengths is None:
        generated = generated_rows(order, config.task, vocabulary_of(model), config.training.seed)
        rows, lengths = generated, lambda: generated.lengths
    nothing_saved: Any = None
    parts = TaskParts(
        model=model,
        tokenizer=nothing_saved,
        train=rows,
        evaluation=None,
        collate=collate,
        sampler=_sampler(config, order, len(rows), lengths),  # type: ignore[arg-type]
        loss=StepLoss.of(config),
        schedule=EvaluationSchedule.of(config, with_saves=False),
        inputs=INPUTS[config.task],
        counts_targets=config.task == "seq2seq",
    )
    return with_packing(parts) if packs_rows(config) else parts


def _sampler(config: RunConfig, order: ProbeOrder, rows: int, lengths: Lengths) -> EpochSampler:
    """Rows arranged as in a step of the plan, which may have more micro-batches than one of the probe."""
    count, rounds = processes(config), config.batch.gradient_accumulation_steps or 1
    planned = config.with_values({"batch.gradient_accumulation_steps": order.accumulation}, "solved")

    @functools.cache
    def of_rows() -> np.ndarray:
        """As long as the longest is computed: longer ones are cut."""
        known = lengths()
        # Bytes, or a letter for a token: in tokens on average, as far as the plan knows these.
        unit = float(np.mean(known)) / float(np.mean(order.lengths)) if order.lengths and len(known) else 1.0
        return np.minimum(known, order.length * max(1.0, unit))

    by_length = length_order(planned, lengths, count)
    sampler = EpochSampler(rows, config.training.seed, lengths=by_length)
    micro = config.batch.micro_batch_size or 1
    shape = StepShape(micro * count * order.accumulation, micro, count)
    # Rows end to end are dealt evenly: every micro-batch of a step has as many tokens as the others.
    differ = by_length is not None and not packs_rows(config)
    return SpreadSampler(sampler, shape, rounds, of_rows if differ else None)
