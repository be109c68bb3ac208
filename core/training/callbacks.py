"""Small callbacks: the epoch of the sampler, the engine file, a stop that all processes agree on."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from trainwiz.core.errors import EXIT_TRAINING_FAILED
from trainwiz.core.run.folder import FolderPlace, RunFolder, write_json_atomic
from trainwiz.core.training.engine import read_engine, refuse_unshared
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


class PlaceCallback(TrainerCallback):
    """Ends the process once its run folder is another one than it began in: what stands there now is not of this run."""

    def __init__(self, place: FolderPlace) -> None:
        self._place = place

    def check(self) -> None:
        """Nothing is written on the way out but a line of the log, which moved with the folder."""
        if not self._place.holds():
            print(f"{self._place.path} was moved away or replaced while the run went on: it ends here", flush=True)
            os._exit(EXIT_TRAINING_FAILED)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.check()

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.check()


class EngineCallback(TrainerCallback):
    """Writes engine.json once the model is wrapped; a run that would train with another engine ends there."""

    def __init__(self, folder: RunFolder, strategy: str | None, checkpoints_kept: int | None = None) -> None:
        self._folder = folder
        self._strategy = strategy
        self._checkpoints_kept = checkpoints_kept
        self.trainer: Trainer | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.trainer is None:
            return
        engine = read_engine(self.trainer)
        if state.is_world_process_zero:
            write_json_atomic(self._folder.engine_json, {**engine, "checkpoints_kept": self._checkpoints_kept})
        refuse_unshared(self._strategy, engine)


ASK_EVERY_S = 2.0
"""Several processes leave an evaluation together: they ask each other as often."""
MOST_BATCHES = 64
"""And at least after so many batches."""


class StopCallback(TrainerCallback):
    """Ends the training with a checkpoint when any process was asked to stop.

    With several processes the flag is shared at the end of each optimizer step, within evaluations and
    after saves, so that all of them stop at the same place. A single process does not wait for the rest
    of a long accumulation window: the window is dropped, and the resumed run computes it again. An
    evaluation under way is left without a result; after the last step the run is finished all the same.
    """

    def __init__(self, request: StopRequest, accelerator: Accelerator, saved: set[int]) -> None:
        self.stopped = False
        self._request = request
        self._accelerator = accelerator
        self._saved = saved
        self._ask_at = 0
        """Batch of the evaluation at which the processes ask each other next."""
        self._asked = (0, 0.0)
        """Batch and time (monotonic, seconds) of the last time."""

    def agreed(self) -> bool:
        """Whether any process was asked; every process must call it at the same place."""
        return self._sums(float(self._request.requested))[0] > 0

    def leaves_evaluation(self, batches: int) -> bool:
        """Whether all processes leave the evaluation now, after `batches` of it."""
        if self._accelerator.num_processes == 1:
            return self._request.requested
        if batches and batches < self._ask_at:
            return False
        now = time.monotonic()
        asked_at, asked_s = self._asked
        batch_s = (now - asked_s) / max(1, batches - asked_at)
        # The time is shared too: the processes must come to the same next batch.
        requested, batches_s = self._sums(float(self._request.requested), batch_s)
        each_s = max(batches_s / self._accelerator.num_processes, 1e-6)
        self._ask_at = batches + (max(1, min(MOST_BATCHES, int(ASK_EVERY_S / each_s))) if batches else 1)
        self._asked = (batches, now)
        return requested > 0

    def _sums(self, *values: float) -> list[float]:
        """The sums of each value over all processes."""
        if self._accelerator.num_processes == 1:
            return list(values)
        mine = torch.tensor(values, dtype=torch.float32, device=self._accelerator.device)
        sums: list[float] = self._accelerator.reduce(mine, reduction="sum").tolist()
        return sums

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

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step < state.max_steps and self.agreed():
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
