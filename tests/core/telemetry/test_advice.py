"""Advice: each rule on both sides of its limit, and what the record of a run carries."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.run.attempts import Advice
from trainwiz.core.telemetry.advice_machine import advise
from trainwiz.core.telemetry.advice_training import COMPARED_ROWS, LossTrend
from trainwiz.core.telemetry.metrics import MetricSummary, Pace
from trainwiz.core.telemetry.peaks import LOOK_EVERY_S, CheckpointSize
from trainwiz.core.telemetry.snapshot import GpuProcess, GpuReading, HostReading, Planned

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


def said(code: str, **facts: Any) -> Advice | None:
    """The advice with that code; each advice is there once at most."""
    found = [item for item in advise(**{"status": "running", "now_s": NOW_S, **facts}) if item.code == code]
    assert len(found) <= 1
    return found[0] if found else None


def test_a_machine_in_order_is_not_spoken_of() -> None:
    assert advise(status="running", gpus=[CARD], host=HOST, now_s=NOW_S) == ()


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
    advice = advise(status="running", gpus=[card], now_s=NOW_S)
    assert [(item.code, item.level) for item in advice] == ([(code, level)] if code else [])
    assert all("1,500 of 1,980 MHz" in item.text for item in advice)


def test_a_lost_card_says_so_and_the_others_speak_for_themselves() -> None:
    lost = replace(CARD, index=1, problem="the GPU is lost: it fell off the bus", memory_used_bytes=None, processes=())
    full = replace(CARD, index=2, memory_used_bytes=int(23.9 * GIB))
    found = {item.code: item.text for item in advise(status="running", gpus=[lost, full], now_s=NOW_S)}
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
        )
        for index in range(8)
    ]
    advice = {item.code: item.text for item in advise(status="running", gpus=cards, now_s=NOW_S)}
    assert advice == {
        "heat": "Heat limits the clock of GPUs 0, 1, 2, 3, 4, 5, 6 and 7 (at 1,200 of 1,980 MHz).",
        "gpu_memory_full": "GPUs 0, 1, 2, 3, 4, 5, 6 and 7 are nearly full: a longer batch could run out of memory.",
        "gpu_idle": "GPUs 0, 1, 2, 3, 4, 5, 6 and 7 have done nothing for 3 min.",
    }


def test_a_lost_card_with_slices_is_one_sentence() -> None:
    card, part = replace(CARD, mig="enabled", problem="gone"), replace(CARD, mig="1g.5gb", problem="gone")
    assert [item.text for item in advise(status="running", gpus=[card, part])] == ["GPU 0 cannot be read: gone."]
    full = replace(part, problem=None, memory_used_bytes=24 * GIB)
    found = said("gpu_memory_full", gpus=[full])
    assert found is not None and found.text.startswith("GPU 0 (1g.5gb) is nearly full")


def test_an_idle_card_of_a_running_job() -> None:
    idle = replace(CARD, idle_since_s=NOW_S - 240)
    found = said("gpu_idle", gpus=[idle])
    assert found is not None and found.text == "GPU 0 has done nothing for 4 min." and found.remedy
    assert said("gpu_idle", gpus=[replace(CARD, idle_since_s=NOW_S - 30)]) is None
    assert said("gpu_idle", gpus=[idle], status="starting") is None
    assert said("gpu_idle", gpus=[replace(idle, job_memory_bytes=None)]) is None, "another's card"
    in_container = replace(idle, job_memory_bytes=None, processes=())
    assert said("gpu_idle", gpus=[in_container]) is not None, "the only card, and nobody is known on it"
    assert said("gpu_idle", gpus=[in_container, CARD]) is None


def test_others_on_the_card() -> None:
    other = GpuProcess(9, "blender", 3 * GIB, mine=False)
    found = said("others_on_gpu", gpus=[replace(CARD, processes=(*CARD.processes, other))])
    assert found is not None and "3.0 GiB of GPU 0: blender" in found.text
    desktop = replace(other, name="Xorg", memory_used_bytes=GIB // 10, kind="graphics")
    assert said("others_on_gpu", gpus=[replace(CARD, processes=(*CARD.processes, desktop))]) is None
    assert said("others_on_gpu", gpus=[replace(CARD, processes=(other,))]) is None, "nobody knows which is ours"


def test_ram_near_its_limit() -> None:
    full = replace(HOST, ram_used_bytes=62 * GIB, swap_used_bytes=5 * GIB)
    found = said("ram_full", host=full)
    assert found is not None and "62.0 GiB of 64.0 GiB, and 5.0 GiB are swapped out" in found.text
    assert said("ram_full", host=replace(HOST, ram_used_bytes=60 * GIB)) is None
    assert said("ram_short", host=replace(HOST, ram_lasts_s=3 * HOUR, ram_span_s=HOUR)) is not None
    assert said("ram_short", host=replace(HOST, ram_lasts_s=30 * HOUR, ram_span_s=9 * HOUR)) is None


def test_a_disk_that_fills_is_foreseen_as_far_as_it_was_watched() -> None:
    found = said("disk_short", host=replace(HOST, disk_lasts_s=5 * HOUR, disk_span_s=HOUR))
    assert found is not None
    assert found.text == "The disk is full in 5 h at the pace of the last 60 min."
    assert said("disk_short", host=replace(HOST, disk_lasts_s=5 * HOUR, disk_span_s=300.0)) is None
    assert said("disk_short", host=replace(HOST, disk_lasts_s=40 * HOUR, disk_span_s=12 * HOUR)) is None
    assert said("disk_short", host=replace(HOST, disk_free_bytes=GIB)) is not None


def test_the_next_checkpoint_does_not_fit() -> None:
    host = replace(HOST, disk_free_bytes=4 * GIB)
    found = said("checkpoint_does_not_fit", host=host, checkpoint_bytes=9 * GIB)
    assert found is not None and found.level == "error" and found.remedy
    assert "9.0 GiB" in found.text and "4.0 GiB" in found.text
    assert said("checkpoint_does_not_fit", host=host, checkpoint_bytes=3 * GIB) is None
    assert said("checkpoint_does_not_fit", host=host, checkpoint_bytes=9 * GIB, status="finished") is None


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


def loss_trend_of(losses: list[float], every_s: float = 10.0, first_step: int = 1) -> LossTrend:
    """The newest row is NOW_S old by nothing."""
    loss_trend = LossTrend()
    count = len(losses)
    loss_trend.add_rows(
        [
            {"step": first_step + index, "loss": loss, "time_s": NOW_S - (count - 1 - index) * every_s}
            for index, loss in enumerate(losses)
        ]
    )
    return loss_trend


def test_a_run_that_logs_nothing_any_more() -> None:
    loss_trend = loss_trend_of([2.0] * 30)
    assert said("stalled", loss_trend=loss_trend, now_s=NOW_S + 125) is None
    found = said("stalled", loss_trend=loss_trend, now_s=NOW_S + 600)
    assert found is not None and found.remedy
    assert found.text == "No step was logged for 10 min; usually one comes every 10 s."
    assert said("stalled", loss_trend=loss_trend, now_s=NOW_S + 600, status="stopping") is None
    assert said("stalled", loss_trend=loss_trend, now_s=NOW_S + 600, began_s=NOW_S + 580) is None, (
        "this attempt has just begun"
    )
    assert said("stalled", loss_trend=loss_trend_of([2.0] * 3), now_s=NOW_S + 600) is None, "no usual pause is known"


def test_slow_steps_are_no_stall() -> None:
    loss_trend = loss_trend_of([2.0] * 30, every_s=700.0)
    assert said("stalled", loss_trend=loss_trend, now_s=NOW_S + 3_000) is None
    assert said("stalled", loss_trend=loss_trend, now_s=NOW_S + 3_600) is not None


def test_a_loss_above_its_start() -> None:
    start = [3.0 + 0.01 * index for index in range(COMPARED_ROWS)]
    found = said("loss_rises", loss_trend=loss_trend_of([*start, *[2.5] * 100, *[3.6] * COMPARED_ROWS]))
    assert found is not None and "3.6 now" in found.text
    assert said("loss_rises", loss_trend=loss_trend_of([*start, *[2.5] * 100, *[3.15] * COMPARED_ROWS])) is None, (
        "as at first"
    )
    assert said("loss_rises", loss_trend=loss_trend_of([*start, 9.0, 9.0])) is None, "two rows prove nothing"
    assert said("loss_rises", loss_trend=loss_trend_of([-5.0] * 20 + [-4.0] * 20)) is not None, "losses may be negative"


def test_a_resumed_run_forgets_what_it_went_back_over() -> None:
    loss_trend = loss_trend_of([3.0] * COMPARED_ROWS + [9.0] * COMPARED_ROWS)
    assert said("loss_rises", loss_trend=loss_trend) is not None
    loss_trend.add_rows([{"resumed_from": COMPARED_ROWS}, {"step": COMPARED_ROWS + 1, "loss": 2.0, "time_s": NOW_S}])
    assert said("loss_rises", loss_trend=loss_trend) is None
    assert said("stalled", loss_trend=loss_trend, now_s=NOW_S + 1e6) is None, "its pace is not known yet"


def test_an_evaluation_that_rises_and_rises() -> None:
    loss_trend = LossTrend()
    for index, loss in enumerate((2.6, 2.5, 2.55, 2.6)):
        loss_trend.add_rows([{"step": index, "eval_loss": loss, "time_s": NOW_S}])
    assert said("evaluation_rises", loss_trend=loss_trend) is None
    loss_trend.add_rows([{"step": 9, "eval_loss": 2.7, "time_s": NOW_S}])
    found = said("evaluation_rises", loss_trend=loss_trend)
    assert found is not None and "2.5 to 2.7" in found.text


def test_gradients_that_are_often_no_numbers() -> None:
    def norm(bad: int) -> dict[str, MetricSummary]:
        return {"grad_norm": MetricSummary(1.0, 100.0, 100, 0.1, 2.0, bad)}

    assert said("gradient_not_finite", metrics=norm(5)) is None, "fp16 finds its scale"
    found = said("gradient_not_finite", metrics=norm(30))
    assert found is not None and "30 %" in found.text


def test_the_worst_comes_first_and_an_ended_run_has_no_machine() -> None:
    cards = [replace(CARD, throttle_reasons=("power limit",)), replace(CARD, problem="gone")]
    host = replace(HOST, disk_free_bytes=GIB)
    recorded = [{"code": "a", "severity": "ok", "text": "Fine."}, {"code": "b", "severity": "error", "message": "Bad."}]
    advice = advise(status="running", gpus=cards, host=host, recorded=recorded, now_s=NOW_S)
    assert [item.level for item in advice] == ["error", "warning", "warning", "note", "ok"]
    assert [item.code for item in advise(status="failed", gpus=cards, host=host, recorded=recorded)] == ["b", "a"]


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
        file.write(json.dumps({"code": "overfit", "severity": "cleared"}) + "\n")
    assert "overfit" not in {item["code"] for item in source.poll().to_json()["advice"]}


@pytest.mark.parametrize(("share", "full"), [(0.95, False), (0.951, True)])
def test_a_card_is_nearly_full_above_its_limit_only(share: float, full: bool) -> None:
    card = replace(CARD, memory_total_bytes=1000, memory_used_bytes=int(share * 1000), processes=())
    assert (said("gpu_memory_full", gpus=[card]) is not None) == full


@pytest.mark.parametrize(("free", "short"), [(2 * GIB, False), (2 * GIB - 1, True)])
def test_little_disk_is_said_below_two_gib(free: int, short: bool) -> None:
    assert (said("disk_short", host=replace(HOST, disk_free_bytes=free)) is not None) == short


@pytest.mark.parametrize(("needed", "fits"), [(100 * GIB, True), (100 * GIB + 1, False)])
def test_a_checkpoint_fits_to_the_last_byte(needed: int, fits: bool) -> None:
    assert (said("checkpoint_does_not_fit", host=HOST, checkpoint_bytes=needed) is None) == fits


def test_several_idle_cards_are_as_idle_as_the_last_of_them() -> None:
    cards = [replace(CARD, index=index, idle_since_s=NOW_S - idle_s) for index, idle_s in ((0, 3600.0), (1, 300.0))]
    found = said("gpu_idle", gpus=cards)
    assert found is not None and found.text == "GPUs 0 and 1 have done nothing for 5 min."


@pytest.mark.parametrize(
    ("step_s", "code"), [(8.9, "faster_than_plan"), (9.0, None), (22.0, None), (22.1, "slower_than_plan")]
)
def test_steps_against_the_plan(step_s: float, code: str | None) -> None:
    pace = Pace(step_s, None, None, None, None)
    planned = Planned(step_s=15.0, step_low_s=10.0, step_high_s=20.0)
    assert [item.code for item in advise(status="running", pace=pace, planned=planned)] == ([code] if code else [])


@each(
    ("peak", "stepped", "code"),
    [
        (120, True, "memory_as_planned"),
        (121, True, "memory_above_plan"),
        (121, False, "memory_above_plan"),
        (80, True, "memory_as_planned"),
        (78, True, "memory_below_plan"),
        (78, False, None),
        (100, False, None),
    ],
)
def test_memory_against_the_plan(peak: int, stepped: bool, code: str | None) -> None:
    planned = Planned(memory_bytes=100, memory_low_bytes=80, memory_high_bytes=120)
    metrics = {"loss": MetricSummary(1.0, 1.0, 1, 1.0, 1.0, 0)} if stepped else {}
    advice = advise(status="running", planned=planned, peak_memory_bytes=peak, metrics=metrics)
    assert [item.code for item in advice] == ([code] if code else [])
    if code == "memory_below_plan":
        assert advice[0].text.startswith("Memory is 22% below the plan")


def test_an_evaluation_that_stays_does_not_rise() -> None:
    loss_trend = LossTrend()
    for index, loss in enumerate((2.5, 2.6, 2.6, 2.7)):
        loss_trend.add_rows([{"step": index, "eval_loss": loss, "time_s": NOW_S}])
    assert said("evaluation_rises", loss_trend=loss_trend) is None


def test_what_is_cleared_is_gone_whatever_the_line_says(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    lines = [{"code": "a", "text": "Was."}, {"code": "a", "severity": "cleared", "text": "It is over."}]
    (folder / "advice.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "a" not in {item.code for item in source_of(folder).poll().advice}


def test_a_clock_that_was_set_back_is_no_pause() -> None:
    loss_trend = LossTrend()
    for at in (100.0, 110.0, 20.0, 30.0):
        loss_trend.add_rows([{"step": 1, "loss": 1.0, "time_s": NOW_S + at}])
    assert loss_trend.pause_s is None, "two pauses are too few"
    loss_trend.add_rows([{"step": 1, "loss": 1.0, "time_s": NOW_S + 40.0}])
    assert loss_trend.pause_s == 10.0


def test_a_partitioned_card_is_one_card_and_its_memory_is_told_once() -> None:
    other = GpuProcess(9, "blender", 3 * GIB, mine=False)
    card = replace(CARD, mig="enabled", memory_used_bytes=24 * GIB, processes=(*CARD.processes, other))
    parts = [replace(card, mig="1g.10gb", uuid=name) for name in ("MIG-a", "MIG-b")]
    found = {item.code: item.text for item in advise(status="running", gpus=[card, *parts], now_s=NOW_S)}
    names = "GPUs 0 (1g.10gb) and 0 (1g.10gb)"
    assert found["gpu_memory_full"].startswith(names)
    assert found["others_on_gpu"] == f"Others hold 3.0 GiB of each of {names}: blender."


def test_eight_cards_that_say_the_same_of_others_or_of_a_failure_are_one_sentence() -> None:
    other = GpuProcess(9, "blender", 3 * GIB, mine=False)
    cards = [replace(CARD, index=index, processes=(*CARD.processes, other)) for index in range(8)]
    advice = advise(status="running", gpus=cards, now_s=NOW_S)
    assert [item.code for item in advice] == ["others_on_gpu"]
    advice = advise(status="running", gpus=[replace(card, problem="gone") for card in cards], now_s=NOW_S)
    assert [item.text for item in advice] == ["GPUs 0, 1, 2, 3, 4, 5, 6 and 7 cannot be read: gone."]
