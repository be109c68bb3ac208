"""Advice: each rule on both sides of its limit, and what the record of a run carries."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.estimate.host import WORKER_BYTES, loading_ratio
from trainwiz.core.run.attempts import Advice
from trainwiz.core.run.state import Attempt
from trainwiz.core.telemetry.advice import advise
from trainwiz.core.telemetry.metrics import LossTrend, MetricSummary, Pace
from trainwiz.core.telemetry.run_setup import (
    LOOK_EVERY_S,
    CheckpointSize,
    Cure,
    RunSetup,
    Saves,
    setup_of,
    workers_that_cure,
)
from trainwiz.core.telemetry.snapshot import GpuProcess, GpuReading, HostReading, Planned, Snapshot

from tests.core.telemetry.test_run_source import source_of
from tests.core.telemetry.written_run import NOW_S, write_json, write_run
from tests.each import each

GIB = 1024**3
HOUR = 3600.0

CARD = GpuReading(
    index=0,
    name="NVIDIA GeForce RTX 3090",
    uuid="GPU-a",
    utilization_percent=90.0,
    memory_used_bytes=8 * GIB,
    memory_total_bytes=24 * GIB,
    temperature_c=60.0,
    power_w=300.0,
    power_limit_w=350.0,
    throttle_reasons=(),
    job_memory_bytes=8 * GIB,
    problem=None,
    processes=(GpuProcess(7, "python", 8 * GIB, mine=True),),
)
HOST = HostReading(
    ram_used_bytes=20 * GIB, ram_total_bytes=64 * GIB, disk_free_bytes=100 * GIB, disk_total_bytes=500 * GIB
)
OTHER = GpuProcess(9, "blender", 3 * GIB, mine=False)


def look(**facts: Any) -> Snapshot:
    """A run that goes on, of which nothing is known but this."""
    snapshot = Snapshot(source="run", path="", name="", status="running", time_s=NOW_S)
    return replace(snapshot, **{**facts, "gpus": tuple(facts.get("gpus", ()))})


def advice_on(**facts: Any) -> tuple[Advice, ...]:
    recorded = facts.pop("recorded", ())
    return advise(look(**facts), recorded)


def said(code: str, **facts: Any) -> Advice | None:
    """The advice with that code; each advice is there once at most."""
    found = [item for item in advice_on(**facts) if item.code == code]
    assert len(found) <= 1
    return found[0] if found else None


def pace_of(step_s: float = 2.0, wait: float | None = None) -> Pace:
    return Pace(step_s=step_s, wall_step_s=step_s, tokens_per_s=None, real_tokens_per_s=None, data_wait=wait)


def test_a_machine_in_order_is_not_spoken_of() -> None:
    assert advice_on(gpus=[CARD], host=HOST) == ()


IN_CONTAINER = replace(CARD, idle_since_s=NOW_S - 240, job_memory_bytes=None, processes=())
LOSS = {"loss": MetricSummary(1.0, 1.0, 1, 1.0, 1.0, 0)}
STEP_PLAN = Planned(step_s=15.0, step_low_s=10.0, step_high_s=20.0)
MEMORY_PLAN = Planned(memory_bytes=100, memory_low_bytes=80, memory_high_bytes=120)


def norms(bad: int) -> dict[str, MetricSummary]:
    return {"grad_norm": MetricSummary(1.0, 100.0, 100, 0.1, 2.0, bad)}


def with_processes(*others: GpuProcess) -> list[GpuReading]:
    return [replace(CARD, processes=(*CARD.processes, *others))]


def of_host(**facts: Any) -> HostReading:
    return replace(HOST, **facts)


@each(
    ("code", "facts", "text"),
    [
        ("gpu_memory_full", {"gpus": [replace(CARD, memory_total_bytes=1000, memory_used_bytes=950)]}, None),
        (
            "gpu_memory_full",
            {"gpus": [replace(CARD, memory_total_bytes=1000, memory_used_bytes=951)]},
            "GPU 0 is nearly",
        ),
        ("gpu_idle", {"gpus": [replace(CARD, idle_since_s=NOW_S - 240)]}, "GPU 0 has done nothing for 4 min."),
        ("gpu_idle", {"gpus": [replace(CARD, idle_since_s=NOW_S - 30)]}, None),
        ("gpu_idle", {"gpus": [replace(CARD, idle_since_s=NOW_S - 240)], "status": "starting"}, None),
        # Another's card; the only card, on which nobody is known; one of two.
        ("gpu_idle", {"gpus": [replace(CARD, idle_since_s=NOW_S - 240, job_memory_bytes=None)]}, None),
        ("gpu_idle", {"gpus": [IN_CONTAINER]}, "GPU 0"),
        ("gpu_idle", {"gpus": [IN_CONTAINER, CARD]}, None),
        ("others_on_gpu", {"gpus": with_processes(OTHER)}, "3.0 GiB of GPU 0: blender"),
        ("others_on_gpu", {"gpus": with_processes(replace(OTHER, name="Xorg", memory_used_bytes=GIB // 10))}, None),
        # Nobody knows which process is ours.
        ("others_on_gpu", {"gpus": [replace(CARD, processes=(OTHER,))]}, None),
        ("ram_full", {"host": of_host(ram_used_bytes=60 * GIB)}, None),
        (
            "ram_full",
            {"host": of_host(ram_used_bytes=62 * GIB, swap_used_bytes=5 * GIB)},
            "62.0 GiB of 64.0 GiB, and 5.0 GiB are swapped out",
        ),
        ("ram_short", {"host": of_host(ram_lasts_s=3 * HOUR, ram_span_s=HOUR)}, "full in 3 h"),
        ("ram_short", {"host": of_host(ram_lasts_s=30 * HOUR, ram_span_s=9 * HOUR)}, None),
        (
            "disk_short",
            {"host": of_host(disk_lasts_s=5 * HOUR, disk_span_s=HOUR)},
            "The disk is full in 5 h at the pace of the last 60 min.",
        ),
        # A trend is believed for a while, and what ends before it does not matter.
        ("disk_short", {"host": of_host(disk_lasts_s=5 * HOUR, disk_span_s=300.0)}, None),
        ("disk_short", {"host": of_host(disk_lasts_s=40 * HOUR, disk_span_s=12 * HOUR)}, None),
        (
            "disk_short",
            {"host": of_host(disk_lasts_s=5 * HOUR, disk_span_s=HOUR), "step": 1, "max_steps": 10, "pace": pace_of()},
            None,
        ),
        ("disk_short", {"host": of_host(disk_free_bytes=2 * GIB)}, None),
        ("disk_short", {"host": of_host(disk_free_bytes=2 * GIB - 1)}, "Only 2.0 GiB of disk are free."),
        ("checkpoint_does_not_fit", {"host": HOST, "checkpoint_bytes": 100 * GIB}, None),
        ("checkpoint_does_not_fit", {"host": HOST, "checkpoint_bytes": 100 * GIB + 1}, "100.0 GiB of disk are free"),
        ("checkpoint_does_not_fit", {"host": HOST, "checkpoint_bytes": 200 * GIB, "status": "finished"}, None),
        # fp16 finds its scale.
        ("gradient_not_finite", {"metrics": norms(5)}, None),
        ("gradient_not_finite", {"metrics": norms(30)}, "30 %"),
        ("faster_than_plan", {"pace": pace_of(8.9), "planned": STEP_PLAN}, "1.1 times as fast"),
        ("faster_than_plan", {"pace": pace_of(9.0), "planned": STEP_PLAN}, None),
        ("slower_than_plan", {"pace": pace_of(22.0), "planned": STEP_PLAN}, None),
        ("slower_than_plan", {"pace": pace_of(22.1), "planned": STEP_PLAN}, "1.1 times as long"),
    ],
)
def test_each_side_of_a_limit(code: str, facts: dict[str, Any], text: str | None) -> None:
    found = said(code, **facts)
    assert (text is None and found is None) or (found is not None and text is not None and text in found.text)


@each(
    ("peak", "stepped", "code", "level"),
    [
        (120, True, "memory_as_planned", "ok"),
        (80, True, "memory_as_planned", "ok"),
        (121, True, "memory_above_plan", "warning"),
        (121, False, "memory_above_plan", "warning"),
        # Outside of the planned interval nothing is praised.
        (62, True, "memory_below_plan", "note"),
        (78, False, None, None),
        (100, False, None, None),
    ],
)
def test_memory_against_the_plan(peak: int, stepped: bool, code: str | None, level: str | None) -> None:
    advice = advice_on(planned=MEMORY_PLAN, peak_memory_bytes=peak, metrics=LOSS if stepped else {})
    assert [(item.code, item.level) for item in advice] == ([(code, level)] if code else [])
    if code == "memory_below_plan":
        assert advice[0].text.startswith("Memory is 38% below the plan")


@each(
    ("reason", "code", "level"),
    [
        ("heat (hardware)", "heat", "warning"),
        ("heat (software)", "heat", "warning"),
        ("power limit", "power_limit", "note"),
        ("power brake", "power_brake", "warning"),
        ("hardware slowdown", "power_brake", "warning"),
        ("clock setting", None, None),
    ],
)
def test_what_holds_the_clock(reason: str, code: str | None, level: str | None) -> None:
    card = replace(CARD, throttle_reasons=(reason,), clock_mhz=1_500.0, clock_limit_mhz=1_980.0)
    advice = advice_on(gpus=[card])
    assert [(item.code, item.level) for item in advice] == ([(code, level)] if code else [])
    assert all("1,500 of 1,980 MHz" in item.text for item in advice)


def test_a_lost_card_says_so_and_the_others_speak_for_themselves() -> None:
    lost = replace(CARD, index=1, problem="the GPU is lost: it fell off the bus", memory_used_bytes=None, processes=())
    full = replace(CARD, index=2, memory_used_bytes=int(23.9 * GIB))
    found = {item.code: item.text for item in advice_on(gpus=[lost, full])}
    assert found["gpu_lost"] == "GPU 1 cannot be read: the GPU is lost: it fell off the bus."
    assert found["gpu_memory_full"].startswith("GPU 2")


def test_eight_cards_with_the_same_trouble_are_one_sentence() -> None:
    cards = [
        replace(
            CARD,
            index=index,
            uuid=f"GPU-{index}",
            throttle_reasons=("heat (software)",),
            clock_mhz=1_900.0 - 100 * index,
            clock_limit_mhz=1_980.0,
            idle_since_s=NOW_S - 200 - index,
            memory_used_bytes=24 * GIB,
            processes=(*CARD.processes, OTHER),
        )
        for index in range(8)
    ]
    names = "GPUs 0, 1, 2, 3, 4, 5, 6 and 7"
    assert {item.code: item.text for item in advice_on(gpus=cards)} == {
        "heat": f"Heat limits the clock of {names} (at 1,200 of 1,980 MHz).",
        "gpu_memory_full": f"{names} are nearly full: a longer batch could run out of memory.",
        "gpu_idle": f"{names} have done nothing for 3 min.",
        "others_on_gpu": f"Others hold 3.0 GiB of each of {names}: blender.",
    }
    gone = [replace(card, problem="gone") for card in cards]
    assert [item.text for item in advice_on(gpus=gone)] == [f"{names} cannot be read: gone."]


def test_a_partitioned_card_is_one_card_and_its_memory_is_told_once() -> None:
    card = replace(CARD, mig="enabled", memory_used_bytes=24 * GIB, processes=(*CARD.processes, OTHER))
    parts = [replace(card, mig="1g.10gb", uuid=name) for name in ("MIG-a", "MIG-b")]
    found = {item.code: item.text for item in advice_on(gpus=[card, *parts])}
    names = "GPUs 0 (1g.10gb) and 0 (1g.10gb)"
    assert found["gpu_memory_full"].startswith(names)
    assert found["others_on_gpu"] == f"Others hold 3.0 GiB of each of {names}: blender."
    lost = [replace(part, problem="gone") for part in (card, *parts)]
    assert [item.text for item in advice_on(gpus=lost)] == ["GPU 0 cannot be read: gone."]


# Checkpoints: the size of the next, and whether the disk lasts for all that come.


def checkpoint(folder: Path, step: int, size: int, age_s: float) -> None:
    place = folder / f"checkpoint-{step}" / "global_step"
    place.mkdir(parents=True)
    (place / "weights.bin").write_bytes(b"x" * size)
    os.utime(place / "weights.bin", (NOW_S - age_s, NOW_S - age_s))


def test_the_size_of_a_checkpoint_is_that_of_the_newest_whole_one(tmp_path: Path) -> None:
    ticks = [0.0]
    size = CheckpointSize(tmp_path, clock=lambda: NOW_S, ticks=lambda: ticks[0])
    assert size.next_bytes() is None
    checkpoint(tmp_path, 9, 1_000, age_s=900)
    checkpoint(tmp_path, 10, 3_000, age_s=500)
    (tmp_path / "checkpoint-best").mkdir()
    assert size.next_bytes() is None, "the folder is looked into every ten seconds"
    ticks[0] += LOOK_EVERY_S
    assert size.next_bytes() == 3_000
    checkpoint(tmp_path, 20, 10, age_s=1)
    ticks[0] += LOOK_EVERY_S
    assert size.next_bytes() is None, "it is being written"
    assert size.usual_bytes() == 3_000
    assert CheckpointSize(tmp_path, clock=lambda: NOW_S).usual_bytes() == 3_000, "of the one before"
    os.utime(tmp_path / "checkpoint-20" / "global_step" / "weights.bin", (NOW_S - 99, NOW_S - 99))
    ticks[0] += LOOK_EVERY_S
    assert (size.next_bytes(), size.usual_bytes(), size.present) == (10, 10, 3)
    assert CheckpointSize(tmp_path / "absent").next_bytes() is None


SAVES = Saves(
    checkpoint_bytes=10 * GIB, present=1, kept=3, every_steps=100, step=150, max_steps=1_000, model_bytes=3 * GIB
)


def simulated_peak(saves: Saves) -> int:
    """Most of the disk beyond what is there now, step by step."""
    have, peak, lies = saves.present * saves.checkpoint_bytes, 0, saves.present
    steps = [*range((saves.step // saves.every_steps + 1) * saves.every_steps, saves.max_steps, saves.every_steps)]
    for _ in [*steps, saves.max_steps] if saves.step < saves.max_steps else []:
        lies += 1
        peak = max(peak, lies * saves.checkpoint_bytes - have)
        lies = lies if saves.kept is None else min(lies, saves.kept)
    return max(peak, lies * saves.checkpoint_bytes + saves.model_bytes - have)


@each("kept", [None, 1, 2, 3, 20])
@each("present", [1, 2, 3])
@each(("step", "max_steps"), [(150, 1_000), (900, 1_000), (950, 1_000), (1_000, 1_000), (0, 50), (0, 250)])
def test_it_needs_what_a_run_step_by_step_would_take(kept: int | None, present: int, step: int, max_steps: int) -> None:
    saves = replace(SAVES, kept=kept, present=min(present, kept or present), step=step, max_steps=max_steps)
    assert saves.needed_bytes == simulated_peak(saves)


def test_the_save_that_does_not_fit_is_named() -> None:
    # 3 are kept and 1 is there: 3 more lie there for a moment.
    assert SAVES.needed_bytes == 30 * GIB
    assert [SAVES.fails_at_step(free * GIB) for free in (30, 25, 5)] == [None, 400, 200]
    found = said("disk_short", host=HostReading(disk_free_bytes=25 * GIB), pace=pace_of(6.0), saves=SAVES)
    assert found is not None and found.level == "warning" and "5.0 GiB" in (found.remedy or "")
    assert "30.0 GiB" in found.text and "25.0 GiB" in found.text and "step 400, in about 25 min" in found.text
    assert not advice_on(host=HostReading(disk_free_bytes=31 * GIB), pace=pace_of(6.0), saves=SAVES)


def test_a_disk_that_fills_up_with_checkpoints_that_are_kept_is_no_trend() -> None:
    host = HostReading(disk_free_bytes=100 * GIB, disk_lasts_s=3_600.0, disk_span_s=1_200.0)
    assert not advice_on(host=host, saves=SAVES)
    assert said("disk_short", host=host, saves=replace(SAVES, present=3)) is not None


# The training: stalls, losses, evaluations, gradients.


def loss_trend_of(losses: Sequence[float], every_s: float = 10.0, name: str = "loss") -> LossTrend:
    """The newest row is NOW_S old by nothing."""
    loss_trend = LossTrend()
    count = len(losses)
    loss_trend.add_rows(
        [
            {"step": 1 + index, name: loss, "time_s": NOW_S - (count - 1 - index) * every_s}
            for index, loss in enumerate(losses)
        ]
    )
    return loss_trend


STEADY, SLOW = loss_trend_of([2.0] * 30), loss_trend_of([2.0] * 30, every_s=700.0)


@each(
    ("facts", "text"),
    [
        ({"loss_trend": STEADY, "time_s": NOW_S + 125}, None),
        (
            {"loss_trend": STEADY, "time_s": NOW_S + 600},
            "No step was logged for 10 min; usually one comes every 10 s.",
        ),
        ({"loss_trend": STEADY, "time_s": NOW_S + 600, "status": "stopping"}, None),
        # This attempt has just begun; no usual pause is known; slow steps are no stall.
        ({"loss_trend": STEADY, "time_s": NOW_S + 600, "attempts": (Attempt(1, NOW_S + 580),)}, None),
        ({"loss_trend": loss_trend_of([2.0] * 3), "time_s": NOW_S + 600}, None),
        ({"loss_trend": SLOW, "time_s": NOW_S + 3_000}, None),
        ({"loss_trend": SLOW, "time_s": NOW_S + 3_600}, "No step was logged"),
    ],
)
def test_a_run_that_logs_nothing_any_more(facts: dict[str, Any], text: str | None) -> None:
    found = said("stalled", **facts)
    assert (text is None and found is None) or (found is not None and text is not None and text in found.text)


START = [3.0 + 0.01 * index for index in range(20)]


@each(
    ("code", "losses", "text"),
    [
        ("loss_rises", [*START, *[2.5] * 100, *[3.6] * 20], "3.6 now"),
        ("loss_rises", [*START, *[2.5] * 100, *[3.15] * 20], None),
        ("loss_rises", [*START, 9.0, 9.0], None),
        ("loss_rises", [-5.0] * 20 + [-4.0] * 20, "-4 now"),
        ("evaluation_rises", [2.6, 2.5, 2.55, 2.6], None),
        ("evaluation_rises", [2.6, 2.5, 2.55, 2.6, 2.7], "2.5 to 2.7"),
        ("evaluation_rises", [2.5, 2.6, 2.6, 2.7], None),
    ],
)
def test_losses_that_rise(code: str, losses: list[float], text: str | None) -> None:
    name = "loss" if code == "loss_rises" else "eval_loss"
    found = said(code, loss_trend=loss_trend_of(losses, name=name))
    assert (text is None and found is None) or (found is not None and text is not None and text in found.text)


def test_a_resumed_run_forgets_what_it_went_back_over() -> None:
    loss_trend = loss_trend_of([3.0] * 20 + [9.0] * 20)
    assert said("loss_rises", loss_trend=loss_trend) is not None
    loss_trend.add_rows([{"resumed_from": 20}, {"step": 21, "loss": 2.0, "time_s": NOW_S}])
    assert said("loss_rises", loss_trend=loss_trend) is None
    assert said("stalled", loss_trend=loss_trend, time_s=NOW_S + 1e6) is None, "its pace is not known yet"


def test_a_clock_that_was_set_back_is_no_pause() -> None:
    loss_trend = LossTrend()
    for at in (100.0, 110.0, 20.0, 30.0):
        loss_trend.add_rows([{"step": 1, "loss": 1.0, "time_s": NOW_S + at}])
    assert loss_trend.pause_s is None, "two pauses are too few"
    loss_trend.add_rows([{"step": 1, "loss": 1.0, "time_s": NOW_S + 40.0}])
    assert loss_trend.pause_s == 10.0


# Waiting for data.


@each(
    ("setup", "wait_s", "free_bytes", "cure"),
    [
        # 2 workers take 10 s each for what is computed in 4: 20 s of loading in 4 s are 5 workers, and a tenth more.
        (RunSetup(workers=2), 6.0, None, Cure(6, 6)),
        # Without workers the process loads for 6 s what it computes in 4: two workers.
        (RunSetup(workers=0), 6.0, None, Cure(2, 2)),
        (RunSetup(workers=0), 3.0, None, Cure(1, 1)),
        (RunSetup(workers=4), 5.0, None, Cure(9, 9)),
        (RunSetup(workers=2, processes=2, cpu_cores=8), 6.0, None, Cure(6, 3, "cores")),
        (RunSetup(workers=2), 6.0, 8 * WORKER_BYTES, Cure(6, 6)),
        (RunSetup(workers=2), 6.0, 7 * WORKER_BYTES, Cure(6, 5, "ram")),
        # Never fewer than there are.
        (RunSetup(workers=4, cpu_cores=4), 6.0, None, Cure(12, 4, "cores")),
    ],
)
def test_as_many_workers_as_load_a_step_while_the_one_before_is_computed(
    setup: RunSetup, wait_s: float, free_bytes: int | None, cure: Cure
) -> None:
    found = workers_that_cure(setup, 10.0, wait_s, free_bytes=free_bytes)
    assert found == cure or (setup.workers == 4 and (found.possible, found.bound) == (cure.possible, cure.bound))


def test_that_many_workers_would_really_have_cured_it() -> None:
    """A loader is simulated: with the solved number the wait is gone, with one fewer than needed it is not."""
    load_s, compute_s = 7.0, 2.0

    def wait_of(workers: int) -> float:
        return max(0.0, load_s / workers - compute_s) if workers else load_s

    for workers in (0, 1, 2, 3):
        wait_s = wait_of(workers)
        cure = workers_that_cure(RunSetup(workers=workers), compute_s + wait_s, wait_s)
        assert wait_of(cure.needed) == 0.0
        assert cure.needed <= 4 + 1


def test_a_step_that_takes_more_than_can_be_ready_asks_for_more_ready_ones() -> None:
    """Simulated: 16 micro-batches of 0.1 s each by 2 workers that keep 2 ready, 4 s of computing."""
    wait_s, computing_s = (16 - 4) * 0.1 / 2, 1.5
    setup = RunSetup(workers=2, prefetch=2, accumulation=16, cpu_cores=64)
    step_s = computing_s + wait_s
    (found,) = advice_on(pace=pace_of(step_s, wait_s / step_s), setup=setup)
    assert found.remedy is not None and "--set data.prefetch=8" in found.remedy
    # The 1.6 s of loading are more than one worker hides in 1.5 s, and two hide them.
    assert loading_ratio(step_s, wait_s, 2, 16, 2) == pytest.approx(1.6 / 1.5)
    # Batches that are not pinned wait in /dev/shm, each with open files: no more of them than the plan itself takes.
    for pinned, prefetch, words in (
        (False, 16, "data.prefetch=32"),
        (True, 16, "prefetch=256"),
        (False, 32, "More loader"),
    ):
        many = replace(setup, prefetch=prefetch, accumulation=651, pinned=pinned)
        (found,) = advice_on(pace=pace_of(wait=0.3), setup=many)
        assert found.remedy is not None and words in found.remedy


@each(
    ("setup", "used_gib", "remedy"),
    [
        (RunSetup(workers=2, cpu_cores=32), 4, "6 instead of 2 loader workers would cure it: --set data.workers=6"),
        (RunSetup(workers=2, cpu_cores=32), 62, "6 instead of 2 loader workers would cure it: --set data.workers=6"),
        (RunSetup(workers=2, cpu_cores=4), 4, "CPU cores allow 3"),
        (RunSetup(workers=2, cpu_cores=3), 4, "allow no more than there are"),
        # An engine that does not say it is no guess.
        (setup_of({"actual": "single"}), 4, "More loader workers may help (data.workers)."),
    ],
)
def test_the_advice_names_the_number(setup: RunSetup, used_gib: int, remedy: str) -> None:
    host = HostReading(ram_used_bytes=used_gib * GIB, ram_total_bytes=64 * GIB)
    found = said("data_wait", pace=pace_of(wait=0.6), setup=setup, host=host)
    assert found is not None and "60 %" in found.text and remedy in (found.remedy or "")
    assert said("data_wait", pace=pace_of(wait=0.25), setup=setup, host=host) is None


# What the record of a run carries.


def test_the_worst_comes_first_and_an_ended_run_has_no_machine() -> None:
    cards = [replace(CARD, throttle_reasons=("power limit",)), replace(CARD, problem="gone")]
    host = replace(HOST, disk_free_bytes=GIB)
    recorded = [{"code": "a", "severity": "ok", "text": "Fine."}, {"code": "b", "severity": "error", "message": "Bad."}]
    advice = advice_on(gpus=cards, host=host, recorded=recorded)
    assert [item.level for item in advice] == ["error", "warning", "warning", "note", "ok"]
    assert [item.code for item in advice_on(status="failed", gpus=cards, host=host, recorded=recorded)] == ["b", "a"]


def test_what_a_watcher_writes_is_shown_without_a_change(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    state = json.loads((folder / "state.json").read_text())
    write_json(
        folder / "state.json", {**state, "advice": [{"code": "x", "severity": "error", "text": "From the state."}, 7]}
    )
    source = source_of(folder)
    lines = [
        {"code": "overfit", "severity": "warning", "text": "The model learns by heart.", "remedy": "Stop at step 9."},
        {"code": "lr", "severity": "note", "text": "Old.", "where": "a"},
        {"code": "lr", "severity": "note", "text": "Another place.", "where": "b"},
        {
            "code": "lr",
            "severity": "warning",
            "text": "New \x1b[31mred[bold].",
            "where": "a",
            "remedy": {"command": "ls"},
        },
        {"severity": "warning"},
    ]
    (folder / "advice.jsonl").write_text("garbage\n" + "".join(json.dumps(line) + "\n" for line in lines))
    found = {(item.code, item.text): item for item in source.poll().advice}
    assert found["overfit", "The model learns by heart."].remedy == "Stop at step 9."
    assert found["lr", "New red[bold]."].remedy == "ls"
    assert ("lr", "Another place.") in found and ("lr", "Old.") not in found
    assert found["x", "From the state."].level == "error"
    with (folder / "advice.jsonl").open("a") as file:
        file.write(json.dumps({"code": "overfit", "severity": "cleared", "text": "It is over."}) + "\n")
    assert "overfit" not in {item["code"] for item in source.poll().to_json()["advice"]}
