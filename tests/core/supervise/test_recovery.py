"""The policy of what follows a failure: no processes, no files."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, get_args

from trainwiz.core.diagnosis.cause import Cause
from trainwiz.core.supervise.recovery import LONGEST_WAIT_S, End, Retry, Setup, Situation, decide, next_smaller

from tests.each import each

SETUP = Setup(
    on=True,
    max_restarts=3,
    micro_batch_size=6,
    gradient_accumulation_steps=8,
    processes=1,
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
    "missing_file", "config_mismatch", "gpu_lost", "user_stop", "python_error", "unknown",
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
    ("cuda_oom", situation(but(eval_micro_batch_size=1), during="evaluation"), "one row at a time already"),
    ("nccl_error", situation(but(on=False)), "recovery.on"),
    ("nccl_error", situation(starts=3), "3 times"),
    *((cause, situation(), {}) for cause in ("nccl_error", "nccl_timeout", "port_in_use", "node_lost")),
    ("node_lost", situation(during="loading"), "waited for the other machines"),
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


@each("micro", range(1, 65))
@each("accumulation", [1, 2, 3, 7, 8, 12, 651])
def test_the_effective_batch_is_exact_down_to_one_row(micro: int, accumulation: int) -> None:
    setup = but(micro_batch_size=micro, gradient_accumulation_steps=accumulation, processes=2)
    while isinstance(decision := decide("cuda_oom", situation(setup)), Retry):
        smaller = setup.changed(decision.changes)
        assert smaller.micro_batch_size < setup.micro_batch_size and not decision.counts
        assert smaller.micro_batch_size * smaller.gradient_accumulation_steps == micro * accumulation
        setup = smaller
    assert setup.micro_batch_size == 1
    assert "one row already" in decision.why


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


def test_the_next_smaller_divides_the_product() -> None:
    assert [next_smaller(micro, 4) for micro in (9, 7, 3, 2, 1)] == [6, 4, 2, 1, None]


def test_a_setup_travels_as_json() -> None:
    assert Setup.from_json(asdict(SETUP)) == SETUP
    assert Setup.from_json(None) is None
