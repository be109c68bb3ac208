"""Small callbacks: the epoch of the sampler, the engine file, a stop that all processes agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from trainwiz.core.run.folder import RunFolder, write_json_atomic
from trainwiz.core.training.engine import read_engine
from trainwiz.core.training.sampling import EpochSampler
from trainwiz.core.training.stop import StopRequest
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

if TYPE_CHECKING:
    from transformers import Trainer


class EpochCallback(TrainerCallback):
    """Tells the sampler which epoch begins, in the first run and in a resumed one."""

    def __init__(self, sampler: EpochSampler) -> None:
        self._sampler = sampler

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._sampler.start_epoch(int(state.epoch or 0))


class EngineCallback(TrainerCallback):
    """Writes engine.json once the model is wrapped."""

    def __init__(self, folder: RunFolder, checkpoints_kept: int | None = None) -> None:
        self._folder = folder
        self._checkpoints_kept = checkpoints_kept
        self.trainer: Trainer | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero and self.trainer is not None:
            document = {**read_engine(self.trainer), "checkpoints_kept": self._checkpoints_kept}
            write_json_atomic(self._folder.engine_json, document)


EVALUATION_BATCHES = 8
"""Several processes leave an evaluation together: they ask each other after so many batches."""


class StopCallback(TrainerCallback):
    """Ends the training with a checkpoint when any process was asked to stop.

    With several processes the flag is shared at the end of each optimizer step, within evaluations and
    after saves, so that all of them stop at the same place. A single process does not wait for the rest
    of a long accumulation window: the window is dropped, and the resumed run computes it again. An
    evaluation under way is left without a result; a run that was stopped in its last one makes it up.
    """

    def __init__(self, request: StopRequest, accelerator: Accelerator, saved: set[int]) -> None:
        self.stopped = False
        self._request = request
        self._accelerator = accelerator
        self._saved = saved

    def agreed(self) -> bool:
        """Whether any process was asked; every process must call it at the same place."""
        if self._accelerator.num_processes == 1:
            return self._request.requested
        flag = torch.tensor([int(self._request.requested)], device=self._accelerator.device)
        return bool(self._accelerator.reduce(flag, reduction="sum").item() > 0)

    def leaves_evaluation(self, batches: int) -> bool:
        """Whether all processes leave the evaluation now, after `batches` of it."""
        due = self._accelerator.num_processes == 1 or batches % EVALUATION_BATCHES == 0
        return due and self.agreed()

    def drops_window(self) -> bool:
        """Whether no more micro-batches of the window under way are wanted."""
        return self._accelerator.num_processes == 1 and self._request.requested

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.global_step < state.max_steps and self.agreed():
            self._stop(state, control)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        # The last step ends the run by itself.
        if state.global_step < state.max_steps and self.agreed():
            self._stop(state, control)
            control.should_log = True

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.drops_window():
            self._stop(state, control)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        left = metrics is not None and not metrics
        if (left or state.global_step < state.max_steps) and self.agreed():
            self._stop(state, control)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step < state.max_steps and self.agreed():
            self._stop(state, control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.stopped:
            control.should_evaluate = False

    def _stop(self, state: TrainerState, control: TrainerControl) -> None:
        self.stopped = True
        control.should_training_stop = True
        control.should_evaluate = False
        control.should_save = state.global_step > 0 and state.global_step not in self._saved
