"""Callbacks: what the Trainer tells them, and what happens beside the steps: reporters, stops, losses that are no numbers,
traces."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from accelerate import Accelerator
from torch.profiler import profile, schedule
from trainwiz.core.catalog.hub import is_offline
from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import checkpoints_kept
from trainwiz.core.errors import EXIT_TRAINING_FAILED, Finding, TrainwizError
from trainwiz.core.language import tr
from trainwiz.core.run.checkpoints import newest_complete
from trainwiz.core.run.folder import FolderPlace, RunFolder, write_json_atomic
from trainwiz.core.training.engine import read_engine, refuse_unshared
from trainwiz.core.training.process import StopRequest, phases
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

if TYPE_CHECKING:
    from trainwiz.core.training.metrics import StepMeter

# What the Trainer tells its callbacks, and what the processes of a run ask each other.


class Moment(NamedTuple):
    """What is known where something happens."""

    args: TrainingArguments
    state: TrainerState
    control: TrainerControl
    values: dict[str, Any]
    """What only some events bring, as "logs"."""


class RunCallback(TrainerCallback):
    """A callback of the Trainer with a method for each event that it hears: `step_end(now)` for on_step_end."""

    def happens(self, event: str, now: Moment) -> None:
        method: Callable[[Moment], None] | None = getattr(self, event.removeprefix("on_"), None)
        if method is not None:
            method(now)


def _hears(event: str) -> Callable[..., None]:
    def hear(
        self: RunCallback, args: TrainingArguments, state: TrainerState, control: TrainerControl, **values: Any
    ) -> None:
        self.happens(event, Moment(args, state, control, values))

    return hear


for _event in dir(TrainerCallback):
    if _event.startswith("on_"):
        setattr(RunCallback, _event, _hears(_event))


def any_process(accelerator: Accelerator, mine: bool | torch.Tensor) -> bool:
    """Whether it is so in any process; every process must ask at the same place."""
    if accelerator.num_processes == 1:
        return bool(mine)
    flag = torch.as_tensor(mine).to(accelerator.device, torch.int64).reshape(1)
    return bool(accelerator.reduce(flag, reduction="sum").item() > 0)


# Reporters (TensorBoard, Weights & Biases, ...): none of them may end a training.


class GuardedReporter(RunCallback):
    """Passes every event on. What fails is said once in the log, and the training goes on without it."""

    def __init__(self, name: str, make: Callable[[], TrainerCallback]) -> None:
        self._name = name
        self._inner: TrainerCallback | None = None
        with self._guarded():
            self._inner = make()

    def happens(self, event: str, now: Moment) -> None:
        with self._guarded():
            if self._inner is not None:
                getattr(self._inner, event)(now.args, now.state, now.control, **now.values)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as problem:  # noqa: BLE001 - whatever a reporter does, the training goes on
            self._inner = None
            print(f"{self._name} failed and is disabled: {type(problem).__name__}: {problem}", flush=True)
            if self._name == "wandb":
                print("without its server, WANDB_MODE=offline makes wandb write to the run folder", flush=True)


def take_reporters(args: TrainingArguments) -> list[GuardedReporter]:
    """The reporters of `args`, which names none afterwards, so that the Trainer adds none of its own.

    Offline (HF_HUB_OFFLINE) wandb writes into the run folder. The plan has refused what transformers does not know.
    """
    names, args.report_to = dict.fromkeys(args.report_to or ()), []
    if is_offline():
        os.environ.setdefault("WANDB_MODE", "offline")
    return [GuardedReporter(name, INTEGRATION_TO_CALLBACK[name]) for name in names]


# Small callbacks: the place of the run folder, the engine file and the phase.


@dataclass(eq=False)
class PlaceCallback(RunCallback):
    """Ends the process once its run folder is another one than it began in: what stands there now is not of this run."""

    place: FolderPlace

    def check(self, _: Moment | None = None) -> None:
        """Nothing is written on the way out but a line of the log, which moved with the folder."""
        if not self.place.holds():
            print(f"{self.place.path} was moved or replaced during the run: the training ends here", flush=True)
            os._exit(EXIT_TRAINING_FAILED)

    step_end = log = check


@dataclass(eq=False)
class EngineCallback(RunCallback):
    """Writes engine.json once the model is wrapped; a run that would train with another engine ends there. Training begins,
    and with torch.compile its first step compiles."""

    folder: RunFolder
    config: RunConfig
    trainer: Trainer

    def train_begin(self, now: Moment) -> None:
        engine = read_engine(self.trainer)
        if now.state.is_world_process_zero:
            write_json_atomic(self.folder.engine_json, {**engine, "checkpoints_kept": checkpoints_kept(self.config)})
        # After it: whoever sees that the run trains may ask for its engine.
        phases.enter("compiling" if self.config.engine.compile else "training", now.state.global_step)
        refuse_unshared(self.config.engine.strategy, engine)

    def step_end(self, now: Moment) -> None:
        phases.step = now.state.global_step
        if phases.now == "compiling":
            phases.enter("training")


# A stop that all processes agree on.

ASK_EVERY = 16
"""Several processes leave an evaluation together: they ask each other after so many batches of it."""


@dataclass(eq=False)
class StopCallback(RunCallback):
    """Ends the training with a checkpoint when any process was asked to stop.

    Several processes share the flag at the end of each optimizer step, within evaluations and after saves, so that all stop
    at the same place. A single one drops the accumulation window under way, which the resumed run computes again. An
    evaluation under way is left without a result; after the last step the run is finished all the same, unless that
    evaluation decides which weights final_model has: a resumed run then evaluates first.
    """

    request: StopRequest
    accelerator: Accelerator
    saved: set[int]
    """Steps with a checkpoint."""
    decides: bool = False
    """Whether the last evaluation decides what final_model is."""
    stopped: bool = False

    @property
    def requested(self) -> bool:
        """Whether this process was asked."""
        return self.request.requested

    def agreed(self) -> bool:
        """Whether any process was asked; every process must call it at the same place."""
        return any_process(self.accelerator, self.requested)

    def leaves_evaluation(self, batches: int) -> bool:
        """Whether all processes leave the evaluation now, after `batches` of it."""
        return self.drops_window() or (batches % ASK_EVERY == 0 and self.agreed())

    def drops_window(self) -> bool:
        """Whether no more micro-batches of the window under way are wanted."""
        return self.accelerator.num_processes == 1 and self.requested

    def epoch_begin(self, now: Moment) -> None:
        # The last step ends the run by itself.
        if now.state.global_step < now.state.max_steps and self.agreed():
            self._stop(now)

    save = epoch_begin

    def evaluate(self, now: Moment) -> None:
        if self.decides and not now.values.get("metrics") and now.state.global_step >= now.state.max_steps:
            self._stop(now)
        else:
            self.epoch_begin(now)

    def step_end(self, now: Moment) -> None:
        self.epoch_begin(now)
        if self.stopped:
            now.control.should_log = True

    def substep_end(self, now: Moment) -> None:
        if self.drops_window():
            self._stop(now)

    def epoch_end(self, now: Moment) -> None:
        if self.stopped:
            now.control.should_evaluate = False

    def _stop(self, now: Moment) -> None:
        self.stopped = True
        step = now.state.global_step
        now.control.should_training_stop = True
        now.control.should_evaluate = False
        now.control.should_save = step > 0 and step not in self.saved


# LossGuard: no step with a loss that is no number goes unseen, and weights that are none are never saved.

MOST_SKIPPED = 25
"""fp16 leaves out a step whose gradients overflow and halves its scale, from 65,536 down to 1 in 16 steps.
A loss that is no number for this many steps in a row does not come from the scale."""


class NonFiniteLoss(TrainwizError):
    """The training is over: its loss or its weights are no numbers. The weights in memory are lost."""

    def __init__(self, message: str) -> None:
        super().__init__(Finding("nan_loss", "error", "training", message), EXIT_TRAINING_FAILED)


@dataclass(eq=False)
class LossGuard(RunCallback):
    """Watches the loss of every micro-batch; all processes come to the same verdict at the same step.

    A window with a bad loss ends the run (`on_nan` "stop"), unless its optimizer step was left out, as fp16 does after an
    overflow. With "continue" the run goes on, and only saving weights that are no numbers is refused.
    """

    on_nan: Literal["stop", "continue"]
    accelerator: Accelerator
    folder: RunFolder
    bad: torch.Tensor | None = None
    """Of the step under way; kept on the device and read once a step: no synchronisation here."""
    in_a_row: int = 0

    def see(self, loss: torch.Tensor) -> None:
        """The loss of one micro-batch."""
        bad = ~torch.isfinite(loss.detach()).all()
        self.bad = bad if self.bad is None else self.bad | bad

    def optimizer_step(self, now: Moment) -> None:
        """Raises NonFiniteLoss. Comes before anything of this step can be saved."""
        bad, self.bad = self.bad, None
        if self.on_nan != "stop":
            return
        if bad is None or not any_process(self.accelerator, bad):
            self.in_a_row = 0
            return
        self.in_a_row += 1
        if not self.accelerator.optimizer_step_was_skipped or self.in_a_row >= MOST_SKIPPED:
            step = f"{now.state.global_step + 1:,}"
            raise self._failure(tr("The loss is NaN or infinite at step {step}.", step=step))

    def may_save(self, model: torch.nn.Module, step: int) -> bool:
        """Whether the weights are numbers; every process must call it. Raises NonFiniteLoss where that ends the run."""
        if not any_process(self.accelerator, _any_not_finite(model, self.accelerator.device)):
            return True
        message = tr("The weights are NaN or infinite at step {step}: they are not saved.", step=f"{step:,}")
        if self.on_nan == "stop":
            raise self._failure(message)
        if self.accelerator.is_main_process:
            print(message, flush=True)
        return False

    def refuse_final(self, model: Any, step: int) -> None:
        """final_model is made of numbers or not at all, whatever `on_nan` says. Raises NonFiniteLoss."""
        if not self.may_save(model, step):
            raise self._failure(tr("The weights are NaN or infinite at the end, so there is no final_model."))

    def _failure(self, what: str) -> NonFiniteLoss:
        """With what is still good; nothing after the last save was kept."""
        newest = newest_complete(self.folder)
        if newest is None:
            return NonFiniteLoss(tr("{what} There is no earlier checkpoint.", what=what))
        return NonFiniteLoss(tr("{what} The last good checkpoint is {name}.", what=what, name=newest.name))


def _any_not_finite(model: torch.nn.Module, device: torch.device) -> torch.Tensor:
    """Bool scalar: whether a weight that trains is no number, of those that this process holds."""
    bad = torch.zeros((), dtype=torch.bool, device=device)
    with torch.no_grad():
        for parameter in model.parameters():
            # ZeRO-3 and FSDP share them out.
            own: Any = getattr(parameter, "ds_tensor", parameter)
            weight: torch.Tensor = own.to_local() if hasattr(own, "to_local") else own
            if parameter.requires_grad and weight.is_floating_point() and weight.numel():
                # Copies nothing, unlike isfinite of each: a sum is no number when one of its summands is none.
                bad |= ~torch.isfinite(weight.sum(dtype=torch.float32)).to(device)
    return bad


# Profiler traces of a few steps, for chrome://tracing or https://ui.perfetto.dev.

WARM_UP_STEPS = 2
"""Steps before the trace: the first ones fill caches, pick kernels and compile."""
LONGEST_TABLE = 30


@dataclass(eq=False)
class TraceCallback(RunCallback):
    """Rank 0 records `steps` optimizer steps and writes two files into RUN/trace.

    steps-<first>-<last>.json.gz is the trace (Chrome's format), steps-<first>-<last>.txt the
    operations that took longest. A stop in the middle writes what there is.
    """

    folder: RunFolder
    steps: int
    meter: StepMeter
    first: int = 0
    last: int = 0
    device: str = "cpu"
    profiler: Any = None

    def train_begin(self, now: Moment) -> None:
        if not now.state.is_world_process_zero:
            return
        done = now.state.global_step
        self.device = "cuda" if now.args.device.type == "cuda" else "cpu"
        warmup = max(0, min(WARM_UP_STEPS, now.state.max_steps - done - self.steps))
        self.first = done + warmup + 1
        self.profiler = profile(
            schedule=schedule(wait=0, warmup=warmup, active=self.steps, repeat=1),
            on_trace_ready=self._export,
            profile_memory=True,
            record_shapes=True,
        )
        self.profiler.start()

    def step_end(self, now: Moment) -> None:
        self.last = now.state.global_step
        if self.profiler is not None:
            with self.meter.paused():
                self.profiler.step()

    def train_end(self, now: Moment) -> None:
        if self.profiler is not None:
            self.profiler.stop()

    def _export(self, profiler: Any) -> None:
        started = time.perf_counter()
        self.folder.trace.mkdir(exist_ok=True)
        path = self.folder.trace / f"steps-{self.first}-{self.last}.json.gz"
        profiler.export_chrome_trace(str(path))
        longest = profiler.key_averages().table(
            sort_by=f"self_{self.device}_time_total", row_limit=LONGEST_TABLE, max_name_column_width=60
        )
        path.with_name(f"steps-{self.first}-{self.last}.txt").write_text(f"{longest}\n", encoding="utf-8")
        print(f"trace in {path}, written in {time.perf_counter() - started:.1f} s", flush=True)
