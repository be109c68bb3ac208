"""One engine's gradient of one optimizer step, as the process that trains has it when the optimizer is about to use it.

    accelerate launch ... -m tools.benchmarks.accumulation_cell RUNFOLDER...

In each run folder, whose rows come in the order that its run.yaml asks for, gradient.pt is written: a flat float64 tensor.
A folder whose name ends in "-reversed" gets the micro-batches of the same step the last one first.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from trainwiz.core.export.training_arguments import training_arguments
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.metrics import StepMeter
from trainwiz.core.training.session import read_config
from trainwiz.core.training.tasks import build_task
from trainwiz.core.training.trainer import RunTrainer
from transformers import TrainerCallback, TrainingArguments, set_seed, training_args

GRADIENT = "gradient.pt"
REVERSED = "-reversed"


class ReversedTrainer(RunTrainer):
    """Adds up the micro-batches of a step the last one first."""

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        window, count = super().get_batch_samples(*args, **kwargs)
        return window[::-1], count


class Gradient(TrainerCallback):
    """Keeps the gradient of the first step."""

    def __init__(self) -> None:
        self.whole = torch.empty(0)
        self.trainer: RunTrainer | None = None

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        """DeepSpeed's engine steps inside of the backward pass of the last micro-batch: before any callback."""
        engine = getattr(self.trainer, "model_wrapped", None)
        if engine is not None and hasattr(engine, "zero_optimization_stage"):
            engine.step = self._seen_before(engine.step, engine)

    def on_pre_optimizer_step(self, *args: Any, model: torch.nn.Module, **kwargs: Any) -> None:
        if not len(self.whole):
            # ESM's contact head takes no part.
            given = [torch.zeros_like(one) if one.grad is None else one.grad for one in trained(model)]
            self._keep(given)

    def _seen_before(self, step: Callable[..., Any], engine: Any) -> Callable[..., Any]:
        def seen(*args: Any, **kwargs: Any) -> Any:
            if engine.is_gradient_accumulation_boundary():
                # safe_get_full_grad would prefer what is left of the last micro-batch in param.grad.
                self._keep([one.get_full_hp_grad() for one in trained(engine.module)])  # type: ignore[attr-defined]
            return step(*args, **kwargs)

        return seen

    def _keep(self, gradients: list[torch.Tensor]) -> None:
        self.whole = torch.cat([one.detach().flatten().double() for one in gradients])


def trained(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [one for one in model.parameters() if one.requires_grad]


def allow_half_precision() -> None:
    """transformers and DeepSpeed take 16-bit runs for GPUs; torch computes them on a CPU too, with the same rounding."""
    training_args.is_torch_bf16_gpu_available = lambda: True
    with contextlib.suppress(ImportError):
        from deepspeed.accelerator import get_accelerator

        accelerator = get_accelerator()
        accelerator.is_fp16_supported = lambda: True


def main() -> None:
    allow_half_precision()
    for folder in map(Path, sys.argv[1:]):
        os.chdir(folder)
        config = read_config(RunFolder(folder))
        set_seed(1)
        args = TrainingArguments(**training_arguments(config))
        parts = build_task(config, folder, None, args.world_size)
        kept = Gradient()
        trainer = (ReversedTrainer if folder.name.endswith(REVERSED) else RunTrainer)(args, parts, StepMeter())
        trainer.saves = False
        kept.trainer = trainer
        trainer.add_callback(kept)
        trainer.train()
        torch.save(kept.whole, folder / GRADIENT)


if __name__ == "__main__":
    main()
