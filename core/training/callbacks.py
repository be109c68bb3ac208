"""What happens beside the steps: reporters, stops, losses that are no numbers, traces."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from accelerate import Accelerator
from torch.profiler import ProfilerActivity, profile, schedule
from trainwiz.core.catalog.hub import is_offline
from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import checkpoints_kept
from trainwiz.core.errors import EXIT_TRAINING_FAILED, Finding, TrainwizError
from trainwiz.core.language import tr
from trainwiz.core.run.checkpoints import newest_complete
from trainwiz.core.run.folder import FolderPlace, RunFolder, write_json_atomic
from trainwiz.core.training.engine import read_engine, refuse_unshared
from trainwiz.core.training.events import Moment, RunCallback, any_process
from trainwiz.core.training.metrics import StepMeter
from trainwiz.core.training.process import StopRequest, phases
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

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
    # A class for each: the Trainer warns of two callbacks of the same one.
    kind = GuardedReporter
    return [type(f"{kind.__name__}_{name}", (kind,), {})(name, INTEGRATION_TO_CALLBACK[name]) for name in names]


# Small callbacks: the place of the run folder, the engine file and the phase.


class PlaceCallback(RunCallback):
    """Ends the process once its run folder is another one than it began in: what stands there now is not of this run."""

    def __init__(self, place: FolderPlace) -> None:
        self._place = place

    def check(self, _: Moment | None = None) -> None:
        """Nothing is written on the way out but a line of the log, which moved with the folder."""
        if not self._place.holds():
            print(f"{self._place.path} was moved or replaced during the run: the training ends here", flush=True)
            os._exit(EXIT_TRAINING_FAILED)

    step_end = log = check


class EngineCallback(RunCallback):
    """Writes engine.json once the model is wrapped; a run that would train with another engine ends there. Training begins,
    and with torch.compile its first step compiles."""

    def __init__(self, folder: RunFolder, config: RunConfig, trainer: Trainer) -> None:
        self._folder = folder
        self._config = config
        self._trainer = trainer

    def train_begin(self, now: Moment) -> None:
        phases.enter("compiling" if self._config.engine.compile else "training", now.state.global_step)
        engine = read_engine(self._trainer)
        if now.state.is_world_process_zero:
            document = {**engine, "checkpoints_kept": checkpoints_kept(self._config)}
            write_json_atomic(self._folder.engine_json, document)
        refuse_unshared(self._config.engine.strategy, engine)

    def step_end(self, now: Moment) -> None:
        phases.step = now.state.global_step
        if phases.now == "compiling":
            phases.enter("training")


# A stop that all processes agree on.

ASK_EVERY = 16
"""Several processes leave an evaluation together: they ask each other after so many batches of it."""


class StopCallback(RunCallback):
    """Ends the training with a checkpoint when any process was asked to stop.

    Several processes share the flag at the end of each optimizer step, within evaluations and after saves, so that all stop
    at the same place. A single one drops the accumulation window under way, which the resumed run computes again. An
    evaluation under way is left without a result; after the last step the run is finished all the same.
    """

    def __init__(self, request: StopRequest, accelerator: Accelerator, saved: set[int]) -> None:
        self.stopped = False
        self._request = request
        self._accelerator = accelerator
        self._saved = saved

    @property
    def requested(self) -> bool:
        """Whether this process was asked."""
        return self._request.requested

    def agreed(self) -> bool:
        """Whether any process was asked; every process must call it at the same place."""
        return any_process(self._accelerator, self.requested)

    def leaves_evaluation(self, batches: int) -> bool:
        """Whether all processes leave the evaluation now, after `batches` of it."""
        if self._accelerator.num_processes == 1:
            return self.requested
        return batches % ASK_EVERY == 0 and self.agreed()

    def drops_window(self) -> bool:
        """Whether no more micro-batches of the window under way are wanted."""
        return self._accelerator.num_processes == 1 and self.requested

    def epoch_begin(self, now: Moment) -> None:
        # The last step ends the run by itself.
        if now.state.global_step < now.state.max_steps and self.agreed():
            self._stop(now)

    evaluate = save = epoch_begin

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
        now.control.should_save = step > 0 and step not in self._saved


# LossGuard: no step with a loss that is no number goes unseen, and weights that are none are never saved.

MOST_SKIPPED = 25
"""fp16 leaves out a step whose gradients overflow and halves its scale, from 65,536 down to 1 in 16 steps.
A loss that is no number for this many steps in a row does not come from the scale."""


class NonFiniteLoss(TrainwizError):
    """The training is over: its loss or its weights are no numbers. The weights in memory are lost."""

    def __init__(self, message: str) -> None:
        super().__init__(Finding("nan_loss", "error", "training", message), EXIT_TRAINING_FAILED)


class LossGuard(RunCallback):
    """Watches the loss of every micro-batch; all processes come to the same verdict at the same step.

    A window with a bad loss ends the run (`on_nan` "stop"), unless its optimizer step was left out, as fp16 does after an
    overflow. With "continue" the run goes on, and only saving weights that are no numbers is refused.
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

    def optimizer_step(self, now: Moment) -> None:
        """Raises NonFiniteLoss. Comes before anything of this step can be saved."""
        bad, self._bad = self._bad, None
        if not self._stops:
            return
        if bad is None or not any_process(self._accelerator, bad):
            self._in_a_row = 0
            return
        self._in_a_row += 1
        step = f"{now.state.global_step + 1:,}"
        if not self._accelerator.optimizer_step_was_skipped:
            raise self._failure(tr("The loss is NaN or infinite at step {step}.", step=step))
        if self._in_a_row >= MOST_SKIPPED:
            raise self._failure(
                tr(
                    "The loss was NaN or infinite in {n} steps in a row, up to step {step}.",
                    n=self._in_a_row,
                    step=step,
                )
            )

    def may_save(self, model: torch.nn.Module, step: int) -> bool:
        """Whether the weights are numbers; every process must call it. Raises NonFiniteLoss where that ends the run."""
        if not any_process(self._accelerator, _any_not_finite(model, self._accelerator.device)):
            return True
        message = tr("The weights are NaN or infinite at step {step}: they are not saved.", step=f"{step:,}")
        if self._stops:
            raise self._failure(message)
        if self._accelerator.is_main_process:
            print(message, flush=True)
        return False

    def refuse_final(self, model: Any, step: int) -> None:
        """final_model is made of numbers or not at all, whatever `on_nan` says. Raises NonFiniteLoss."""
        if not self.may_save(model, step):
            raise self._failure(tr("The weights are NaN or infinite at the end, so there is no final_model."))

    def _failure(self, what: str) -> NonFiniteLoss:
        """With what is still good; nothing after the last save was kept."""
        newest = newest_complete(self._folder)
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


class TraceCallback(RunCallback):
    """Rank 0 records `steps` optimizer steps and writes two files into RUN/trace.

    steps-<first>-<last>.json.gz is the trace (Chrome's format), steps-<first>-<last>.txt the
    operations that took longest. A stop in the middle writes what there is.
    """

    def __init__(self, folder: RunFolder, steps: int, meter: StepMeter) -> None:
        self._folder = folder.trace
        self._steps = steps
        self._meter = meter
        self._first = self._last = 0
        self._profiler: Any = None

    def train_begin(self, now: Moment) -> None:
        if not now.state.is_world_process_zero:
            return
        done, on_gpu = now.state.global_step, now.args.device.type == "cuda"
        warmup = max(0, min(WARM_UP_STEPS, now.state.max_steps - done - self._steps))
        self._first = done + warmup + 1
        self._profiler = profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])],
            schedule=schedule(wait=0, warmup=warmup, active=self._steps, repeat=1),
            on_trace_ready=self._export,
            profile_memory=True,
            record_shapes=True,
        )
        self._profiler.start()

    def step_end(self, now: Moment) -> None:
        self._last = now.state.global_step
        if self._profiler is not None:
            with self._meter.paused():
                self._profiler.step()

    def train_end(self, now: Moment) -> None:
        if self._profiler is not None:
            self._profiler.stop()

    def _export(self, profiler: Any) -> None:
        started = time.perf_counter()
        self._folder.mkdir(exist_ok=True)
        name = f"steps-{self._first}-{self._last}"
        path = self._folder / f"{name}.json.gz"
        profiler.export_chrome_trace(str(path))
        order = "self_cuda_time_total" if ProfilerActivity.CUDA in profiler.activities else "self_cpu_time_total"
        table = profiler.key_averages().table(sort_by=order, row_limit=LONGEST_TABLE, max_name_column_width=60)
        (self._folder / f"{name}.txt").write_text(f"{table}\n", encoding="utf-8")
        print(f"trace in {path}, written in {time.perf_counter() - started:.1f} s", flush=True)
