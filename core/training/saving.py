"""Checkpoints: room on the disk for the next one, and how it is written."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from trainwiz.core.errors import NO_ROOM, CannotRunError, Finding, os_reason
from trainwiz.core.files import bytes_below
from trainwiz.core.language import tr
from trainwiz.core.run.attempts import ADVICE_JSONL
from trainwiz.core.run.checkpoints import complete_checkpoints, inspect_checkpoint, newest_complete, seal
from trainwiz.core.run.folder import RunFolder, name_for_commands
from trainwiz.core.training.best import KeptCheckpoints
from trainwiz.core.training.engine import numbers_in
from trainwiz.core.training.events import any_process
from trainwiz.core.training.process import LastingLines, first_line, phases

# CheckpointSaver: room for a checkpoint before it is written, without which fewer are kept, then the training waits; and how
# it is written.

HEADROOM_BYTES = 4 << 20
"""For logs and state while the checkpoint is written."""
SAYS_NO_ROOM = re.compile(
    r"no space left on device|disk quota exceeded|file too large|os error (28|122|27)\b"
    r"|PytorchStreamWriter failed|inline_container",
    re.IGNORECASE,
)
"""safetensors and torch hand on what the system said as text, torch not even that."""
MARGIN = 1.02
MOMENTS = 12
"""Bytes that an optimizer keeps for each trained parameter at most: a float32 copy and two moments."""


WAIT, GO, GIVE_UP = range(3)
"""What rank 0 decides."""
ALONE = ("NO", "MULTI_GPU", "MULTI_CPU")
"""Engines in which a process saves without the others."""


@dataclass
class CheckpointSaver:
    """Of one training process; every process of the run calls `save` at the same place.

    Before: is there room? Rank 0 looks and decides, and the others learn it in a short collective every `poll_s`, so that
    no timeout of the process group runs out while the training waits. After: the files are brought to the disk and noted in
    files.json, the new checkpoint is looked into as a resume would, and only then may older ones go. A save that ends for
    lack of room leaves nothing of itself and is tried again; the checkpoint before it is not touched.
    """

    folder: RunFolder
    accelerator: Accelerator
    retention: KeptCheckpoints
    _: KW_ONLY
    wait_s: float
    stop_requested: Callable[[], bool]
    free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free
    poll_s: float = 2.0
    retry_after_s: float = 30.0
    """After a write that failed although there seemed to be room (a quota, another writer) it is tried again this late."""
    _waits_since: float | None = None
    _not_before: float = 0.0

    def __post_init__(self) -> None:
        self._lines = LastingLines(self.folder.file(ADVICE_JSONL))

    def save(self, step: int, planned_bytes: int, write: Callable[[], None]) -> bool:
        """Let `write` write `checkpoint-<step>`. False when it was left out: no room, and a stop was asked for.

        `planned_bytes`: what it will take where there is none before it. Raises CannotRunError when
        there is no room for too long, and whatever `write` raises that is no lack of room.
        """
        checkpoint, needed_bytes = self.folder.path / f"checkpoint-{step}", 0
        if self.accelerator.is_main_process:
            complete = complete_checkpoints(self.folder)
            needed_bytes = int(MARGIN * (bytes_below(complete[-1].path) if complete else planned_bytes))
        while self.make_room(needed_bytes, step):
            if any_process(self.accelerator, not self._wrote(checkpoint, step, write)):
                self._take_back(checkpoint, step)
                continue
            if self._waits_since is not None:
                self._clear("disk space is available again: the training continues")
            self._waits_since, self._not_before = None, 0.0
            if self.accelerator.is_main_process:
                self._settle(checkpoint, step)
            return True
        return False

    def _wrote(self, checkpoint: Path, step: int, write: Callable[[], None]) -> bool:
        """Whether there was room for the part of this process."""
        try:
            write()
        except Exception as error:
            if not is_no_room(error):
                raise
            if self.accelerator.distributed_type.value not in ALONE:
                # The others wait in a collective of the save itself: this one can only end, and they with it.
                shutil.rmtree(checkpoint, ignore_errors=True)
                reason = os_reason(error) if isinstance(error, OSError) else first_line(error)
                raise disk_full(self.folder, step, reason) from error
            return False
        return True

    def _take_back(self, checkpoint: Path, step: int) -> None:
        """`make_room` saw enough (a quota, another writer): an older one goes, or it is tried again later."""
        if self.accelerator.is_main_process:
            shutil.rmtree(checkpoint, ignore_errors=True)
            print(f"not enough disk space for checkpoint-{step}; the incomplete folder was removed", flush=True)
            if not self._tighten(lambda: True, at_least=1):
                self._not_before = time.monotonic() + self.retry_after_s

    def _settle(self, checkpoint: Path, step: int) -> None:
        """After the last file of the last process (`any_process` has waited for all)."""
        try:
            seal(checkpoint)
        except OSError as error:
            print(f"checkpoint-{step} could not be synced to disk: {os_reason(error)}", flush=True)
        problem = inspect_checkpoint(checkpoint).problem
        if problem is not None:
            print(f"checkpoint-{step} is incomplete ({problem}): older checkpoints are kept", flush=True)
        self.retention.prune(step)

    def make_room(self, needed_bytes: int, step: int) -> bool:
        """Waits until `needed_bytes` can be written; False when a stop was asked for while they could not. Raises
        CannotRunError on every process when the wait is over."""
        verdict, stops = self._agree(needed_bytes, step)
        if verdict == GO:
            return True
        with phases.during("paused", step, tr("waiting for disk space")):
            while verdict == WAIT and not stops:
                # Whoever filled the disk may have left no room to say that the run waits.
                phases.tell(tr("waiting for disk space"))
                with suppress(OSError):
                    self._lines.flush()
                time.sleep(self.poll_s)
                verdict, stops = self._agree(needed_bytes, step)
            if verdict == GIVE_UP:
                self._clear()
                raise disk_full(self.folder, step, self._shortage(needed_bytes))
        if verdict == WAIT:
            self._clear(f"stop at step {step} without a new checkpoint: there is not enough disk space for it")
        return verdict == GO

    def _agree(self, needed_bytes: int, step: int) -> tuple[int, bool]:
        """What rank 0 decides, and whether any process was asked to stop."""
        mine = self._decide(needed_bytes, step) if self.accelerator.is_main_process else WAIT
        stop = self.stop_requested()
        if self.accelerator.num_processes == 1:
            return mine, stop
        votes = torch.tensor([mine, int(stop)], device=self.accelerator.device)
        verdict, stops = self.accelerator.reduce(votes, reduction="sum").tolist()
        return verdict, stops > 0

    def _decide(self, needed_bytes: int, step: int) -> int:
        """The first time that it is to wait, that is said."""
        if time.monotonic() >= self._not_before:
            if not self._fits(needed_bytes):
                self._tighten(lambda: self._fits(needed_bytes))
            if self._fits(needed_bytes):
                return GO
        if self._waits_since is None:
            self._waits_since = time.monotonic()
            shortage = self._shortage(needed_bytes)
            remedy = tr(
                "Free space on the disk of {path}: the run then continues automatically. It waits at most {minutes} "
                "minutes.",
                path=self.folder.path,
                minutes=f"{self.wait_s / 60:,.0f}",
            )
            text = tr("The run is waiting at step {step}: {shortage}.", step=f"{step:,}", shortage=shortage)
            print(f"{text} {remedy}", flush=True)
            self._advise(severity="error", text=text, remedy=remedy)
        return GIVE_UP if time.monotonic() - self._waits_since >= self.wait_s else WAIT

    def _fits(self, needed_bytes: int) -> bool:
        return self.free_bytes(self.folder.path) >= needed_bytes + HEADROOM_BYTES

    def _tighten(self, enough: Callable[[], bool], at_least: int = 0) -> bool:
        """Whether older checkpoints went."""
        names = ", ".join(path.name for path in self.retention.tighten(enough, at_least))
        if names:
            print(f"the disk is nearly full: removed {names} to free space for the next checkpoint", flush=True)
        return bool(names)

    def _clear(self, why: str = "") -> None:
        """The advice stands no more."""
        if self.accelerator.is_main_process:
            if why:
                print(why, flush=True)
            self._advise(severity="cleared")

    def _shortage(self, needed_bytes: int) -> str:
        if self._fits(needed_bytes):
            return tr("the disk refused the checkpoint: no space left or quota exceeded")
        free, needed = self.free_bytes(self.folder.path) / 2**30, (needed_bytes + HEADROOM_BYTES) / 2**30
        words = {"free": f"{free:,.2f} GiB", "needed": f"{needed:,.2f} GiB"}
        return tr("the disk has {free} free and the checkpoint needs {needed}", **words)

    def _advise(self, **advice: str) -> None:
        line = {"time_s": time.time(), "code": "waiting_for_disk", "where": "disk", **advice}
        try:
            self._lines.write(json.dumps(line, ensure_ascii=False))
        except OSError as error:
            print(f"{ADVICE_JSONL} could not be written: {os_reason(error)}", flush=True)


def disk_full(folder: RunFolder, step: int, reason: str) -> CannotRunError:
    """The sentence with which a run ends that could not save at `step`."""
    newest = newest_complete(folder)
    kept = tr("There is no checkpoint yet.")
    if newest is not None:
        kept = tr("{name} is the newest complete checkpoint.", name=newest.name)
    message = tr(
        "No checkpoint could be saved at step {step}: {reason}. {kept} Free space on the disk of {path}, then run: "
        "trainwiz runs resume {run}",
        step=f"{step:,}",
        reason=reason,
        kept=kept,
        path=folder.path,
        run=name_for_commands(folder.path),
    )
    return CannotRunError(Finding("disk_full", "error", str(folder.path), message))


def is_no_room(error: BaseException | None) -> bool:
    """Whether a write ended because the disk or a quota had no room for it."""
    while error is not None:
        if (isinstance(error, OSError) and error.errno in NO_ROOM) or SAYS_NO_ROOM.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def planned_checkpoint_bytes(model: Any, *, sharded: bool) -> int:
    """What a first checkpoint takes at most: all weights (twice where they are shared out), and what the optimizer keeps of
    those that train."""
    parameters: list[torch.nn.Parameter] = list(model.parameters())
    weights = sum(numbers_in(parameter) * parameter.element_size() for parameter in parameters)
    return (1 + sharded) * weights + MOMENTS * sum(
        numbers_in(parameter) for parameter in parameters if parameter.requires_grad
    )
