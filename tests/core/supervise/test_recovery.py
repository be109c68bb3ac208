"""What follows a failure: the policy, and what a start by itself leaves for the next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from trainwiz.core.diagnosis.cause import Cause
from trainwiz.core.run.attempts import changes_now, read_recoveries
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import RunExit
from trainwiz.core.supervise.attempt import Retrying
from trainwiz.core.supervise.ending import Ended
from trainwiz.core.supervise.recovery import LONGEST_WAIT_S, End, Retry, Setup, Situation, StartOrder, decide

from tests.core.run.checkpoint_files import write_checkpoint
from tests.each import each

SETUP = Setup(
    on=True,
    max_restarts=3,
    micro_batch_size=6,
    gradient_accumulation_steps=8,
    eval_micro_batch_size=8,
    workers=4,
)
BATCH = ("batch.micro_batch_size", "batch.gradient_accumulation_steps")


def situation(setup: Setup = SETUP, **changes: Any) -> Situation:
    return Situation(setup, **changes)


def but(**changes: Any) -> Setup:
    return replace(SETUP, **changes)


ENDS = {
    "disk_full", "bf16_unsupported", "flash_attention_missing", "shared_memory", "deepspeed_mismatch", "nan_loss",
    "missing_file", "config_mismatch", "gpu_lost", "user_stop", "time_limit",
    "python_error", "unknown",
}  # fmt: skip
EVALUATION, FEWER = "batch.eval_micro_batch_size", {"data.workers": 2}
DECIDED: list[tuple[str, Situation, dict[str, Any] | str]] = [
    ("cuda_oom", situation(), dict(zip(BATCH, (3, 16), strict=True))),
    ("cuda_oom", situation(but(micro_batch_size=5)), dict(zip(BATCH, (4, 10), strict=True))),
    ("cuda_oom", situation(but(on=False)), "recovery.on"),
    ("cuda_oom", situation(but(max_restarts=0)), "recovery.on"),
    # The training stays as it is where the evaluation runs out of memory.
    ("cuda_oom", situation(during="evaluation"), {EVALUATION: 4}),
    ("cuda_oom", situation(but(eval_micro_batch_size=None), during="evaluation"), {EVALUATION: 3}),
    ("cuda_oom", situation(but(eval_micro_batch_size=1), during="evaluation"), "evaluation batch is already one row"),
    ("nccl_error", situation(but(on=False)), "recovery.on"),
    ("nccl_error", situation(starts=3), "3 times"),
    *((cause, situation(), {}) for cause in ("nccl_error", "nccl_timeout", "port_in_use", "node_lost")),
    ("node_lost", situation(during="loading"), "already waited for the other nodes"),
    ("dataloader_worker_killed", situation(), FEWER),
    ("dataloader_worker_killed", situation(but(workers=1)), {"data.workers": 0}),
    ("dataloader_worker_killed", situation(but(workers=0)), "fail in the same way"),
    # Lack of RAM is tried once.
    ("host_oom", situation(), FEWER),
    ("host_oom", situation(changed_keys=frozenset({"data.workers"})), "as much RAM again"),
    ("host_oom", situation(but(workers=0)), "as much RAM again"),
    # What was killed from outside comes back, what crashed does not.
    *(("unknown", situation(killed_by=name), {}) for name in ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT")),
    *(("unknown", situation(killed_by=name), "fail in the same way") for name in ("SIGSEGV", None)),
]
"""Cause, what led to it -> the changes of another start, or a part of why there is none."""


@each(("cause", "led_to_it", "follows"), DECIDED)
def test_what_follows(cause: str, led_to_it: Situation, follows: dict[str, Any] | str) -> None:
    decision = decide(cause, led_to_it)
    if isinstance(follows, str):
        assert isinstance(decision, End) and follows in decision.why
    else:
        assert isinstance(decision, Retry) and decision.changes == follows


@each("accumulation", [1, 7, 8, 651])
@each("micro", range(1, 65))
def test_the_effective_batch_is_exact_down_to_one_row(micro: int, accumulation: int) -> None:
    setup = but(micro_batch_size=micro, gradient_accumulation_steps=accumulation)
    while isinstance(decision := decide("cuda_oom", situation(setup)), Retry):
        smaller = setup.changed(decision.changes)
        assert smaller.micro_batch_size < setup.micro_batch_size and not decision.counts
        assert smaller.micro_batch_size * smaller.gradient_accumulation_steps == micro * accumulation
        setup = smaller
    assert setup.micro_batch_size == 1
    assert "micro-batch is already one row" in decision.why


@each("batches", [1, 2, 5])
@each("micro", [5, 6, 7, 9])
def test_an_overfit_run_repeats_the_same_rows(micro: int, batches: int) -> None:
    decision = decide("cuda_oom", situation(but(micro_batch_size=micro, overfit_batches=batches)))
    found = decision.changes
    assert found["mode.overfit_batches"] * found["batch.micro_batch_size"] == batches * micro


def test_what_passes_is_started_again_ever_later() -> None:
    decisions = [decide("nccl_error", situation(starts=starts)) for starts in range(3)]
    waits = [decision.wait_s for decision in decisions]
    assert waits == sorted(waits) and waits[0] < waits[-1] <= LONGEST_WAIT_S
    assert all(decision.counts for decision in decisions)


@each("cause", get_args(Cause))
def test_every_cause_is_decided(cause: str) -> None:
    decision = decide(cause, situation())
    assert isinstance(decision, End) is (cause in ENDS)
    if isinstance(decision, End):
        assert decision.why.endswith(".")


# What one start by itself leaves for the next: changes add up, and what was tried is remembered. No process runs.


class Started:
    def __init__(self, folder: Path, **changes: Any) -> None:
        self.run = RunFolder(folder)
        self.retrying = Retrying(self.run, StartOrder(["launch"], "mark", setup=but(**changes)))

    def after(self, cause: str) -> Retry | End | None:
        return self.retrying.after(Ended("failed", RunExit(1, cause, "It failed.")))

    def follow(self, attempt: int, cause: str) -> None:
        retry = self.after(cause)
        assert isinstance(retry, Retry)
        self.retrying.prepare(attempt, cause, retry, lambda: None)


def test_what_an_earlier_start_changed_stays(tmp_path: Path) -> None:
    started = Started(tmp_path)
    started.follow(2, "cuda_oom")
    started.follow(3, "dataloader_worker_killed")
    assert changes_now(started.run) == dict(zip(BATCH, (3, 16), strict=True)) | FEWER
    assert [one.because for one in read_recoveries(started.run)] == ["cuda_oom", "dataloader_worker_killed"]
    assert isinstance(started.after("host_oom"), End)
    assert isinstance(Started(tmp_path).after("host_oom"), End), "the next keeper knows it too"


def test_a_new_checkpoint_gives_new_starts(tmp_path: Path) -> None:
    started = Started(tmp_path, max_restarts=1)
    started.follow(2, "nccl_error")
    end = started.after("nccl_error")
    assert isinstance(end, End) and "1 times" in end.why
    write_checkpoint(tmp_path, 10)
    started.follow(3, "nccl_error")
    assert isinstance(started.after("nccl_error"), End)
