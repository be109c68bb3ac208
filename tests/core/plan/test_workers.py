"""Loader workers: as many as the RAM beside the training holds, at most as many as the cores feed."""

from dataclasses import replace

import pytest
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.loading import MOST_WORKERS, RESERVE_SHARE
from trainwiz.core.plan.result import Plan

from tests.core.plan.machines import GIB, codes, config, machine, plan, rows
from tests.each import each


def reason(made: Plan, key: str) -> str:
    return next(one.reason for one in made.choices if one.key == key)


def workers_of(here: Machine, **values: object) -> int:
    return plan(here, config(**values), rows()).config.data.workers or 0


@each("count", [1, 2, 3, 4, 8])
@each("ram_gib", [16, 20, 24, 32, 48])
def test_what_is_solved_fits_with_its_reserve(count: int, ram_gib: int) -> None:
    here = machine("RTX 3090", count, ram_gib=ram_gib, cores=64)
    made = plan(here, config(), rows())
    if made.config.data.workers:
        assert (made.memory.host_ram_high_bytes or 0) <= (1 - RESERVE_SHARE) * ram_gib * GIB
        assert "host_ram" not in codes(made)
    else:
        one_each = plan(here, config(data__workers=1, data__prefetch=1), rows())
        assert (one_each.memory.host_ram_high_bytes or 0) > (1 - RESERVE_SHARE) * ram_gib * GIB


@pytest.mark.parametrize("ram_gib", [16, 20, 24])
def test_each_worker_of_streamed_rows_brings_its_window(ram_gib: int) -> None:
    here = machine("RTX 3090", 4, ram_gib=ram_gib, cores=64)
    streamed = replace(rows(10_000_000), bytes_in_memory=20 * GIB)
    made = plan(here, config(data__streaming=True), streamed)
    assert made.config.data.workers
    assert made.memory.host_ram_bytes <= (1 - RESERVE_SHARE) * ram_gib * GIB


def test_ram_and_not_the_cores_decides_where_it_is_short() -> None:
    made = plan(machine("RTX 3090", 4, ram_gib=16, cores=64), config(), rows())
    assert 0 < (made.config.data.workers or 0) < MOST_WORKERS
    assert "14.4 GiB of RAM to plan with" in reason(made, "data.workers")
    assert made.config.data.prefetch == 4 and "few workers" in reason(made, "data.prefetch")
    assert plan(machine("RTX 3090", 6, ram_gib=16, cores=64), config(), rows()).config.data.workers == 0


def test_more_ram_never_means_fewer_workers() -> None:
    counts = [workers_of(machine("RTX 3090", 4, ram_gib=ram, cores=64)) for ram in range(15, 40)]
    assert counts == sorted(counts) and counts[0] < counts[-1] == MOST_WORKERS


def test_ram_that_others_hold_is_not_planned_with() -> None:
    here = machine("RTX 3090", 4, ram_gib=64, cores=64)
    busy = replace(here, ram_available_bytes=14 * GIB)
    assert workers_of(busy) < workers_of(here)
