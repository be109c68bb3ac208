"""The policy of what follows a failure: no processes, no files."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, get_args

import pytest
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


def changes(decision: Retry | End) -> dict[str, Any]:
    assert isinstance(decision, Retry), decision
    return decision.changes


def test_six_by_eight_goes_on_as_three_by_sixteen() -> None:
    assert changes(decide("cuda_oom", situation())) == dict(zip(BATCH, (3, 16), strict=True))


def test_five_by_eight_goes_on_as_four_by_ten() -> None:
    odd = replace(SETUP, micro_batch_size=5)
    assert changes(decide("cuda_oom", situation(odd))) == dict(zip(BATCH, (4, 10), strict=True))


@each("micro", range(1, 65))
@each("accumulation", [1, 2, 3, 7, 8, 12, 651])
def test_the_effective_batch_is_exact_down_to_one_row(micro: int, accumulation: int) -> None:
    setup = replace(SETUP, micro_batch_size=micro, gradient_accumulation_steps=accumulation, processes=2)
    while isinstance(decision := decide("cuda_oom", situation(setup)), Retry):
        smaller = setup.changed(decision.changes)
        assert smaller.micro_batch_size < setup.micro_batch_size
        assert smaller.micro_batch_size * smaller.gradient_accumulation_steps == micro * accumulation
        setup = smaller
    assert setup.micro_batch_size == 1
    assert "one row already" in decision.why


def test_a_smaller_batch_is_no_restart_that_counts() -> None:
    decision = decide("cuda_oom", situation(starts=3))
    assert isinstance(decision, Retry) and not decision.counts


def test_an_evaluation_that_runs_out_of_memory_leaves_the_training_as_it_is() -> None:
    assert changes(decide("cuda_oom", situation(during="evaluation"))) == {"batch.eval_micro_batch_size": 4}
    alone = replace(SETUP, eval_micro_batch_size=1)
    assert isinstance(decide("cuda_oom", situation(alone, during="evaluation")), End)
    as_training = replace(SETUP, eval_micro_batch_size=None)
    assert changes(decide("cuda_oom", situation(as_training, during="evaluation"))) == {
        "batch.eval_micro_batch_size": 3
    }


@each("batches", [1, 2, 5])
@each("micro", [5, 6, 7, 9])
def test_an_overfit_run_repeats_the_same_rows(micro: int, batches: int) -> None:
    setup = replace(SETUP, micro_batch_size=micro, overfit_batches=batches)
    found = changes(decide("cuda_oom", situation(setup)))
    assert found["mode.overfit_batches"] * found["batch.micro_batch_size"] == batches * micro


def test_what_passes_is_started_again_as_it_is_and_ever_later() -> None:
    waits = []
    for starts in range(3):
        decision = decide("nccl_error", situation(starts=starts))
        assert changes(decision) == {}
        assert isinstance(decision, Retry) and decision.counts
        waits.append(decision.wait_s)
    assert waits == sorted(waits) and waits[0] < waits[-1] <= LONGEST_WAIT_S
    end = decide("nccl_error", situation(starts=3))
    assert isinstance(end, End) and "3 times" in end.why


@pytest.mark.parametrize("cause", ["nccl_error", "nccl_timeout", "port_in_use", "node_lost"])
def test_passing_causes(cause: str) -> None:
    assert changes(decide(cause, situation())) == {}


def test_a_machine_that_did_not_come_is_not_waited_for_again() -> None:
    end = decide("node_lost", situation(during="loading"))
    assert isinstance(end, End) and "waited for the other machines" in end.why


def test_loader_processes_are_halved_and_none_is_the_end_of_it() -> None:
    assert changes(decide("dataloader_worker_killed", situation())) == {"data.workers": 2}
    assert changes(decide("dataloader_worker_killed", situation(replace(SETUP, workers=1)))) == {"data.workers": 0}
    assert isinstance(decide("dataloader_worker_killed", situation(replace(SETUP, workers=0))), End)


def test_lack_of_ram_is_tried_once() -> None:
    assert changes(decide("host_oom", situation())) == {"data.workers": 2}
    assert isinstance(decide("host_oom", situation(changed_keys=frozenset({"data.workers"}))), End)
    assert isinstance(decide("host_oom", situation(replace(SETUP, workers=0))), End)


@pytest.mark.parametrize(("name", "again"), [("SIGKILL", True), ("SIGTERM", True), ("SIGSEGV", False), (None, False)])
def test_a_process_killed_from_outside_comes_back_and_one_that_crashed_does_not(name: str | None, again: bool) -> None:
    assert isinstance(decide("unknown", situation(killed_by=name)), Retry) is again


ENDS = {
    "disk_full", "bf16_unsupported", "flash_attention_missing", "shared_memory", "deepspeed_mismatch", "nan_loss",
    "missing_file", "config_mismatch", "gpu_lost", "user_stop", "python_error", "unknown",
}  # fmt: skip


@each("cause", get_args(Cause))
def test_every_cause_is_decided(cause: str) -> None:
    decision = decide(cause, situation())
    assert isinstance(decision, End) is (cause in ENDS)
    if isinstance(decision, End):
        assert decision.why.endswith(".")


@pytest.mark.parametrize("off", [{"on": False}, {"max_restarts": 0}])
@pytest.mark.parametrize("cause", ["cuda_oom", "nccl_error"])
def test_it_can_be_switched_off(cause: str, off: dict[str, Any]) -> None:
    end = decide(cause, situation(replace(SETUP, **off)))
    assert isinstance(end, End) and "recovery.on" in end.why


def test_the_next_smaller_divides_the_product() -> None:
    assert [next_smaller(micro, 4) for micro in (9, 7, 3, 2, 1)] == [6, 4, 2, 1, None]


def test_a_setup_travels_as_json() -> None:
    assert Setup.from_json(asdict(SETUP)) == SETUP
    assert Setup.from_json(None) is None
