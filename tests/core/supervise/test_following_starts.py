"""What one start by itself leaves for the next: changes add up, and what was tried is remembered. No process runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trainwiz.core.run.attempts import changes_now, read_recoveries
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import RunExit
from trainwiz.core.supervise.attempt import Retrying
from trainwiz.core.supervise.ending import Ended
from trainwiz.core.supervise.recovery import ACCUMULATION, MICRO, WORKERS, End, Retry, Setup, StartOrder

from tests.core.run.checkpoint_files import write_checkpoint

SETUP = Setup(
    on=True,
    max_restarts=3,
    micro_batch_size=6,
    gradient_accumulation_steps=8,
    processes=1,
    eval_micro_batch_size=None,
    workers=4,
)


def ended(cause: str) -> Ended:
    return Ended("failed", RunExit(1, cause, "It failed."))


def follow(retrying: Retrying, attempt: int, cause: str) -> None:
    retry = retrying.after(ended(cause))
    assert isinstance(retry, Retry)
    retrying.prepare(attempt, cause, retry, lambda: True)


def test_what_an_earlier_start_changed_stays(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    retrying = Retrying(run, StartOrder(["launch"], "mark", setup=SETUP))
    follow(retrying, 2, "cuda_oom")
    follow(retrying, 3, "dataloader_worker_killed")
    assert changes_now(run) == {MICRO: 3, ACCUMULATION: 16, WORKERS: 2}
    assert [one.because for one in read_recoveries(run)] == ["cuda_oom", "dataloader_worker_killed"]


def test_fewer_workers_against_a_lack_of_ram_are_tried_once(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    retrying = Retrying(run, StartOrder(["launch"], "mark", setup=SETUP))
    follow(retrying, 2, "host_oom")
    assert isinstance(retrying.after(ended("host_oom")), End)
    # The next keeper knows it too.
    assert isinstance(Retrying(run, StartOrder(["launch"], "mark", setup=SETUP)).after(ended("host_oom")), End)


def test_it_shrinks_again_and_ends_at_one_row_with_a_sentence(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    retrying = Retrying(run, StartOrder(["launch"], "mark", setup=SETUP))
    for attempt in (2, 3, 4):
        follow(retrying, attempt, "cuda_oom")
    end = retrying.after(ended("cuda_oom"))
    assert isinstance(end, End) and "one row already" in end.why
    assert [entry.changes[MICRO] for entry in read_recoveries(run)] == [3, 2, 1]
    assert changes_now(run)[ACCUMULATION] == 48


def test_a_new_checkpoint_gives_new_starts(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    retrying = Retrying(run, StartOrder(["launch"], "mark", setup=replace(SETUP, max_restarts=1)))
    follow(retrying, 2, "nccl_error")
    end = retrying.after(ended("nccl_error"))
    assert isinstance(end, End) and "1 times" in end.why
    write_checkpoint(tmp_path, 10)
    follow(retrying, 3, "nccl_error")
    assert isinstance(retrying.after(ended("nccl_error")), End)
