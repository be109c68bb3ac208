"""What transformers' Trainer leaves: trainer_state.json and its arguments."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwiz.core.errors import os_reason
from trainwiz.core.files import is_folder, may_be_there, read_small
from trainwiz.core.language import tr
from trainwiz.core.telemetry.event_file import LFS_MARK, Scalar
from trainwiz.core.telemetry.metrics import NOT_METRICS
from trainwiz.core.text import number, numbers_finite, parse_json, step_of

# TrainerArguments: what transformers' TrainingArguments say about a job, as its TensorBoard callback writes them down.

ARGUMENTS_TAG = "args/text_summary"
SHOWN = (
    "max_steps", "num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate",
    "lr_scheduler_type", "warmup_ratio", "warmup_steps", "weight_decay", "optim", "fp16", "bf16", "tf32",
    "gradient_checkpointing", "activation_checkpointing", "deepspeed", "fsdp", "seed", "logging_steps", "save_steps",
)  # fmt: skip
"""Keys that are shown; others (paths, tokens of the hub) stay out."""


@dataclass(frozen=True, slots=True)
class TrainerArguments:
    """None where they do not say."""

    max_steps: int | None = None
    epochs: float | None = None
    shown: Mapping[str, str] = field(default_factory=dict)

    def steps_in_all(self, step: int | None, epoch: float | None) -> int | None:
        """The planned steps; without a number of its own, by how far in the epochs `step` is (a guess within 1 %)."""
        if self.max_steps:
            return self.max_steps
        if not step or not epoch or not self.epochs or self.epochs < 0:
            return None
        whole = step_of(step / epoch * self.epochs + 0.5)
        return None if whole is None else max(step, whole)


def parse_arguments(text: str) -> TrainerArguments:
    """From the JSON text that the callback writes; empty for anything else."""
    try:
        document = parse_json(text)
    except ValueError:
        return TrainerArguments()
    if not isinstance(document, dict):
        return TrainerArguments()
    return TrainerArguments(
        max_steps=_count(document.get("max_steps")),
        epochs=numbers_finite(document.get("num_train_epochs")),
        shown={key: as_text(document[key]) for key in SHOWN if document.get(key) not in (None, False, "", [], {})},
    )


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:200]


def _count(value: Any, least: int = 1) -> int | None:
    known = step_of(value)
    return known if known is not None and known >= least else None


# TrainerState: what transformers' Trainer leaves in trainer_state.json, in checkpoints and sometimes beside them.

TRAINER_STATE = "trainer_state.json"
CHECKPOINT = re.compile(r"checkpoint-(\d+)$")
LARGEST_BYTES = 512 * 1024 * 1024
MOST_CHECKPOINTS_READ = 8
"""Of the newest checkpoints this many are tried before the others are given up."""

STOPPER = ("stateful_callbacks", "EarlyStoppingCallback")
NON_FINITE = {"nan": math.nan, "inf": math.inf, "infinity": math.inf, "-inf": -math.inf, "-infinity": -math.inf}


@dataclass(frozen=True, slots=True)
class TrainerState:
    """None where the file does not say."""

    path: Path
    step: int | None
    max_steps: int | None
    epoch: float | None
    rows: tuple[Mapping[str, Any], ...]
    written_s: float
    """Time of the file, Unix seconds."""
    stopped_early: str | None = None
    """One sentence, where it says that the training ended itself before its last step."""

    def scalars(self) -> Iterator[Scalar]:
        """Every number of every row; rows without a step stand at the step before."""
        step = 0
        for row in self.rows:
            known = step_of(row.get("step"))
            step = step if known is None else known
            for name, raw in row.items():
                value = value_of(raw)
                if name not in NOT_METRICS and value is not None:
                    yield str(name), step, value, 0.0


def value_of(raw: Any) -> float | None:
    """A number, also one that was written as text ("NaN", "2.5"); None for anything else."""
    if not isinstance(raw, str):
        return number(raw)
    text = raw.strip().lower()
    if text in NON_FINITE:
        return NON_FINITE[text]
    try:
        return float(text) if text[:1] in "+-.0123456789" and "_" not in text else None
    except ValueError:
        return None


def read_trainer_state(path: Path) -> TrainerState | str:
    """The state, or one sentence that says why it cannot be read."""
    try:
        data = read_small(path, LARGEST_BYTES)
        written_s = path.stat().st_mtime
    except OSError as error:
        return tr("{path} cannot be read: {reason}.", path=path, reason=os_reason(error))
    if data.startswith(LFS_MARK):
        return tr("{path} is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`.", path=path)
    if not data.strip():
        return tr("{path} is empty: it is being written, or its writing was cut off.", path=path)
    try:
        document = parse_json(data.decode("utf-8-sig", errors="replace"))
    except ValueError as error:
        return tr("{path} is not whole JSON: {reason}.", path=path, reason=error)
    rows = document.get("log_history", []) if isinstance(document, dict) else None
    if not isinstance(rows, list) or not ("global_step" in document or "log_history" in document):
        return tr("{path} is not the state of a Trainer: it has no `global_step` and no list `log_history`.", path=path)
    return TrainerState(
        path=path,
        step=_count(document.get("global_step"), 0),
        max_steps=_count(document.get("max_steps")),
        epoch=numbers_finite(document.get("epoch")),
        rows=tuple(row for row in rows if isinstance(row, dict)),
        written_s=written_s,
        stopped_early=_stopped_early(document),
    )


def _stopped_early(document: Mapping[str, Any]) -> str | None:
    step, max_steps = _count(document.get("global_step"), 0), _count(document.get("max_steps"), 0)
    if step is None or max_steps is None or step >= max_steps:
        return None
    if _within(document, "stateful_callbacks", "TrainerControl", "args", "should_training_stop") is not True:
        return None
    failed = _count(_within(document, *STOPPER, "attributes", "early_stopping_patience_counter"), 0)
    patience = _count(_within(document, *STOPPER, "args", "early_stopping_patience"), 0)
    if not failed or patience is None or failed < patience:
        return tr("A callback ended the training before its last step.")
    return tr("Early stopping: no better evaluation in the last {n}.", n=f"{failed:,}")


def _within(document: Any, *keys: str) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def state_files(folder: Path) -> list[Path]:
    """The states of a folder: its own, then those of its checkpoints, the highest number first. [] where it cannot be listed."""
    found: list[tuple[int, Path]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                # There may be 100,000 other files, and this is asked at each look.
                if not entry.name.startswith("checkpoint-"):
                    continue
                checkpoint = CHECKPOINT.match(entry.name)
                if checkpoint and may_be_there(path := Path(entry.path, TRAINER_STATE)):
                    found.append((int(checkpoint[1]), path))
    except OSError:
        return []
    own = folder / TRAINER_STATE
    found.sort(reverse=True)
    return [*([own] if may_be_there(own) else []), *(path for _, path in found)]


class NewestState:
    """The readable state with the highest step below a folder (or of one file). A file is read again when it changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: tuple[str, ...] = ()
        self._read: dict[Path, tuple[tuple[int, int], TrainerState | str]] = {}

    def look(self) -> TrainerState | None:
        states, problems = list[TrainerState](), list[str]()
        files = state_files(self.path) if is_folder(self.path) else [self.path]
        for file in files[: MOST_CHECKPOINTS_READ + 1]:
            state = self._state_of(file)
            if isinstance(state, str):
                problems.append(state)
                continue
            states.append(state)
            if file.parent != self.path:
                break
        self.problems = tuple(problems)
        self._read = {file: read for file, read in self._read.items() if file in files}
        return max(states, key=lambda state: state.step or 0, default=None)

    def _state_of(self, file: Path) -> TrainerState | str:
        try:
            status = file.stat()
        except OSError as error:
            return tr("{path} cannot be read: {reason}.", path=file, reason=os_reason(error))
        stamp = (status.st_size, status.st_mtime_ns)
        known = self._read.get(file)
        if known is not None and known[0] == stamp:
            return known[1]
        state = read_trainer_state(file)
        self._read[file] = (stamp, state)
        return state
