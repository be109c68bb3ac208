"""RunTrainer: the HF Trainer with our order of rows, our evaluation and our counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler
from trainwiz.core.training.loader_workers import LoaderShield
from trainwiz.core.training.loss import token_loss
from trainwiz.core.training.masking import IGNORED
from trainwiz.core.training.meter import StepMeter
from trainwiz.core.training.metrics import MetricsCallback
from trainwiz.core.training.parts import TaskParts
from trainwiz.core.training.sampling import EvaluationSampler
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import EvalLoopOutput


class RunTrainer(Trainer):
    """One training process.

    `weights_from` is the checkpoint that the model was built from; the Trainer's own loading is
    left out for it, because it would drop ESM's LayerNorms.
    """

    def __init__(
        self, args: TrainingArguments, parts: TaskParts, meter: StepMeter, weights_from: Path | None = None
    ) -> None:
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
        self.metrics_callback: MetricsCallback | None = None
        self.shield = LoaderShield()
        self._parts = parts
        self._meter = meter
        self._weights_from = weights_from

    def get_train_dataloader(self) -> DataLoader[Any]:
        return self._protected(super().get_train_dataloader())

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        return self._protected(super().get_eval_dataloader(eval_dataset))

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], torch.Tensor | int | None]:
        """One accumulation window, with the wait for each batch measured; none after the last step.

        Resumed from the checkpoint of its last step, the Trainer would otherwise do one step too many.
        """
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return [], None
        window: tuple[list[Any], torch.Tensor | int | None] = super().get_batch_samples(
            self._meter.timed(epoch_iterator), num_batches, device
        )
        return window

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        with self._meter.paused():
            metrics: dict[str, float] = super().evaluate(*args, **kwargs)
        return metrics

    def evaluation_loop(
        self,
        dataloader: DataLoader[Any],
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Mean loss and accuracy over all labelled tokens of all processes.

        The Trainer's own loop averages the means of batches, which weighs short batches too much.
        `hidden_loss` counts only the tokens that the input hides: a kept or swapped token gives
        its answer half away, so that plain copying lowers the loss below the entropy of the data.
        """
        model: Any = self.model
        model.eval()
        device = self.args.device
        sums = torch.zeros(5, dtype=torch.float64, device="cpu" if device.type == "mps" else device)
        for batch in dataloader:
            inputs = self._prepare_inputs(batch)
            labels = inputs.pop("labels")
            with torch.no_grad(), self.compute_loss_context_manager():
                logits = model(**inputs).logits
            sums += self._evaluated(inputs["input_ids"], logits, labels).to(sums)
        loss, right, count, hidden_loss, hidden = (
            float(value) for value in self.accelerator.reduce(sums, reduction="sum")
        )
        metrics = {
            f"{metric_key_prefix}_loss": loss / count,
            f"{metric_key_prefix}_accuracy": right / count,
            f"{metric_key_prefix}_labelled_tokens": int(count),
        }
        if hidden:
            metrics[f"{metric_key_prefix}_hidden_loss"] = hidden_loss / hidden
        rows = len(self._parts.evaluation) if self._parts.evaluation is not None else 0  # type: ignore[arg-type]
        return EvalLoopOutput(predictions=np.empty(0), label_ids=None, metrics=metrics, num_samples=rows)

    def _evaluated(self, input_ids: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """(5,): summed loss, right tokens, labelled tokens; loss and number of the hidden ones."""
        labelled = labels != IGNORED
        right = (logits[labelled].argmax(dim=-1) == labels[labelled]).sum()
        is_hidden = labelled & (input_ids == self._parts.mask_token)
        hidden_loss = token_loss(logits, labels.masked_fill(~is_hidden, IGNORED), 0.0, None)
        loss = token_loss(logits, labels, 0.0, None)
        return torch.stack([loss, right, labelled.sum(), hidden_loss, is_hidden.sum()])

    def _protected(self, loader: DataLoader[Any]) -> DataLoader[Any]:
        self.shield.protect(loader)
        return loader

    def _get_train_sampler(self, train_dataset: Dataset[Any] | None = None) -> Sampler[Any]:
        return self._parts.sampler

    def _get_eval_sampler(self, eval_dataset: Dataset[Any]) -> Sampler[Any]:
        return EvaluationSampler(len(eval_dataset), self.args.eval_batch_size * self.args.world_size)  # type: ignore[arg-type]

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Our counts go in first: trainer_state.json stays the last file of a complete checkpoint."""
        step = self.state.global_step
        with self._meter.paused():
            if self.metrics_callback is not None:
                self.metrics_callback.save_progress(Path(self.args.output_dir or ".") / f"checkpoint-{step}")
            started = time.perf_counter()
            super()._save_checkpoint(model, trial)
            self.saved_steps.add(step)
            if self.is_world_process_zero():
                print(f"checkpoint-{step} saved in {time.perf_counter() - started:.1f} s", flush=True)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if self._weights_from is None or Path(resume_from_checkpoint) != self._weights_from:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
