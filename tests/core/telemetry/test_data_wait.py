"""The number of loader workers that would cure a wait for data."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trainwiz.core.estimate.host import WORKER_BYTES, loading_ratio
from trainwiz.core.telemetry.advice_machine import Cure, advise, workers_that_cure
from trainwiz.core.telemetry.metrics import Pace
from trainwiz.core.telemetry.run_plan import RunSetup, setup_of
from trainwiz.core.telemetry.snapshot import HostReading

GIB = 1024**3


def pace(wait: float) -> Pace:
    return Pace(step_s=2.0, wall_step_s=2.0, tokens_per_s=None, real_tokens_per_s=None, data_wait=wait)


@pytest.mark.parametrize(
    ("workers", "step_s", "wait_s", "needed"),
    [
        # 2 workers take 10 s each for what is computed in 4: 20 s of loading in 4 s are 5 workers, and a tenth more.
        (2, 10.0, 6.0, 6),
        # Without workers the process loads for 6 s what it computes in 4: two workers.
        (0, 10.0, 6.0, 2),
        (0, 10.0, 3.0, 1),
        (4, 10.0, 5.0, 9),
    ],
)
def test_as_many_as_load_a_step_while_the_one_before_is_computed(
    workers: int, step_s: float, wait_s: float, needed: int
) -> None:
    assert workers_that_cure(workers, step_s, wait_s) == Cure(needed, needed)


def test_that_many_workers_would_really_have_cured_it() -> None:
    """A loader is simulated: with the solved number the wait is gone, with one fewer than needed it is not."""
    load_s, compute_s = 7.0, 2.0

    def wait_of(workers: int) -> float:
        return max(0.0, load_s / workers - compute_s) if workers else load_s

    for workers in (0, 1, 2, 3):
        wait_s = wait_of(workers)
        cure = workers_that_cure(workers, compute_s + wait_s, wait_s)
        assert wait_of(cure.needed) == 0.0
        assert cure.needed <= 4 + 1


def test_a_step_that_takes_more_than_can_be_ready_asks_for_more_ready_ones() -> None:
    """Simulated: 16 micro-batches of 0.1 s each by 2 workers that keep 2 ready, 4 s of computing."""
    wait_s, computing_s = (16 - 4) * 0.1 / 2, 1.5
    setup = RunSetup(workers=2, prefetch=2, accumulation=16, cpu_cores=64)
    step_s = computing_s + wait_s
    slow = Pace(step_s=step_s, wall_step_s=step_s, tokens_per_s=None, real_tokens_per_s=None, data_wait=wait_s / step_s)
    (found,) = advise(status="running", pace=slow, setup=setup, host=HostReading())
    assert found.remedy is not None and "--set data.prefetch=8" in found.remedy
    # Batches that are not pinned wait in /dev/shm, each with open files: no more of them than the plan itself takes.
    for pinned, prefetch, said in (
        (False, 16, "data.prefetch=32"),
        (True, 16, "prefetch=256"),
        (False, 32, "More loader"),
    ):
        many = replace(setup, prefetch=prefetch, accumulation=651, pinned=pinned)
        (found,) = advise(status="running", pace=pace(0.3), setup=many, host=HostReading())
        assert found.remedy is not None and said in found.remedy
    # The 1.6 s of loading are more than one worker hides in 1.5 s, and two hide them.
    assert loading_ratio(step_s, wait_s, 2, 16, 2) == pytest.approx(1.6 / 1.5)
    assert loading_ratio(step_s, wait_s, 2, 16, 8) == pytest.approx(2 * step_s / computing_s)


def test_cores_and_ram_bound_it() -> None:
    assert workers_that_cure(2, 10.0, 6.0, processes=2, cpu_cores=8) == Cure(6, 3, "cores")
    tight = workers_that_cure(2, 10.0, 6.0, cpu_cores=64, worker_bytes=GIB, free_bytes=4 * GIB)
    assert tight == Cure(6, 4, "ram")
    usual = workers_that_cure(2, 10.0, 6.0, free_bytes=8 * WORKER_BYTES)
    assert usual == Cure(6, 6) and workers_that_cure(2, 10.0, 6.0, free_bytes=7 * WORKER_BYTES) == Cure(6, 5, "ram")
    assert workers_that_cure(4, 10.0, 6.0, cpu_cores=4).possible == 4, "never fewer than there are"


def test_the_advice_names_the_number() -> None:
    host = HostReading(ram_used_bytes=4 * GIB, ram_total_bytes=64 * GIB)
    setup = RunSetup(workers=2, cpu_cores=32)
    (advice,) = advise(status="running", pace=pace(0.6), setup=setup, host=host)
    assert advice.code == "data_wait" and "60 %" in advice.text
    assert advice.remedy == "6 instead of 2 loader workers would cure it: --set data.workers=6"
    (bound,) = advise(status="running", pace=pace(0.6), setup=RunSetup(workers=2, cpu_cores=4), host=host)
    assert bound.remedy is not None and "CPU cores allow 3" in bound.remedy
    tight = HostReading(ram_used_bytes=14 * GIB, ram_total_bytes=16 * GIB)
    (room,) = advise(status="running", pace=pace(0.6), setup=setup, host=tight)
    assert room.remedy == advice.remedy
    (full,) = advise(status="running", pace=pace(0.6), setup=RunSetup(workers=2, cpu_cores=3), host=host)
    assert full.remedy is not None and "allow no more than there are" in full.remedy
    assert not advise(status="running", pace=pace(0.25), setup=setup, host=host)


def test_an_engine_that_does_not_say_it_is_no_guess() -> None:
    (advice,) = advise(status="running", pace=pace(0.6), setup=setup_of({"actual": "single"}))
    assert advice.remedy == "More loader workers may help (data.workers)."
