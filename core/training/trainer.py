"""RunTrainer: transformers' Trainer with the batches, the loss and the evaluation of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler
from trainwiz.core.training.batches import (
    FILLER_TOKENS,
    IGNORED,
    LoaderShield,
    evaluation_order,
    out_of_shared_memory,
)
from trainwiz.core.training.best import KeptCheckpoints
from trainwiz.core.training.callbacks import LossGuard, StopCallback
from trainwiz.core.training.chunked_logits import let_logits_be_read
from trainwiz.core.training.evaluation import SUMS, batch_sums, token_metrics, token_sums
from trainwiz.core.training.metrics import MetricsCallback, StepMeter
from trainwiz.core.training.model import batch_alone
from trainwiz.core.training.process import phases
from trainwiz.core.training.saving import CheckpointSaver, planned_checkpoint_bytes
from trainwiz.core.training.tasks import TaskParts
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainingArguments
from transformers.integrations.liger import apply_liger_kernel
from transformers.trainer_utils import EvalLoopOutput


class EvaluationLeft(Exception):
    """A stop came while held-out rows were measured: there is no result."""


class RunTrainer(Trainer):
    """One training process.

    `weights_from` is the checkpoint that the model was built from; the Trainer's own loading is
    left out for it, because it would drop ESM's LayerNorms.
    """

    saver: CheckpointSaver | None = None
    """None writes no checkpoint: a benchmark leaves none, a stop included."""
    copy_identity: Callable[[Path], None] | None = None
    """Lets a checkpoint say what it was trained on."""
    metrics_callback: MetricsCallback | None = None
    loss_guard: LossGuard | None = None
    stopping: StopCallback | None = None

    def __init__(
        self, args: TrainingArguments, parts: TaskParts, meter: StepMeter, weights_from: Path | None = None
    ) -> None:
        uses_cache = getattr(parts.model.config, "use_cache", True)
        if args.use_liger_kernel:
            # Here, and not by the Trainer: its own would take the forward pass of the model over from the reader of the
            # logits, and leave them out of what is evaluated.
            args.use_liger_kernel = False
            kernels = {"fused_linear_cross_entropy": False, "cross_entropy": False}
            apply_liger_kernel(parts.model, kernels)  # type: ignore[no-untyped-call]
        let_logits_be_read(parts.model, parts.loss.chunk)
        super().__init__(
            model=parts.model,
            args=args,
            data_collator=parts.collate,
            train_dataset=parts.train,
            eval_dataset=parts.evaluation,
            processing_class=parts.tokenizer,
            compute_loss_func=parts.loss,
        )
        self.saved_steps: set[int] = set()
        self.shield = LoaderShield()
        self._parts = parts
        self._meter = meter
        self._weights_from = weights_from
        for printing in (PrinterCallback, ProgressCallback):
            self.remove_callback(printing)
        self.add_callback(parts.schedule)
        if parts.inputs is not batch_alone:
            # Switched off by the Trainer for good, and saved with the model; we leave it out call by call.
            parts.model.config.use_cache = uses_cache
        # The best so far is ours: see core/training/best.py.
        args.metric_for_best_model = None
        folder = Path(args.output_dir or ".")
        self.retention = parts.retention or KeptCheckpoints(folder, args.save_total_limit or 1)
        # The Trainer goes by names and deletes without looking whether the newest is whole.
        args.save_total_limit = None

    def stop_requested(self) -> bool:
        """Whether this process was asked to stop; a generation under way ends then."""
        return self.stopping is not None and self.stopping.requested

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Schedules that end above 0 read the peak from the optimizer's defaults, which ZeRO's wrapper hides."""
        sharded: Any = getattr(optimizer or self.optimizer, "optimizer", None)
        inner = getattr(sharded, "optimizer", None)
        if inner is not None and not hasattr(sharded, "defaults"):
            sharded.defaults = inner.defaults
        return super().create_scheduler(num_training_steps, optimizer)

    def get_train_dataloader(self) -> DataLoader[Any]:
        own, self.data_collator = self.data_collator, self._parts.train_collate or self.data_collator
        try:
            loader: DataLoader[Any] = super().get_train_dataloader()
        finally:
            self.data_collator = own
        self.shield.protect(loader)
        return loader

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        loader: DataLoader[Any] = super().get_eval_dataloader(eval_dataset)
        self.shield.protect(loader)
        return loader

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], torch.Tensor | int | None]:
        """One accumulation window, with the wait for each batch measured; none after the last step or a stop.

        Resumed from the checkpoint of its last step, the Trainer would otherwise do one step too many.
        """
        if self.state.global_step >= self.state.max_steps or self.control.should_training_stop:
            self.control.should_training_stop = True
            return [], None
        window: list[Any] = []
        for batch in islice(self._meter.timed(epoch_iterator), num_batches):
            window.append(out_of_shared_memory(batch))
            if self.stopping is not None and self.stopping.drops_window():
                break
        return window, self._labels_of_window(window, device)

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """One micro-batch, whose loss the guard sees."""
        loss = super().training_step(*args, **kwargs)
        if self.loss_guard is not None:
            self.loss_guard.see(loss)
        return loss

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        """The Trainer takes the logged sum from itself, which leaves one that is no number as it is for ever."""
        super()._maybe_log_save_evaluate(*args, **kwargs)
        if self._globalstep_last_logged == self.state.global_step:
            self._tr_loss.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        with self._meter.paused(), phases.during("evaluating", self.state.global_step):
            try:
                metrics: dict[str, float] = super().evaluate(*args, **kwargs)
            except EvaluationLeft:
                metrics = {}
                self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def evaluation_loop(
        self,
        dataloader: DataLoader[Any],
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Means over all labelled tokens of all processes, and BLEU where texts are generated.

        The Trainer's own loop averages the means of batches, which weighs short batches too much.
        """
        model: Any = self.model
        model.eval()
        device = self.args.device
        scores = self._parts.scores
        sums = torch.zeros(
            SUMS if scores is None else scores.size,
            dtype=torch.float64,
            device="cpu" if device.type == "mps" else device,
        )
        for number, batch in enumerate(dataloader):
            if self.stopping is not None and self.stopping.leaves_evaluation(number):
                raise EvaluationLeft
            batch.pop(FILLER_TOKENS, None)
            inputs = self._parts.inputs(self._prepare_inputs(batch), model)
            labels = inputs.pop("labels")
            with torch.no_grad():
                of_batch = batch_sums(model, inputs, labels, token_sums if scores is None else scores.sums)
            sums += of_batch.to(sums)
        reduced = self.accelerator.reduce(sums, reduction="sum")
        metrics = (token_metrics if scores is None else scores.metrics)(reduced, metric_key_prefix)
        generator = self._parts.generator
        if generator is not None and generator.due(self.state, saves=self.control.should_save):
            with phases.during("generating"):
                generated = generator.metrics(self, metric_key_prefix)
            if not generated:
                raise EvaluationLeft
            metrics |= generated
        rows = len(self._parts.evaluation) if self._parts.evaluation is not None else 0
        return EvalLoopOutput(predictions=np.empty(0), label_ids=None, metrics=metrics, num_samples=rows)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """With what the model needs beside the batch; the labels go to our own loss."""
        complete = self._parts.inputs(inputs, self.model)
        complete = {**complete, **self._parts.loss.keywords(complete["labels"])}
        loss: Any = super().compute_loss(model, complete, return_outputs, num_items_in_batch)
        if self._parts.loss.mean == "micro_batches":
            # The Trainer takes what `compute_loss_func` gives for a part of the whole window's mean.
            loss = loss / self.current_gradient_accumulation_steps
        return loss

    def _labels_of_window(self, window: list[Any], device: torch.device) -> torch.Tensor | None:
        """Labelled tokens of an accumulation window over all processes; None where each micro-batch has its own mean.

        Our labels stand where they are predicted; the Trainer would leave the first of each row
        out for a causal model, which moves labels itself.
        """
        if not window or self._parts.loss.mean == "micro_batches":
            return None
        counts = [(batch["labels"] != IGNORED).sum() for batch in window]
        count = torch.stack(counts).sum().to(device)
        if self.args.world_size > 1:
            count = self.accelerator.gather(count).sum()
        return count

    def _get_train_sampler(self, train_dataset: Dataset[Any] | None = None) -> Sampler[Any]:
        if self.args.world_size > 1:
            self._parts.sampler.fill_up(self.args.train_batch_size * self.args.world_size)
        return self._parts.sampler

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        together = self.args.eval_batch_size * self.args.world_size
        return evaluation_order(len(eval_dataset), together, self._parts.evaluation_lengths)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """One save; left out, and the training ended, when there is no room and a stop was asked for."""
        step = self.state.global_step
        if self.saver is None or (self.loss_guard is not None and not self.loss_guard.may_save(model, step)):
            return
        planned = planned_checkpoint_bytes(self.model, sharded=self.is_deepspeed_enabled or self.is_fsdp_enabled)
        with self._meter.paused(), phases.during("saving", step):
            started = time.perf_counter()
            checkpoint = self.saver.folder.path / f"checkpoint-{step}"
            if not self.saver.save(step, planned, lambda: self._write_checkpoint(checkpoint, model, trial)):
                self.control.should_training_stop = True
                if self.stopping is not None:
                    self.stopping.stopped = True
                return
            self.saved_steps.add(step)
            if self.is_world_process_zero():
                print(f"checkpoint-{step} saved in {time.perf_counter() - started:.1f} s", flush=True)

    def _write_checkpoint(self, checkpoint: Path, model: Any, trial: Any) -> None:
        """Our counts go in first: trainer_state.json stays the last file of the Trainer's own save."""
        if self.metrics_callback is not None:
            self.metrics_callback.save_progress(checkpoint)
        if self.copy_identity is not None and self.is_world_process_zero():
            checkpoint.mkdir(parents=True, exist_ok=True)
            self.copy_identity(checkpoint)
        super()._save_checkpoint(model, trial)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if self._weights_from is None or Path(resume_from_checkpoint) != self._weights_from:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
