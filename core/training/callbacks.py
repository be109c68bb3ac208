"""What happens beside the steps, and the reporters."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from accelerate import Accelerator
from trainwiz.core.catalog.hub import is_offline
from trainwiz.core.errors import EXIT_TRAINING_FAILED, usage_error
from trainwiz.core.language import tr
from trainwiz.core.run.folder import FolderPlace, RunFolder, write_json_atomic
from trainwiz.core.training.batches import EpochSampler
from trainwiz.core.training.engine import read_engine, refuse_unshared
from trainwiz.core.training.phases import StopRequest
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

# Reporters (TensorBoard, Weights & Biases, ...): none of them may end a training.

OFFLINE: Mapping[str, Mapping[str, str]] = {"wandb": {"WANDB_MODE": "offline"}}
"""What makes a reporter write into the run folder instead of to its server."""


class GuardedReporter(TrainerCallback):
    """Passes every event on. What fails is said once in the log, and the training goes on without it.

    A reporter that fails at the start and can write into the run folder instead does so.
    """

    def __init__(self, name: str, make: Callable[[], TrainerCallback]) -> None:
        self._name = name
        self._make = make
        self._inner: TrainerCallback | None = None
        self._attempt(self._create)

    def pass_on(
        self, event: str, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        def call() -> None:
            if self._inner is not None:
                getattr(self._inner, event)(args, state, control, **kwargs)

        self._attempt(call, first=event == "on_train_begin")

    def _create(self) -> None:
        self._inner = self._make()

    def _create_anew(self) -> None:
        # A package that has read its environment reads it again only after this.
        tear_down = getattr(sys.modules.get(self._name), "teardown", None)
        if tear_down is not None:
            tear_down()
        self._create()

    def _attempt(self, call: Callable[[], None], first: bool = False) -> None:
        try:
            call()
            return
        except Exception as error:  # noqa: BLE001 - whatever a reporter does, the training goes on
            problem = error
        offline = {key: value for key, value in OFFLINE.get(self._name, {}).items() if key not in os.environ}
        if first and offline:
            print(f"{self._name} writes into the run folder, for its server cannot be used: {problem}", flush=True)
            os.environ.update(offline)
            self._attempt(self._create_anew)
            self._attempt(call)
            return
        self._inner = None
        print(f"{self._name} failed and reports no more: {type(problem).__name__}: {problem}", flush=True)


def _passing_on(event: str) -> Callable[..., None]:
    def handle(
        self: GuardedReporter, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.pass_on(event, args, state, control, **kwargs)

    return handle


for _event in dir(TrainerCallback):
    if _event.startswith("on_"):
        setattr(GuardedReporter, _event, _passing_on(_event))


def take_reporters(args: TrainingArguments) -> list[GuardedReporter]:
    """The reporters of `args`, which names none afterwards, so that the Trainer adds none of its own.

    Offline (HF_HUB_OFFLINE) they write into the run folder. Raises UsageError for a name that is not known.
    """
    names = [args.report_to] if isinstance(args.report_to, str) else list(args.report_to or [])
    names = [name for name in names if name != "none"]
    unknown = [name for name in names if name not in INTEGRATION_TO_CALLBACK]
    if unknown:
        known = ", ".join(sorted(INTEGRATION_TO_CALLBACK))
        raise usage_error(
            "reporter_not_supported",
            "logging.report_to",
            tr(
                "There is no reporter {names}; transformers reports to {known}, or none (logging.report_to).",
                names=", ".join(unknown),
                known=known,
            ),
        )
    args.report_to = []
    if is_offline():
        for name in names:
            for key, value in OFFLINE.get(name, {}).items():
                os.environ.setdefault(key, value)
    return [_class_of(name)(name, INTEGRATION_TO_CALLBACK[name]) for name in dict.fromkeys(names)]


def _class_of(name: str) -> type[GuardedReporter]:
    """A class for each: the Trainer warns of two callbacks of the same one."""
    return type(f"{GuardedReporter.__name__}_{name}", (GuardedReporter,), {})


def add_reporters(trainer: Trainer, reporters: list[GuardedReporter]) -> None:
    for reporter in reporters:
        trainer.add_callback(reporter)


# Small callbacks: the epoch of the sampler, the engine file, a stop that all processes agree on.


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
