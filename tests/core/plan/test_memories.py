"""The memory of a plan: the fullest moment decides, and what stands beside the device is counted once each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from trainwiz.core.plan.result import Plan

from tests.core.plan.machines import GIB, config, machine, plan, rows

SMALL: dict[str, Any] = {"training__max_steps": 100, "batch__micro_batch_size": 4}


def made(gpu: str | None = "RTX 3090", **values: Any) -> Plan:
    data = replace(rows(memory=3 * GIB), validation_rows=100_000)
    return plan(machine(gpu), config("esm2-150m", **{**SMALL, **values}), data)


def test_an_evaluation_that_does_not_fit_is_the_verdict() -> None:
    usual, large = (made(batch__eval_micro_batch_size=size) for size in (4, 65536))
    assert usual.memory.verdict == "fits" and large.memory.verdict == "does_not_fit"
    assert large.memory.allocated_bytes == usual.memory.allocated_bytes


def test_processes_on_a_cpu_share_its_memory() -> None:
    one, two = (made(None, engine__processes=n, engine__strategy=None) for n in (1, 2))
    assert two.config.engine.processes == 2
    assert two.memory.allocated_bytes > 1.9 * one.memory.allocated_bytes
    assert sum(two.memory.breakdown.values()) > 1.9 * sum(one.memory.breakdown.values())


def test_the_best_checkpoint_is_one_more() -> None:
    two, three, best = (
        made(checkpoint__keep=keep, checkpoint__keep_best=best).memory.disk_bytes
        for keep, best in ((2, False), (3, False), (2, True))
    )
    assert best == three > two


@pytest.mark.parametrize("workers", [0, 1, 8])
def test_of_streamed_rows_each_worker_holds_a_window(workers: int) -> None:
    streamed, held = (made(data__streaming=value, data__workers=workers).memory for value in (True, False))
    windows = max(1, workers) * 128 * 2**20
    assert held.host_ram_bytes - streamed.host_ram_bytes == 3 * GIB - windows
