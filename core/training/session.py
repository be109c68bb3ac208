"""A training from its order to its last word."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import os_reason, usage_error
from trainwiz.core.language import mark, tr
from trainwiz.core.launch.start import changed_config
from trainwiz.core.run.folder import (
    OUTCOME_JSON,
    TENSORBOARD_LOGS,
    FolderPlace,
    RunFolder,
    read_json,
    write_json_atomic,
)
from trainwiz.core.run.identity import (
    IDENTITY_JSON,
    SEQUENCES,
    Difference,
    Identity,
    compare,
    position_difference,
    recorded_identity,
    refuse,
    settings_now,
)
from trainwiz.core.text import numbers_finite
from trainwiz.core.training.best import choose_final, final_ranking
from trainwiz.core.training.callbacks import (
    EngineCallback,
    LossGuard,
    PlaceCallback,
    StopCallback,
    TraceCallback,
    take_reporters,
)
from trainwiz.core.training.engine import (
    begin_process,
    name_blocks,
)
from trainwiz.core.training.generation import AnswersCallback
from trainwiz.core.training.metrics import MetricsCallback, StepMeter, json_number
from trainwiz.core.training.model import may_skip_weights, save_final_model
from trainwiz.core.training.process import StopRequest, first_line, phases, rank_of_this_process
from trainwiz.core.training.saving import CheckpointSaver
from trainwiz.core.training.tasks import TaskParts, build_task
from trainwiz.core.training.trainer import RunTrainer
from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainingArguments
from transformers.trainer_utils import SaveStrategy


class TrainingSession:
    """Trains the run in `folder`; with `checkpoint`, goes on from it."""

    def __init__(self, folder: Path, checkpoint: Path | None, stop: StopRequest, accept: Collection[str] = ()) -> None:
        self.folder = RunFolder(folder)
        self.accept = accept
        self.checkpoint = checkpoint
        self.stop = stop
        self.place = PlaceCallback(FolderPlace(folder))

    def run(self) -> None:
        """Train, then write final_model and outcome.json. Raises UsageError for what is wrong with the run."""
        phases.begin(self.folder)
        config = changed_config(self.folder)
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(self.folder.file(TENSORBOARD_LOGS)))
        args = begin_process(config)
        identity = IdentityCheck(self.folder, config, self.checkpoint, self.accept, args.world_size)
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
        metrics = MetricsCallback(self.folder, meter, accelerator, parts.patience, config.logging.memory_every_steps)
        decides = final_ranking(config, trainer.retention) is not None
        stopping = StopCallback(self.stop, accelerator, trainer.saved_steps, decides)
        guard = LossGuard(config.recovery.on_nan, accelerator, self.folder)
        trainer.metrics_callback, trainer.stopping, trainer.loss_guard = metrics, stopping, guard
        trainer.copy_identity = identity.copy_to
        if config.mode.saves:
            wait_s, retention = config.recovery.disk_wait_s, trainer.retention
            trainer.saver = CheckpointSaver(
                self.folder, accelerator, retention, wait_s=wait_s, stop_requested=trainer.stop_requested
            )
        begun = answered = metrics.begin(self.checkpoint)
        if begun is not None:
            trainer.saved_steps.add(begun)
        if begun is not None and decides and begun >= args.max_steps > 0 and metrics.evaluated_step != begun:
            # It was stopped within that evaluation.
            args.eval_on_start, answered = True, metrics.evaluated_step or 0
        callbacks: list[TrainerCallback | None] = [
            *reporters,
            self.place,
            guard,
            EngineCallback(self.folder, config, trainer),
            metrics,
            parts.patience,
            stopping,
            TraceCallback(self.folder, config.mode.trace_steps, meter) if config.mode.trace_steps else None,
            AnswersCallback(parts.questions, self.folder, meter, trainer, answered) if parts.questions else None,
        ]
        for callback in filter(None, callbacks):
            trainer.add_callback(callback)
        if stopping.agreed():
            self._write_outcome(trainer, metrics, "stopped", {})
            return
        if (config.engine.strategy or "").startswith("zero") and config.engine.offload != "none":
            # It says nothing while it does.
            phases.tell(tr("DeepSpeed may compile its optimizer first (one to four minutes, once)"))
        try:
            trainer.train(resume_from_checkpoint=str(self.checkpoint) if self.checkpoint else None)
        except pickle.UnpicklingError as error:
            # A checkpoint is read as tensors and values; one that asks for more was not saved by a training of ours.
            message = tr(
                "{name} is not resumed: it contains more than tensors and values, which could run code ({reason}). "
                "Resume from another checkpoint, or train from its weights only: --model {path}.",
                name=self.checkpoint.name if self.checkpoint else "",
                reason=first_line(error)[:200],
                path=shlex.quote(str(self.checkpoint)),
            )
            raise usage_error("unsafe_checkpoint", str(self.checkpoint), message) from error
        finally:
            trainer.shield.over()
        if stopping.stopped:
            self._write_outcome(trainer, metrics, "stopped", {})
            return
        early = {} if parts.patience is None else parts.patience.outcome()
        self._write_outcome(trainer, metrics, "finished", {**self._finish(config, trainer, guard, metrics), **early})

    def _finish(
        self, config: RunConfig, trainer: RunTrainer, guard: LossGuard, metrics: MetricsCallback
    ) -> dict[str, Any]:
        """Leave final_model, where the run saves; which weights it has, for outcome.json."""
        step = trainer.state.global_step
        phases.enter("finishing")
        guard.refuse_final(trainer.model, step)
        self.place.check()
        if not config.mode.saves:
            return {}
        evaluation = metrics.last_evaluation if metrics.evaluated_step == step else {}
        final = choose_final(config, self.folder, trainer.retention, step, evaluation)
        save_final_model(trainer, self.folder, config, final)
        return {"final": final.said}

    def _write_outcome(
        self, trainer: RunTrainer, metrics: MetricsCallback, outcome: str, results: dict[str, Any]
    ) -> None:
        if not trainer.is_world_process_zero():
            return
        step = max(trainer.state.global_step, *trainer.saved_steps, 0)
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


# IdentityCheck: refuses to resume a training with other inputs than it began with.

ROWS_THAT_TRAIN, ROWS_HELD_OUT = mark("rows that train"), mark("rows held out")
ORDER = mark("how the rows are shuffled")
CLASSES = mark("classes in the order of their numbers")
VOCABULARY = mark("vocabulary and rules of the tokenizer")
TEMPLATE = mark("chat template")
PROBE_TEXT = "The Quick brown fox (42%) naïve ﬁ café 你好，世界 МИР \t MKTAYIAKQRQISFVK\n"
"""Shows another normaliser, other merges or other rules of splitting where the vocabulary is the same."""


class IdentityCheck:
    """Every process of a run checks alike, and rank 0 keeps the record: see core.run.identity."""

    def __init__(
        self, folder: RunFolder, config: RunConfig, checkpoint: Path | None, accept: Collection[str], world_size: int
    ) -> None:
        """Compares settings and files. Raises UsageError with all that differs and is not accepted."""
        self._folder = folder
        self._checkpoint = checkpoint
        self._accept = accept
        self._recorded = recorded_identity(folder, checkpoint)
        self._settings = settings_now(config, folder.path, world_size)
        recorded = self._recorded.settings if self._recorded else {}
        self._accepted = refuse(folder, compare(recorded, self._settings), accept)
        self.identity = self._recorded

    def after_loading(self, parts: TaskParts) -> None:
        """Compare rows, tokenizer and the place in the data, then write the record. Raises UsageError."""
        loaded: dict[str, dict[str, Any]] = {
            "data": {
                ROWS_THAT_TRAIN: len(parts.sampler),
                ROWS_HELD_OUT: 0 if parts.evaluation is None else len(parts.evaluation),
                ORDER: parts.sampler.order,
            },
            "tokenizer": {VOCABULARY: tokenizer_digest(parts.tokenizer)},
        }
        if parts.labels is not None:
            loaded["data"][CLASSES] = ", ".join(parts.labels.names)
        if parts.template:
            # Of the text itself: a file may be changed under its name, and TRL's marks come and go with TRL.
            loaded["tokenizer"][TEMPLATE] = hashlib.blake2b(parts.template.encode(), digest_size=16).hexdigest()
        found = compare(self._recorded.loaded, loaded) if self._recorded else []
        state = (read_json(self._checkpoint / "trainer_state.json") or {}) if self._checkpoint is not None else {}
        if isinstance(step := state.get("global_step"), int):
            sequences = self._settings["batch"][SEQUENCES]
            position = position_difference(step, numbers_finite(state.get("epoch")), sequences, len(parts.sampler))
            found += [position] if position is not None else []
        self._keep_record(loaded, [*self._accepted, *refuse(self._folder, found, self._accept)])

    def _keep_record(self, loaded: dict[str, dict[str, Any]], accepted: list[Difference]) -> None:
        identity = self._recorded or Identity(self._settings, loaded)
        identity.accept(accepted)
        if accepted:
            identity.settings, identity.loaded = self._settings, loaded
        self.identity = identity
        path = self._folder.file(IDENTITY_JSON)
        if rank_of_this_process() == 0 and (accepted or not path.exists()):
            for difference in accepted:
                print(f"accepted: {difference.text}", flush=True)
            try:
                identity.write(path)
            except OSError as error:
                print(f"{IDENTITY_JSON} could not be written: {os_reason(error)}", flush=True)

    def copy_to(self, checkpoint: Path) -> None:
        """Let a checkpoint say what it was trained on. Raises OSError."""
        assert self.identity is not None
        self.identity.write(checkpoint / IDENTITY_JSON)


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Hash of vocabulary, special tokens and how a text is cut; the same for every version of the library."""
    special = {name: str(value) for name, value in tokenizer.special_tokens_map.items()}
    try:
        cut = tokenizer(PROBE_TEXT)["input_ids"]
    except (ValueError, KeyError, NotImplementedError):  # A tokenizer without a token for what it does not know.
        cut = None
    document = [sorted(tokenizer.get_vocab().items(), key=lambda entry: (entry[1], entry[0])), special, cut]
    text = json.dumps(document, ensure_ascii=True, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
