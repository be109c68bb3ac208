"""Failures of a training as findings, and losses that are NaN or infinite."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch
from accelerate import Accelerator
from trainwiz.core.errors import EXIT_TRAINING_FAILED, Finding, TrainwizError
from trainwiz.core.language import tr
from trainwiz.core.run.checkpoints import newest_complete
from trainwiz.core.run.folder import RunFolder, write_json_atomic
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

# failure-rank<N>.json: why a training process died, for the supervisor.

current_step: int | None = None
"""Last optimizer step that this process finished; kept by the metrics callback."""
current_phase: str | None = None
"""What it is at ("training", "evaluating", ...); kept by the phases."""


def note_step(step: int) -> None:
    global current_step
    current_step = step


def note_phase(phase: str) -> None:
    global current_phase
    current_phase = phase


def rank_of_this_process() -> int:
    """RANK as torchrun sets it; 0 for a single process."""
    rank = os.environ.get("RANK", "0")
    return int(rank) if rank.isdigit() else 0


def write_failure(folder: Path, error: BaseException) -> None:
    """Write failure-rank<N>.json: type, message, traceback, time_s (Unix seconds), step, phase, rank and findings."""
    rank = rank_of_this_process()
    findings = [finding.to_json() for finding in error.findings] if isinstance(error, TrainwizError) else []
    write_json_atomic(
        RunFolder(folder).failure_json(rank),
        {
            "type": type(error).__name__,
            "message": str(error),
            "traceback": "".join(traceback.format_exception(error)),
            "time_s": time.time(),
            "step": current_step,
            "phase": current_phase,
            "rank": rank,
            "findings": findings,
        },
    )


def exit_after_failure(folder: Path, error: BaseException, last_word: Callable[[int], None] | None = None) -> NoReturn:
    """Write the failure, say it in the log, and end this process with a code that is not 0."""
    try:
        write_failure(folder, error)
    except OSError as problem:
        print(f"cannot write the failure file: {problem}", file=sys.stderr)
    if isinstance(error, TrainwizError):
        for finding in error.findings:
            print(f"{finding.severity}: {finding.message}", file=sys.stderr)
    else:
        traceback.print_exception(error)
    if last_word is not None:
        last_word(1)
    sys.stdout.flush()
    sys.stderr.flush()
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        # A clean interpreter exit waits for collectives in which the other processes still hang.
        os._exit(1)
    sys.exit(1)


# LossGuard: no step with a loss that is no number goes unseen, and weights that are none are never saved.

MOST_SKIPPED = 25
"""fp16 leaves out a step whose gradients overflow and halves its scale, from 65,536 down to 1 in 16 steps.
A loss that is no number for this many steps in a row does not come from the scale."""


class NonFiniteLoss(TrainwizError):
    """The training is over: its loss or its weights are no numbers. The weights in memory are lost."""

    def __init__(self, message: str) -> None:
        super().__init__(Finding("nan_loss", "error", "training", message), EXIT_TRAINING_FAILED)


class LossGuard(TrainerCallback):
    """Watches the loss of every micro-batch of every process; all processes come to the same verdict at the same step.

    A window with a bad loss ends the run (`on_nan` "stop"), unless its optimizer step was left out,
    as fp16 does after an overflow: the weights are then what they were. With "continue" the run goes
    on, and only saving weights that are no numbers is refused.
    """

    def __init__(self, on_nan: Literal["stop", "continue"], accelerator: Accelerator, folder: RunFolder) -> None:
        self._stops = on_nan == "stop"
        self._accelerator = accelerator
        self._folder = folder
        self._bad: torch.Tensor | None = None
        self._in_a_row = 0

    def see(self, loss: torch.Tensor) -> None:
        """The loss of one micro-batch. Kept on the device and read once a step: no synchronisation here."""
        bad = ~torch.isfinite(loss.detach()).all()
        self._bad = bad if self._bad is None else self._bad | bad

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Raises NonFiniteLoss. Comes before anything of this step can be saved."""
        bad, self._bad = self._bad, None
        if not self._stops:
            return
        if bad is None or not self._anywhere(bad):
            self._in_a_row = 0
            return
        self._in_a_row += 1
        step = state.global_step + 1
        if not self._accelerator.optimizer_step_was_skipped:
            raise NonFiniteLoss(self._said(tr("The loss is not a number at step {step}.", step=f"{step:,}")))
        if self._in_a_row >= MOST_SKIPPED:
            message = tr(
                "The loss was not a number in {n} steps in a row, up to step {step}.",
                n=self._in_a_row,
                step=f"{step:,}",
            )
            raise NonFiniteLoss(self._said(message))

    def may_save(self, model: torch.nn.Module, step: int) -> bool:
        """Whether the weights are numbers; every process must call it. Raises NonFiniteLoss where that ends the run."""
        if not self._anywhere(_any_not_finite(model, self._accelerator.device)):
            return True
        message = tr("The weights are no numbers any more at step {step}: they are not saved.", step=f"{step:,}")
        if self._stops:
            raise NonFiniteLoss(self._said(message))
        if self._accelerator.is_main_process:
            print(message, flush=True)
        return False

    def refuse_final(self, model: Any, step: int) -> None:
        """final_model is made of numbers or not at all, whatever `on_nan` says. Raises NonFiniteLoss."""
        if not self.may_save(model, step):
            raise NonFiniteLoss(
                self._said(tr("The weights are no numbers at the end, so that there is no final_model."))
            )

    def _anywhere(self, bad: torch.Tensor) -> bool:
        """Whether it is so in any process."""
        if self._accelerator.num_processes == 1:
            return bool(bad.item())
        flag = bad.to(self._accelerator.device, torch.int64).reshape(1)
        return bool(self._accelerator.reduce(flag, reduction="sum").item() > 0)

    def _said(self, what: str) -> str:
        """With what is still good; nothing after the last save was kept."""
        newest = newest_complete(self._folder)
        if newest is None:
            return tr("{what} There is no checkpoint from before.", what=what)
        return tr("{what} The last good checkpoint is {name}.", what=what, name=newest.name)


def _any_not_finite(model: torch.nn.Module, device: torch.device) -> torch.Tensor:
    """Bool scalar: whether a weight that trains is no number, of those that this process holds."""
    bad = torch.zeros((), dtype=torch.bool, device=device)
    with torch.no_grad():
        for weight in _own_weights(model.parameters()):
            if weight.is_floating_point() and weight.numel():
                # Copies nothing, unlike isfinite of each: a sum is no number when one of its summands is none.
                bad |= ~torch.isfinite(weight.sum(dtype=torch.float32)).to(device)
    return bad


def _own_weights(parameters: Iterable[torch.nn.Parameter]) -> Iterable[torch.Tensor]:
    """What this process holds of each: ZeRO-3 and FSDP share them out."""
    for parameter in parameters:
        if not parameter.requires_grad:
            continue
        shard: Any = getattr(parameter, "ds_tensor", None)
        if shard is not None:
            yield shard
            continue
        local: Callable[[], torch.Tensor] | None = getattr(parameter, "to_local", None)
        yield parameter if local is None else local()
