"""Checkpoints as they are written."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from trainwiz.core.errors import NO_ROOM, os_reason, usage_error
from trainwiz.core.files import bytes_below
from trainwiz.core.language import mark, tr
from trainwiz.core.run.checkpoints import complete_checkpoints, inspect_checkpoint, seal
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.disk_guard import DiskGuard, NewestCheckpoints, disk_full
from trainwiz.core.training.engine import numbers_in
from trainwiz.core.training.events import any_process

FILE_SIZE_LIMIT = mark(
    "{name} would exceed the file size limit of this process (ulimit -f); the disk is not full. Raise the limit, "
    "then resume."
)
SAYS_NO_ROOM = re.compile(
    r"no space left on device|disk quota exceeded|file too large|os error (28|122|27)\b"
    r"|PytorchStreamWriter failed|inline_container",
    re.IGNORECASE,
)
"""safetensors and torch hand on what the system said as text, torch not even that."""
MARGIN = 1.02
MOMENTS = 12
"""Bytes that a sharded optimizer keeps for each trained parameter: a float32 copy and two moments."""


class CheckpointSaver:
    """Of one training process; every process of the run calls `save` at the same place.

    Before: is there room? After: the files are brought to the disk and noted in files.json, the new
    checkpoint is looked into as a resume would, and only then may older ones go. A save that ends for
    lack of room leaves nothing of itself and is tried again; the checkpoint before it is not touched.
    """

    def __init__(
        self, folder: Path, accelerator: Accelerator, retention: NewestCheckpoints, guard: DiskGuard | None
    ) -> None:
        self._folder = RunFolder(folder)
        self._accelerator = accelerator
        self._retention = retention
        self._guard = guard

    def save(self, step: int, planned_bytes: int, write: Callable[[], None]) -> bool:
        """Let `write` write `checkpoint-<step>`. False when it was left out: no room, and a stop was asked for.

        `planned_bytes`: what it will take where there is none before it. Raises CannotRunError when
        there is no room for too long, and whatever `write` raises that is no lack of room.
        """
        checkpoint = self._folder.path / f"checkpoint-{step}"
        needed_bytes = self._needed_bytes(planned_bytes)
        while self._guard is None or self._guard.make_room(needed_bytes, step):
            if self._written(checkpoint, step, write):
                if self._guard is not None:
                    self._guard.saved()
                self._settle(checkpoint, step)
                return True
        return False

    def _needed_bytes(self, planned_bytes: int) -> int:
        if not self._accelerator.is_main_process:
            return 0
        complete = complete_checkpoints(self._folder)
        return int(MARGIN * (bytes_below(complete[-1].path) if complete else planned_bytes))

    def _written(self, checkpoint: Path, step: int, write: Callable[[], None]) -> bool:
        """Whether every process has written its part; what is left of a failed save is removed."""
        failed = False
        try:
            write()
        except Exception as error:
            if not is_no_room(error):
                if isinstance(error, OSError) and error.errno == errno.EFBIG:
                    shutil.rmtree(checkpoint, ignore_errors=True)
                    raise usage_error(
                        "file_size_limit", str(checkpoint), tr(FILE_SIZE_LIMIT, name=checkpoint.name)
                    ) from error
                raise
            failed = True
            if self._guard is None or self._accelerator.distributed_type.value not in ("NO", "MULTI_GPU", "MULTI_CPU"):
                # The others wait in a collective of the save itself: this one can only end, and they with it.
                shutil.rmtree(checkpoint, ignore_errors=True)
                raise disk_full(self._folder, step, _reason(error)) from error
        if not any_process(self._accelerator, failed):
            return True
        if self._accelerator.is_main_process:
            shutil.rmtree(checkpoint, ignore_errors=True)
            print(f"not enough disk space for checkpoint-{step}; the incomplete folder was removed", flush=True)
        assert self._guard is not None
        self._guard.failed()
        return False

    def _settle(self, checkpoint: Path, step: int) -> None:
        """After the last file of the last process (`any_process` has waited for all)."""
        if not self._accelerator.is_main_process:
            return
        try:
            seal(checkpoint)
        except OSError as error:
            print(f"checkpoint-{step} could not be synced to disk: {os_reason(error)}", flush=True)
        problem = inspect_checkpoint(checkpoint).problem
        if problem is not None:
            print(f"checkpoint-{step} is incomplete ({problem}): older checkpoints are kept", flush=True)
        self._retention.prune(step)


def is_no_room(error: BaseException | None) -> bool:
    """Whether a write ended because the disk or a quota had no room for it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return True
        if SAYS_NO_ROOM.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def planned_checkpoint_bytes(model: Any, optimizer: Any, *, sharded: bool) -> int:
    """What a first checkpoint of this process group will take: weights and the optimizer's state as they are now."""
    parameters: list[torch.nn.Parameter] = list(model.parameters())
    weights = sum(numbers_in(parameter) * parameter.element_size() for parameter in parameters)
    if sharded:
        trained = sum(numbers_in(parameter) for parameter in parameters if parameter.requires_grad)
        return 2 * weights + MOMENTS * trained
    states = getattr(optimizer, "state", None) or {}
    kept = (value for state in states.values() for value in state.values() if isinstance(value, torch.Tensor))
    return weights + sum(int(value.nbytes) for value in kept)


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError):
        return os_reason(error)
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
