"""One save: what it needs, what is settled after it, and that all processes of a run come to the same end of it."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from accelerate import Accelerator
from trainwiz.core.files import bytes_below
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.callbacks import LossGuard, NonFiniteLoss
from trainwiz.core.training.disk_guard import HEADROOM_BYTES, DiskGuard, NewestCheckpoints, Room
from trainwiz.core.training.saving import MARGIN, CheckpointSaver
from transformers import TrainerControl, TrainerState, TrainingArguments

from tests.core.run.checkpoint_files import write_checkpoint

WAIT, GO = 0, 1
PLANNED = 1000


class Partner:
    """The accelerator of one of two processes; `says` is what the other one brings to each collective, in order."""

    num_processes = 2
    device = torch.device("cpu")
    distributed_type = SimpleNamespace(value="MULTI_CPU")
    optimizer_step_was_skipped = False

    def __init__(self, *says: list[int], main: bool = True) -> None:
        self.says = list(says)
        self.is_main_process = main

    def reduce(self, mine: torch.Tensor, reduction: str) -> torch.Tensor:
        assert reduction == "sum"
        return mine + torch.tensor(self.says.pop(0))


def guard(
    folder: Path, accelerator: Any, free: Callable[[], int], retry_after_s: float = 0.0, stop: Any = lambda: False
) -> DiskGuard:
    return DiskGuard(
        RunFolder(folder),
        accelerator,
        NewestCheckpoints(folder, 5),
        wait_s=30.0,
        stop_requested=stop,
        room=lambda _: Room(HEADROOM_BYTES + free(), True),
        poll_s=0.0,
        retry_after_s=retry_after_s,
    )


def saver(folder: Path, accelerator: Any, guard: Any, keep: int = 5) -> CheckpointSaver:
    return CheckpointSaver(folder, accelerator, NewestCheckpoints(folder, keep), guard)


def steps(folder: Path) -> list[int]:
    return sorted(int(path.name.rpartition("-")[2]) for path in folder.glob("checkpoint-*"))


def test_room_is_asked_for_by_the_newest_checkpoint_and_the_older_go_after_the_save(tmp_path: Path) -> None:
    asked, done = [], []
    seen = SimpleNamespace(make_room=lambda needed, step: asked.append(needed) or True, saved=lambda: done.append(1))
    alone = Accelerator(cpu=True)
    for step in (1, 2):
        assert saver(tmp_path, alone, seen, keep=1).save(
            step, PLANNED, lambda step=step: write_checkpoint(tmp_path, step)
        )
        assert steps(tmp_path) == [step]
        if step == 1:
            first = bytes_below(tmp_path / "checkpoint-1")
    assert asked == [int(MARGIN * PLANNED), int(MARGIN * first)]
    assert len(done) == 2


def test_a_wait_is_told_once_each_time_and_taken_back_by_the_save(tmp_path: Path) -> None:
    alone, free = Accelerator(cpu=True), iter([0, 0, 0, 0, PLANNED * 10**6, 0, 0, 0, 0])
    waiting = guard(tmp_path, alone, lambda: next(free, PLANNED * 10**6))
    for step in (1, 2):
        assert saver(tmp_path, alone, waiting).save(step, PLANNED, lambda step=step: write_checkpoint(tmp_path, step))
    said = [json.loads(line) for line in (tmp_path / "advice.jsonl").read_text().splitlines()]
    assert [line["severity"] for line in said] == ["error", "cleared", "error", "cleared"]


def test_after_a_write_that_failed_although_there_seemed_to_be_room_it_is_not_tried_at_once(tmp_path: Path) -> None:
    asked = iter([False, True])
    waiting = guard(tmp_path, Accelerator(cpu=True), lambda: PLANNED, retry_after_s=60.0, stop=lambda: next(asked))
    waiting.failed()
    assert not waiting.make_room(PLANNED, 2)


def test_a_part_that_another_process_could_not_write_is_written_again_by_all(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1)
    times = []
    both = Partner([0, 0], [1], [0, 0], [0])
    assert saver(tmp_path, both, guard(tmp_path, both, lambda: PLANNED * 10**6)).save(
        2, PLANNED, lambda: times.append(write_checkpoint(tmp_path, 2))
    )
    assert len(times) == 2 and both.says == [] and steps(tmp_path) == [1, 2]


def test_a_process_that_could_not_write_joins_the_others_and_deletes_nothing(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1)
    refusals = [OSError(errno.ENOSPC, "No space left on device")]

    def write() -> None:
        if refusals:
            raise refusals.pop()

    both = Partner([GO, 0], [0], [GO, 0], [0], main=False)
    assert saver(tmp_path, both, guard(tmp_path, both, lambda: 0), keep=1).save(2, PLANNED, write)
    assert both.says == [] and steps(tmp_path) == [1]


def test_a_stop_that_only_another_process_heard_ends_the_wait_of_all(tmp_path: Path) -> None:
    for main in (True, False):
        both = Partner([WAIT, 0], [WAIT, 1], main=main)
        assert not guard(tmp_path, both, lambda: 0).make_room(PLANNED, 2)
        assert both.says == []


def test_a_loss_that_is_no_number_in_another_process_ends_this_one_too(tmp_path: Path) -> None:
    both = Partner([0], [1])
    watching = LossGuard("stop", cast(Accelerator, both), RunFolder(tmp_path))
    for last in (False, True):
        watching.see(torch.tensor(2.5))
        if last:
            with pytest.raises(NonFiniteLoss):
                watching.on_optimizer_step(cast(TrainingArguments, None), TrainerState(), TrainerControl())
        else:
            watching.on_optimizer_step(cast(TrainingArguments, None), TrainerState(), TrainerControl())


def test_weights_that_are_shared_out_are_looked_at_where_they_are(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3)
    cast(Any, model.weight).ds_tensor = torch.tensor([1.0, float("nan")])
    model.weight.data = torch.empty(0)
    with pytest.raises(NonFiniteLoss, match="they are not saved"):
        LossGuard("stop", Accelerator(cpu=True), RunFolder(tmp_path)).may_save(model, 4)
