"""A training from its order to its last word."""

from __future__ import annotations

import os
import pickle
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
import yaml
from pydantic import ValidationError
from trainwiz.core.config import RunConfig
from trainwiz.core.config.build import with_recovery
from trainwiz.core.config.keys import checkpoints_kept
from trainwiz.core.config.yaml_text import load_yaml, problems_of
from trainwiz.core.errors import UsageError, os_reason, usage_error
from trainwiz.core.files import read_small
from trainwiz.core.language import tr
from trainwiz.core.run.attempts import RECOVERY_JSON
from trainwiz.core.run.folder import (
    OUTCOME_JSON,
    TENSORBOARD_LOGS,
    FolderPlace,
    RunFolder,
    read_json,
    write_json_atomic,
)
from trainwiz.core.training.best import choose_final
from trainwiz.core.training.callbacks import (
    EngineCallback,
    EpochCallback,
    LossGuard,
    PhaseCallback,
    PlaceCallback,
    StopCallback,
    TraceCallback,
    take_reporters,
)
from trainwiz.core.training.engine import (
    begin_process,
    compare_weights,
    name_blocks,
)
from trainwiz.core.training.generation import AnswersCallback
from trainwiz.core.training.identity_check import IdentityCheck
from trainwiz.core.training.metrics import MemoryCallback, MetricsCallback, StepMeter, json_number
from trainwiz.core.training.model import may_skip_weights, save_final_model
from trainwiz.core.training.process import StopRequest, phases
from trainwiz.core.training.saving import CheckpointSaver, DiskGuard
from trainwiz.core.training.tasks import TaskParts, build_task
from trainwiz.core.training.trainer import RunTrainer
from transformers import TrainingArguments
from transformers.trainer_utils import SaveStrategy


class TrainingSession:
    """Trains the run in `folder`; with `checkpoint`, goes on from it."""

    def __init__(self, folder: Path, checkpoint: Path | None, stop: StopRequest, accept: Collection[str] = ()) -> None:
        self.folder = RunFolder(folder)
        self.accept = accept
        self.checkpoint = checkpoint
        self.stop = stop
        self.place = FolderPlace(folder)

    def run(self) -> None:
        """Train, then write final_model and outcome.json. Raises UsageError for what is wrong with the run."""
        phases.begin(self.folder)
        config = read_config(self.folder)
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(self.folder.file(TENSORBOARD_LOGS)))
        args = begin_process(config)
        identity = IdentityCheck(self.folder, config, self.checkpoint, self.accept)
        identity.before_loading(args.world_size)
        phases.enter("loading")
        parts = build_task(config, self.folder.path, self.checkpoint, args.world_size)
        args.ddp_find_unused_parameters = may_skip_weights(parts.model)
        if not config.mode.saves:
            args.save_strategy = SaveStrategy.NO
        if parts.evaluation is None:
            args.eval_strategy = "no"
        # Of a resumed run it is a point of the curve already.
        args.eval_on_start = (
            bool(config.evaluation.at_start) and self.checkpoint is None and parts.evaluation is not None
        )
        identity.after_loading(parts)
        self._train(config, args, parts, identity)
        # The threads of a process group that is left to the end of the interpreter abort the process now and then.
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    def _train(self, config: RunConfig, args: TrainingArguments, parts: TaskParts, identity: IdentityCheck) -> None:
        meter, reporters = StepMeter(), take_reporters(args)
        trainer = RunTrainer(args, parts, meter, self.checkpoint)
        accelerator = trainer.accelerator
        name_blocks(trainer)
        patience = parts.patience
        metrics = MetricsCallback(self.folder, meter, accelerator, patience)
        stopping = StopCallback(self.stop, accelerator, trainer.saved_steps)
        guard = LossGuard(config.recovery.on_nan, accelerator, self.folder)
        place = PlaceCallback(self.place)
        trainer.metrics_callback, trainer.stopping, trainer.loss_guard = metrics, stopping, guard
        trainer.identity, trainer.check_place = identity, place.check
        trainer.stop_requested = lambda: self.stop.requested
        if config.mode.saves:
            wait_s, stops = config.recovery.disk_wait_s, trainer.stop_requested
            disk = DiskGuard(self.folder, accelerator, trainer.retention, wait_s=wait_s, stop_requested=stops)
            trainer.saver = CheckpointSaver(disk)
        for callback in (
            *reporters,
            place,
            EpochCallback(parts.sampler),
            PhaseCallback(config.engine.compile),
            guard,
            EngineCallback(self.folder, config.engine.strategy, trainer, checkpoints_kept(config)),
            metrics,
            *([patience] if patience is not None else ()),
            stopping,
        ):
            trainer.add_callback(callback)
        if config.logging.memory_every_steps is not None:
            trainer.add_callback(MemoryCallback(self.folder, config.logging.memory_every_steps, accelerator))
        if config.mode.trace_steps is not None:
            trainer.add_callback(TraceCallback(self.folder, config.mode.trace_steps, meter))
        if self.checkpoint is not None:
            step = int((read_json(self.checkpoint / "trainer_state.json") or {}).get("global_step") or 0)
            metrics.resume(self.checkpoint, step)
            trainer.saved_steps.add(step)
        else:
            metrics.start_over()
        if parts.questions is not None:
            begun = None if self.checkpoint is None else max(trainer.saved_steps, default=0)
            trainer.add_callback(AnswersCallback(parts.questions, self.folder, meter, trainer, begun))
        if stopping.agreed():
            self._write_outcome(trainer, metrics, "stopped", {})
            return
        try:
            trainer.train(resume_from_checkpoint=str(self.checkpoint) if self.checkpoint else None)
        except pickle.UnpicklingError as error:
            raise self._unsafe(error) from error
        finally:
            trainer.shield.over()
        results = {} if stopping.stopped else self._finish(config, trainer, guard, place)
        if patience is not None and not stopping.stopped:
            results |= patience.outcome()
        place.check()
        self._write_outcome(trainer, metrics, "stopped" if stopping.stopped else "finished", results)

    def _finish(self, config: RunConfig, trainer: RunTrainer, guard: LossGuard, place: PlaceCallback) -> dict[str, Any]:
        """Leave final_model, where the run saves; which weights it has, for outcome.json."""
        phases.enter("finishing")
        guard.refuse_final(trainer.model, trainer.state.global_step)
        if config.engine.nodes > 1:
            compare_weights(trainer.accelerator.unwrap_model(trainer.model), trainer.accelerator)
        place.check()
        if not config.mode.saves:
            return {}
        final = choose_final(config, self.folder, trainer.retention, trainer.state.global_step)
        save_final_model(trainer, self.folder, config, final)
        return final.to_json()

    def _unsafe(self, error: Exception) -> UsageError:
        """A checkpoint is read as tensors and values; one that asks for more was not saved by a training of ours."""
        message = tr(
            "{name} is not resumed: it contains more than tensors and values, which could run code ({reason}). "
            "Resume from another checkpoint, or train from its weights only: --model {path}.",
            name=self.checkpoint.name if self.checkpoint else "",
            reason=str(error).splitlines()[0][:200].rstrip("."),
            path=shlex.quote(str(self.checkpoint)),
        )
        return usage_error("unsafe_checkpoint", str(self.checkpoint), message)

    def _write_outcome(
        self, trainer: RunTrainer, metrics: MetricsCallback, outcome: str, results: dict[str, Any]
    ) -> None:
        if not trainer.is_world_process_zero():
            return
        step = trainer.state.global_step
        if step == 0 and self.checkpoint is not None:
            step = max(trainer.saved_steps, default=0)
        max_steps = trainer.state.max_steps or max(trainer.args.max_steps, 0)
        document = {
            "outcome": outcome,
            "step": step,
            "max_steps": max_steps,
            "first_loss": metrics.first_loss,
            "last_loss": metrics.last_loss,
            **metrics.last_evaluation,
            **results,
        }
        write_json_atomic(self.folder.file(OUTCOME_JSON), {key: json_number(value) for key, value in document.items()})
        later = "" if outcome == "finished" or step == 0 or trainer.saver is None else "; it can be resumed"
        print(f"{outcome} at step {step} of {max_steps}{later}", flush=True)


def read_config(folder: RunFolder) -> RunConfig:
    """The RunConfig of run.yaml with what recovery changed; UsageError when it is missing or not one."""
    try:
        document: Any = load_yaml(read_small(folder.run_yaml).decode())
        return with_recovery(RunConfig.model_validate(document), folder)
    except OSError as error:
        message = tr(
            "{path} cannot be read: {reason}; specify a run folder.", path=folder.run_yaml, reason=os_reason(error)
        )
    except yaml.YAMLError as error:
        message = tr("{path} is not valid YAML: {reason}.", path=folder.run_yaml, reason=" ".join(str(error).split()))
    except KeyError as error:
        path = folder.file(RECOVERY_JSON)
        message = tr("{path} changes a setting that does not exist: {key}.", path=path, key=error.args[0])
    except ValidationError as error:
        wrong = "; ".join(sentence.rstrip(".。") for _, sentence in problems_of(error))
        message = tr("{path} is not a run configuration: {reason}.", path=folder.run_yaml, reason=wrong)
    raise usage_error("bad_run", str(folder.run_yaml), message)
