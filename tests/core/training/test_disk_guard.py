"""Room for a checkpoint: when it is written, when fewer are kept, when it waits, when the wait is over."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from trainwiz.core.errors import CannotRunError
from trainwiz.core.run.checkpoints import inspect_checkpoint
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.disk_guard import (
    HEADROOM_BYTES,
    BestCheckpoints,
    DiskGuard,
    NewestCheckpoints,
    Room,
)
from trainwiz.core.training.process import LastingLines, LastingOutput
from trainwiz.core.training.saving import CheckpointSaver, is_no_room, planned_checkpoint_bytes

from tests.core.run.checkpoint_files import cut, write_checkpoint

NEEDED = 1000


def steps(folder: Path) -> list[int]:
    return sorted(int(path.name.rpartition("-")[2]) for path in folder.glob("checkpoint-*"))


class Disk:
    """Room for each look: the last one holds for all that follow."""

    def __init__(self, *free: int) -> None:
        self.free = [HEADROOM_BYTES + one for one in free]

    def __call__(self, folder: Path) -> Room:
        return Room(self.free.pop(0) if len(self.free) > 1 else self.free[0], True)


def guard(
    folder: Path, disk: Callable[[Path], Room], wait_s: float = 30.0, stop: Callable[[], bool] = lambda: False
) -> DiskGuard:
    return DiskGuard(
        RunFolder(folder),
        Accelerator(cpu=True),
        NewestCheckpoints(folder, 5),
        wait_s=wait_s,
        stop_requested=stop,
        room=disk,
        poll_s=0.0,
        retry_after_s=0.0,
    )


def advice(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "advice.jsonl").read_text().splitlines()]


def test_older_ones_make_room_but_never_the_last_good_one(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        write_checkpoint(tmp_path, step)
    cut(tmp_path / "checkpoint-4" / "optimizer.pt")
    # 4 is broken: 3 is the last good one, and the broken one is not ours to delete.
    assert guard(tmp_path, Disk(0, 0, 0, 0, 0, 0, NEEDED)).make_room(NEEDED, 5)
    assert steps(tmp_path) == [3, 4]


def test_it_waits_and_goes_on_by_itself(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1)
    waiting = guard(tmp_path, Disk(*[0] * 20, NEEDED))
    assert waiting.make_room(NEEDED, 2)
    waiting.saved()
    said, cleared = advice(tmp_path)
    assert said["code"] == cleared["code"] == "waiting_for_disk" and cleared["severity"] == "cleared"
    assert "waits at step 2" in said["text"] and "goes on by itself" in said["remedy"]
    assert steps(tmp_path) == [1]


def test_a_stop_ends_the_wait(tmp_path: Path) -> None:
    asked: Iterator[bool] = iter([False, False, False, True])
    assert not guard(tmp_path, Disk(0), stop=lambda: next(asked)).make_room(NEEDED, 2)
    assert advice(tmp_path)[-1]["severity"] == "cleared"


def test_the_wait_ends_in_a_sentence_that_names_the_last_good_one(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1)
    with pytest.raises(CannotRunError) as ended:
        guard(tmp_path, Disk(0), wait_s=0.0).make_room(NEEDED, 2)
    (finding,) = ended.value.findings
    assert finding.code == "disk_full"
    assert "checkpoint-1 is whole" in finding.message and "trainwiz runs resume" in finding.message


class Save:
    """Fails so often for lack of room, then writes; what a failed one leaves is half a checkpoint."""

    def __init__(self, folder: Path, step: int, failures: int, error: BaseException) -> None:
        self.folder, self.step, self.failures, self.error = folder, step, failures, error
        self.times = 0

    def __call__(self) -> None:
        self.times += 1
        if self.times <= self.failures:
            half = self.folder / f"checkpoint-{self.step}"
            half.mkdir()
            (half / "model.safetensors").write_bytes(b"\0" * 100)
            raise self.error
        write_checkpoint(self.folder, self.step)


NO_ROOM_ERRORS = [
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
    RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 1097728 vs 1097620"),
    RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
]


@pytest.mark.parametrize("error", NO_ROOM_ERRORS, ids=lambda error: str(error)[:20])
def test_a_save_that_ends_for_lack_of_room_is_tried_again(tmp_path: Path, error: Exception) -> None:
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, step)
    save = Save(tmp_path, 4, failures=1, error=error)
    keep = NewestCheckpoints(tmp_path, 5)
    saver = CheckpointSaver(tmp_path, Accelerator(cpu=True), keep, guard(tmp_path, Disk(1 << 20)))
    assert saver.save(4, NEEDED, save)
    assert save.times == 2
    # One older made room for the second try; the good ones before it are whole.
    assert steps(tmp_path) == [2, 3, 4]
    assert all(inspect_checkpoint(tmp_path / f"checkpoint-{step}").problem is None for step in (2, 3, 4))
    assert (tmp_path / "checkpoint-4" / "files.json").exists()


def test_a_save_that_never_finds_room_leaves_the_one_before_it(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1)
    save = Save(tmp_path, 2, failures=99, error=NO_ROOM_ERRORS[0])
    keep = NewestCheckpoints(tmp_path, 5)
    with pytest.raises(CannotRunError, match="refused the checkpoint"):
        CheckpointSaver(tmp_path, Accelerator(cpu=True), keep, guard(tmp_path, Disk(1 << 20), wait_s=0.0)).save(
            2, 1, save
        )
    assert steps(tmp_path) == [1] and save.times == 1


@pytest.mark.parametrize("kind", ["newest", "best"])
def test_older_ones_stay_while_the_new_one_is_not_whole(tmp_path: Path, kind: str) -> None:
    for step in (1, 2, 3, 4):
        write_checkpoint(tmp_path, step)
    keep = NewestCheckpoints(tmp_path, 1) if kind == "newest" else BestCheckpoints(tmp_path, 1, "eval_loss")
    cut(tmp_path / "checkpoint-4" / "optimizer.pt")
    assert keep.prune(4) == [] and steps(tmp_path) == [1, 2, 3, 4]
    write_checkpoint(tmp_path, 5)
    keep.prune(5)
    # The broken one stays for whoever wants to look at it.
    assert steps(tmp_path) == [4, 5]


def test_a_first_checkpoint_is_reckoned_from_what_is_in_memory() -> None:
    model = torch.nn.Linear(100, 50)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 100)).sum().backward()
    optimizer.step()
    weights = 4 * (100 * 50 + 50)
    assert weights * 3 <= planned_checkpoint_bytes(model, optimizer, sharded=False) <= weights * 3 + 64
    assert planned_checkpoint_bytes(model, None, sharded=True) == weights * 2 + weights * 3


def test_lines_wait_in_memory_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = LastingLines(Path("/dev/full"))
    lines.write("lost")
    path = tmp_path / "lines"
    monkeypatch.setattr(lines, "_path", path)
    lines.write("second")
    assert path.read_text() == "lost\nsecond\n"


def test_output_that_finds_no_room_is_dropped() -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    try:
        assert LastingOutput(descriptor).write(b"a line\n") == 7
    finally:
        os.close(descriptor)


def test_no_more_files_is_full_too(tmp_path: Path) -> None:
    assert not Room(1 << 40, has_files=False).fits(1)
    assert Room.of(tmp_path).has_files


def test_another_failure_is_not_hidden(tmp_path: Path) -> None:
    save = Save(tmp_path, 2, failures=1, error=ValueError("a defect"))
    with pytest.raises(ValueError, match="a defect"):
        CheckpointSaver(tmp_path, Accelerator(cpu=True), NewestCheckpoints(tmp_path, 5), None).save(2, 1, save)
    assert not is_no_room(ValueError("full of space")) and not is_no_room(OSError(errno.EIO, "I/O error"))
