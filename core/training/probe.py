"""A probe in its process."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.data.lengths import StepShape, packs_rows
from trainwiz.core.errors import UsageError
from trainwiz.core.export.training_arguments import processes, uses_deepspeed
from trainwiz.core.launch.probe_order import ProbeOrder
from trainwiz.core.processes import heavy_imports, wait_briefly
from trainwiz.core.supervise.ties import hold_to_parent
from trainwiz.core.training.batches import EpochSampler, PaddedBatch, length_order
from trainwiz.core.training.datasets import TaskParts
from trainwiz.core.training.evaluation import EvaluationSchedule, StepLoss
from trainwiz.core.training.failure import exit_after_failure
from trainwiz.core.training.model import ModelInputs, batch_alone, decoder_only, encoder_decoder, random_model
from trainwiz.core.training.packing import PackedBatch
from trainwiz.core.training.probe_rows import Lengths, SpreadSampler, data_rows, generated_rows, vocabulary_of
from trainwiz.core.training.probe_trainer import Answers

# The parts of a probe: the run's model with random weights, its rows, its loss.

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
    return replace(parts, train_collate=PackedBatch()) if packs_rows(config) else parts


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


# Entry of one process of a probe: `accelerate launch -m trainwiz.core.training.probe FOLDER`.
#
# A few real steps of the run in FOLDER with a clock beside them: model, batches, loss, engine and
# optimizer are those that train. The weights are random, which changes neither time nor memory. Nothing
# is evaluated or saved. The first process writes FOLDER/probe.jsonl, one object a line:
#
#     ready     the first step begins
#     warm      seconds, step, micro_batch: a step on the longest batch
#     memory    allocated_bytes, reserved_bytes, used_bytes, rss_bytes, each of the fullest process
#     loading   seconds: in which one process makes one micro-batch of the data
#     step      step, seconds (of a step of the plan), tokens (over all processes), micro_batch, loss
#     short     step, seconds, loss: of the last step of an epoch, which has fewer micro-batches
#     trial     micro_batch, fits, seconds, allocated_bytes
#     largest   micro_batch, why, fails
#     rows      rows, why: what the batches are made from, where it is not what was asked for
#     end       all was done


def main() -> None:
    hold_to_parent()
    folder = Path(sys.argv[1]).resolve()
    wait_briefly(os.environ)
    try:
        os.chdir(folder)
        _probe(folder)
    except BaseException as error:  # noqa: BLE001 - every way to die is written down
        exit_after_failure(folder, error)
    sys.stdout.flush()
    # Loader workers and NCCL's threads may take seconds to close; nothing is left to write.
    os._exit(0)


def _probe(folder: Path) -> None:
    with heavy_imports():
        import torch
        from trainwiz.core.export.training_arguments import training_arguments
        from trainwiz.core.launch.probe_order import ProbeOrder
        from trainwiz.core.run.folder import RunFolder
        from trainwiz.core.training.batches import PaddedBatch
        from trainwiz.core.training.callbacks import EpochCallback
        from trainwiz.core.training.engine import join_processes
        from trainwiz.core.training.metrics import StepMeter
        from trainwiz.core.training.model import may_skip_weights
        from trainwiz.core.training.phases import allow_any_length
        from trainwiz.core.training.probe_rows import longest_batch, vocabulary_of
        from trainwiz.core.training.probe_search import MicroBatchSearch, say_loading
        from trainwiz.core.training.probe_trainer import Answers, ProbeClock, ProbeTrainer, memory_figures
        from trainwiz.core.training.session import read_config
        from transformers import PrinterCallback, ProgressCallback, TrainingArguments, set_seed
        from transformers.utils.logging import disable_progress_bar

    config, order = read_config(RunFolder(folder)), ProbeOrder.read(folder)
    disable_progress_bar()  # type: ignore[no-untyped-call]
    set_seed(config.training.seed)
    allow_any_length(config)
    args = TrainingArguments(**(training_arguments(config) | join_processes(config)))
    args.eval_strategy = args.save_strategy = "no"
    args.report_to = []
    args.logging_first_step = False
    answers = Answers(folder, args.process_index == 0)
    parts = probe_parts(config, folder, order, args.device, answers)
    args.ddp_find_unused_parameters = may_skip_weights(parts.model)
    trainer = ProbeTrainer(args, parts, StepMeter())
    vocabulary = vocabulary_of(parts.model)
    trainer.longest = lambda rows: longest_batch(
        order, config.task, vocabulary, rows, parts.train_collate or PaddedBatch(0)
    )
    trainer.micro_batch = order.micro_batch
    trainer.halves = not order.in_turns
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)

    def say_memory() -> None:
        mine = memory_figures(args.device)
        values = torch.tensor([-1 if value is None else value for value in mine.values()], device=args.device)
        every = trainer.accelerator.gather(values).reshape(-1, len(mine)).max(dim=0).values.tolist()
        fullest: dict[str, Any] = {
            name: None if value < 0 else int(value) for name, value in zip(mine, every, strict=True)
        }
        answers.say("memory", **fullest)

    clock = ProbeClock(trainer, order, answers, say_memory)
    for callback in (EpochCallback(parts.sampler), clock):
        trainer.add_callback(callback)
    if args.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    try:
        trainer.train()
    finally:
        trainer.shield.over()
    if not order.in_turns:
        say_loading(parts, trainer.micro_batch, args.gradient_accumulation_steps, args.world_size, order, answers)
    if order.search:
        rounds = min(2, order.accumulation)
        MicroBatchSearch(trainer, order, answers, clock.last_s / args.gradient_accumulation_steps * rounds).run()
    answers.say("end")


if __name__ == "__main__":
    main()
