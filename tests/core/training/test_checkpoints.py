"""Checkpoints: which stay, the room for a new one, a save that fails, and that all processes of a run come to the same end."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
import torch
from accelerate import Accelerator
from trainwiz.core.errors import CannotRunError
from trainwiz.core.files import bytes_below
from trainwiz.core.run.checkpoints import inspect_checkpoint
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.best import KeptCheckpoints, Ranking, best_checkpoints
from trainwiz.core.training.callbacks import LossGuard, NonFiniteLoss
from trainwiz.core.training.process import LastingLines, LastingOutput
from trainwiz.core.training.saving import HEADROOM_BYTES, MARGIN, CheckpointSaver, is_no_room, planned_checkpoint_bytes
from transformers import TrainerControl, TrainerState, TrainingArguments

from tests.core.run.checkpoint_files import cut, write_checkpoint
from tests.core.training.runs import tiny_config
from tests.each import each

NEEDED = 1000
ENOUGH = NEEDED * 10**6
WAIT, GO = 0, 1


def steps(folder: Path) -> list[int]:
    return sorted(int(path.name.rpartition("-")[2]) for path in folder.glob("checkpoint-*"))


def checkpoint(folder: Path, step: int, evaluation: dict[str, object], evaluated_step: int | None = None) -> None:
    progress = {"last_evaluation": evaluation, "evaluated_step": evaluated_step or step}
    (write_checkpoint(folder, step) / "progress.json").write_text(json.dumps(progress))


# Which stay.


@each(
    ("metric", "keep", "newest_first", "kept"),
    [("eval_loss", 2, False, [30, 50]), ("eval_bleu", 2, False, [20, 40, 50]), ("eval_loss", 3, True, [30, 40, 50])],
)
def test_the_best_and_the_newest_stay(
    tmp_path: Path, metric: str, keep: int, newest_first: bool, kept: list[int]
) -> None:
    scores = {10: 3.0, 20: 9.0, 30: 1.0, 40: 9.0, 50: 2.0}
    for step, score in scores.items():
        checkpoint(tmp_path, step, {metric: score})
    retention = KeptCheckpoints(tmp_path, keep, Ranking(metric), newest_first=newest_first)
    deleted = retention.prune(50)
    assert steps(tmp_path) == kept and len(deleted) == len(scores) - len(kept)
    retention.tighten(lambda: False)
    assert steps(tmp_path) == [30 if metric == "eval_loss" else 40, 50], "where the disk has no room for more"
    assert not list(tmp_path.glob(".checkpoint*"))


def test_what_cannot_be_removed_stays_and_what_is_half_deleted_is_none_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, step)
    in_the_way = tmp_path / ".checkpoint-2.deleting"
    in_the_way.write_text("in the way")
    retention = KeptCheckpoints(tmp_path, 1)
    assert retention.prune(3) == [tmp_path / "checkpoint-1"]
    assert retention.tighten(lambda: False) == [] and steps(tmp_path) == [2, 3]
    assert "checkpoint-2 could not be removed: " in capsys.readouterr().out
    in_the_way.unlink()
    monkeypatch.setattr(shutil, "rmtree", lambda path, ignore_errors: (path / "trainer_state.json").unlink())
    retention.prune(3)
    assert steps(tmp_path) == [3]
    monkeypatch.undo()
    retention.prune(3)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-3"]


def test_settings_become_a_metric(tmp_path: Path) -> None:
    asked = tiny_config(checkpoint__keep_best=True)
    assert best_checkpoints(tiny_config(), tmp_path, evaluates=True) is None
    for metric, expected in (("perplexity", "eval_perplexity"), (None, "eval_loss"), ("eval_bleu", "eval_loss")):
        named = best_checkpoints(asked.with_values({"evaluation.metric": metric}, "you"), tmp_path, evaluates=True)
        assert named is not None and named.ranking.metric == expected
    assert best_checkpoints(asked, tmp_path, evaluates=False) is None, "the newest are kept"


def test_scores_that_count(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1, {"eval_loss": 0.5})
    checkpoint(tmp_path, 2, {"eval_loss": "NaN"})
    checkpoint(tmp_path, 3, {"eval_loss": 0.1}, evaluated_step=2)
    checkpoint(tmp_path, 4, {})
    KeptCheckpoints(tmp_path, 1, Ranking("eval_loss")).prune(4)
    assert steps(tmp_path) == [1, 4]


@each("kind", ["newest", "best"])
def test_older_ones_stay_while_the_new_one_is_not_whole_and_what_is_none_is_left_alone(
    tmp_path: Path, kind: str
) -> None:
    for step in (1, 2, 3, 4):
        write_checkpoint(tmp_path, step)
    (tmp_path / "broken-checkpoint-9").mkdir()
    (tmp_path / ".checkpoint-7.deleting").mkdir()
    keep = KeptCheckpoints(tmp_path, 1, None if kind == "newest" else Ranking("eval_loss"))
    cut(tmp_path / "checkpoint-4" / "optimizer.pt")
    assert keep.prune(4) == [] and steps(tmp_path) == [1, 2, 3, 4]
    write_checkpoint(tmp_path, 5)
    keep.prune(5)
    # The broken ones stay for whoever wants to look at them.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken-checkpoint-9", "checkpoint-4", "checkpoint-5"]


# Room for a new one.


def guard(
    folder: Path,
    *free: int,
    accelerator: Any = None,
    keep: int = 5,
    wait_s: float = 30.0,
    retry_after_s: float = 0.0,
    stop: Callable[[], bool] = lambda: False,
) -> CheckpointSaver:
    """`free` bytes at each look: the last one holds for all that follow."""
    looks = iter(free)
    return CheckpointSaver(
        RunFolder(folder), accelerator or Accelerator(cpu=True), KeptCheckpoints(folder, keep), wait_s=wait_s,
        stop_requested=stop, free_bytes=lambda _: HEADROOM_BYTES + next(looks, free[-1]), poll_s=0.0,
        retry_after_s=retry_after_s,
    )  # fmt: skip


def test_older_ones_make_room_but_never_the_last_good_one(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        write_checkpoint(tmp_path, step)
    cut(tmp_path / "checkpoint-4" / "optimizer.pt")
    # 4 is broken: 3 is the last good one, and the broken one is not ours to delete.
    assert guard(tmp_path, 0, 0, 0, 0, 0, 0, NEEDED).make_room(NEEDED, 5)
    assert steps(tmp_path) == [3, 4]


def test_a_stop_ends_the_wait_and_a_write_that_failed_is_not_tried_at_once(tmp_path: Path) -> None:
    asked = iter([False, False, False, True])
    assert not guard(tmp_path, 0, stop=lambda: next(asked)).make_room(NEEDED, 2)
    assert json.loads((tmp_path / "advice.jsonl").read_text().splitlines()[-1])["severity"] == "cleared"
    again = iter([False, True])
    waiting = guard(tmp_path, ENOUGH, retry_after_s=60.0, stop=lambda: next(again))
    save = Save(tmp_path, 2, failures=99, error=NO_ROOM_ERRORS[0])
    assert not waiting.save(2, NEEDED, save) and save.times == 1


# A save.


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


@each("error", NO_ROOM_ERRORS)
def test_a_save_that_ends_for_lack_of_room_is_tried_again(tmp_path: Path, error: Exception) -> None:
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, step)
    save = Save(tmp_path, 4, failures=1, error=error)
    assert guard(tmp_path, 1 << 20).save(4, NEEDED, save)
    # One older made room for the second try; the good ones before it are whole.
    assert save.times == 2 and steps(tmp_path) == [2, 3, 4]
    assert all(inspect_checkpoint(tmp_path / f"checkpoint-{step}").problem is None for step in (2, 3, 4))
    assert (tmp_path / "checkpoint-4" / "files.json").exists()


def test_a_save_that_never_finds_room_leaves_the_one_before_it_and_another_failure_is_not_hidden(
    tmp_path: Path,
) -> None:
    write_checkpoint(tmp_path, 1)
    with pytest.raises(CannotRunError) as ended:
        guard(tmp_path, 0, wait_s=0.0).make_room(NEEDED, 2)
    (finding,) = ended.value.findings
    assert finding.code == "disk_full" and "trainwiz runs resume" in finding.message
    assert "checkpoint-1 is the newest complete checkpoint" in finding.message
    save = Save(tmp_path, 2, failures=99, error=NO_ROOM_ERRORS[0])
    with pytest.raises(CannotRunError, match="refused the checkpoint"):
        guard(tmp_path, 1 << 20, wait_s=0.0, retry_after_s=30.0).save(2, 1, save)
    assert steps(tmp_path) == [1] and save.times == 1
    with pytest.raises(ValueError, match="a defect"):
        guard(tmp_path, 1 << 20).save(2, 1, Save(tmp_path, 2, failures=1, error=ValueError("a defect")))
    assert not is_no_room(ValueError("full of space")) and not is_no_room(OSError(errno.EIO, "I/O error"))


def test_room_is_asked_for_by_the_newest_checkpoint_and_the_older_go_after_the_save(tmp_path: Path) -> None:
    asked, sizes = [], []
    seen: Any = guard(tmp_path, ENOUGH, keep=1)
    seen.make_room = lambda needed, step: asked.append(needed) or True
    for step in (1, 2):
        assert seen.save(step, NEEDED, lambda step=step: write_checkpoint(tmp_path, step))
        assert steps(tmp_path) == [step]
        sizes.append(bytes_below(tmp_path / f"checkpoint-{step}"))
    assert asked == [int(MARGIN * NEEDED), int(MARGIN * sizes[0])]


def test_a_first_checkpoint_is_reckoned_from_what_trains() -> None:
    model = torch.nn.Linear(100, 50)
    model.bias.requires_grad_(False)
    weights, trained = 4 * (100 * 50 + 50), 100 * 50
    found = [planned_checkpoint_bytes(model, sharded=sharded) for sharded in (False, True)]
    assert found == [weights + 8 * trained, 2 * weights + 12 * trained]


def test_lines_wait_in_memory_and_output_is_dropped_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = LastingLines(Path("/dev/full"))
    lines.write("lost")
    monkeypatch.setattr(lines, "_path", tmp_path / "lines")
    lines.write("second")
    assert (tmp_path / "lines").read_text() == "lost\nsecond\n"
    with LastingOutput("/dev/full", "w") as output:
        assert output.write(b"a line\n") == 7
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:3]))
    with LastingOutput(tmp_path / "log", "w") as output:
        output.write(b"a line\n")
    assert (tmp_path / "log").read_text() == "a line\n"


# Several processes.


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


def test_a_part_that_another_process_could_not_write_is_written_again_by_all(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1)
    write = Mock(side_effect=lambda: write_checkpoint(tmp_path, 2))
    both = Partner([0, 0], [1], [0, 0], [0])
    assert guard(tmp_path, ENOUGH, accelerator=both).save(2, NEEDED, write)
    assert write.call_count == 2 and both.says == [] and steps(tmp_path) == [1, 2]


def test_a_process_that_could_not_write_joins_the_others_and_deletes_nothing(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1)
    write = Mock(side_effect=[NO_ROOM_ERRORS[0], None])
    both = Partner([GO, 0], [0], [GO, 0], [0], main=False)
    assert guard(tmp_path, 0, accelerator=both, keep=1).save(2, NEEDED, write)
    assert both.says == [] and steps(tmp_path) == [1]


@each("main", [True, False])
def test_a_stop_that_only_another_process_heard_ends_the_wait_of_all(tmp_path: Path, main: bool) -> None:
    both = Partner([WAIT, 0], [WAIT, 1], main=main)
    assert not guard(tmp_path, 0, accelerator=both).make_room(NEEDED, 2)
    assert both.says == []


def test_a_loss_that_is_no_number_in_another_process_ends_this_one_too(tmp_path: Path) -> None:
    watching = LossGuard("stop", cast(Accelerator, Partner([0], [1])), RunFolder(tmp_path))
    arguments = (cast(TrainingArguments, None), TrainerState(), TrainerControl())
    watching.see(torch.tensor(2.5))
    watching.on_optimizer_step(*arguments)
    watching.see(torch.tensor(2.5))
    with pytest.raises(NonFiniteLoss):
        watching.on_optimizer_step(*arguments)
