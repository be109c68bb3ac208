"""Advice: each rule on both sides of its limit, and what the record of a run carries."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwiz.core.run.attempts import Advice
from trainwiz.core.run.state import Attempt
from trainwiz.core.telemetry.advice import advise
from trainwiz.core.telemetry.machine import CheckpointSize, Saves, saves_of
from trainwiz.core.telemetry.metrics import Metrics, MetricSummary, Pace
from trainwiz.core.telemetry.snapshot import GpuProcess, GpuReading, HostReading, Planned, Snapshot

from tests.core.telemetry.written_run import NOW_S, source_of, write_run
from tests.each import each

GIB, HOUR = 1024**3, 3600.0
CARD = GpuReading(
    index=0, name="NVIDIA GeForce RTX 3090", uuid="GPU-a", utilization_percent=90.0, memory_used_bytes=8 * GIB,
    memory_total_bytes=24 * GIB, temperature_c=60.0, power_w=300.0, power_limit_w=350.0, throttle_reasons=(),
    job_memory_bytes=8 * GIB, problem=None, processes=(GpuProcess(7, "python", 8 * GIB, mine=True),),
)  # fmt: skip
HOST = HostReading(ram_used_bytes=20 * GIB, ram_total_bytes=64 * GIB, disk_free_bytes=100 * GIB)


def card(**changes: Any) -> GpuReading:
    return replace(CARD, **changes)


def advice_on(**facts: Any) -> tuple[Advice, ...]:
    """On a run that goes on, of which nothing is known but this."""
    recorded = facts.pop("recorded", ())
    snapshot = Snapshot(source="run", path="", name="", status="running", time_s=NOW_S)
    return advise(replace(snapshot, **{**facts, "gpus": tuple(facts.get("gpus", ()))}), recorded)


def said(code: str, **facts: Any) -> Advice | None:
    """The advice with that code; each advice is there once at most."""
    found = [item for item in advice_on(**facts) if item.code == code]
    assert len(found) <= 1
    return found[0] if found else None


def texts_of(**facts: Any) -> dict[str, str]:
    return {item.code: item.text for item in advice_on(**facts)}


def pace_of(step_s: float = 2.0, wait: float | None = None) -> Pace:
    return Pace(step_s=step_s, wall_step_s=step_s, tokens_per_s=None, real_tokens_per_s=None, data_wait=wait)


def logged(rows: int, every_s: float = 10.0) -> dict[str, Any]:
    """So many losses, the newest at NOW_S."""
    metrics = Metrics()
    metrics.add_rows({"step": 1 + n, "loss": 2.0, "time_s": NOW_S - (rows - 1 - n) * every_s} for n in range(rows))
    return {"logged_s": metrics.time_s, "pause_s": metrics.pause_s()}


def on(**changes: Any) -> dict[str, Any]:
    return {"gpus": [card(**changes)]}


def host(**changes: Any) -> dict[str, Any]:
    return {"host": replace(HOST, **changes)}


def lost(last: float, bad: int) -> dict[str, Any]:
    return {"metrics": {"loss": MetricSummary(last, 100.0, 100, 0.1, 2.0, bad)}, "non_finite_steps": (7.0,)}


def paced(step_s: float) -> dict[str, Any]:
    return {"pace": pace_of(step_s), "planned": Planned(step_s=15.0, step_low_s=10.0, step_high_s=20.0)}


def stood(after_s: float, rows: int = 30, every_s: float = 10.0, **more: Any) -> dict[str, Any]:
    return {**logged(rows, every_s), "time_s": NOW_S + after_s, **more}


def memory(peak: int, *, stepped: bool = True) -> dict[str, Any]:
    metrics = {"loss": MetricSummary(1.0, 1.0, 1, 1.0, 1.0, 0)} if stepped else {}
    planned = Planned(memory_bytes=100, memory_low_bytes=80, memory_high_bytes=120)
    return {"planned": planned, "peak_memory_bytes": peak, "metrics": metrics}


def held(reason: str) -> dict[str, Any]:
    return {"gpus": [card(throttle_reasons=(reason,))]}


ENDING = {"step": 9, "max_steps": 10, "pace": pace_of(100.0)}
IN_CONTAINER = card(idle_since_s=NOW_S - 240, job_memory_bytes=None, processes=())


@each(("code", "silent", "speaking", "text"), [
    ("gpu_memory_full", on(memory_total_bytes=1000, memory_used_bytes=950),
     on(memory_total_bytes=1000, memory_used_bytes=951), "Memory nearly full on GPU 0"),
    ("gpu_idle", on(idle_since_s=NOW_S - 30), on(idle_since_s=NOW_S - 240), "Idle for 4 min: GPU 0."),
    # Another's card; the only card, on which nobody is known; one of two.
    ("gpu_idle", on(idle_since_s=NOW_S - 240, job_memory_bytes=None), {"gpus": [IN_CONTAINER]}, "GPU 0"),
    ("gpu_idle", {"gpus": [IN_CONTAINER, CARD]}, None, ""),
    ("ram_full", host(ram_used_bytes=60 * GIB), host(ram_used_bytes=62 * GIB), "62.0 GiB of 64.0 GiB."),
    # The pace of five minutes is believed for two hours; what ends before them does not matter.
    ("ram_short", host(ram_lasts_s=2 * HOUR), host(ram_lasts_s=1.5 * HOUR), "full in 90 min at the rate of the last 5 min."),
    ("ram_short", ENDING | host(ram_lasts_s=0.1 * HOUR), ENDING | host(ram_lasts_s=60.0), "full in 60 s"),
    ("disk_short", host(disk_lasts_s=2 * HOUR), host(disk_lasts_s=HOUR), "The disk will be full in 60 min at"),
    ("heat", held("power limit"), held("heat (hardware)"), "GPU 0 throttled by heat."),
    ("power_brake", held("power limit"), held("hardware slowdown"), "GPU 0 throttled by the hardware."),
    ("disk_short", host(disk_free_bytes=2 * GIB), host(disk_free_bytes=2 * GIB - 1), "Only 2.0 GiB of disk space is free."),
    # Before the first step only too much memory says anything.
    ("memory_as_planned", memory(100, stepped=False), memory(120), "Memory is as planned"),
    ("memory_above_plan", memory(120), memory(121), "Memory is 21% above the plan"),
    ("memory_above_plan", memory(100), memory(121, stepped=False), "Memory is 21% above the plan"),
    ("memory_as_planned", memory(79), memory(80), "Memory is as planned"),
    ("nan_loss", lost(1.0, 0), lost(1.0, 30), "in 30 of 100 logged steps, first at step 7."),
    ("slower_than_plan", paced(22.0), paced(22.1), "1.1x as long"),
    ("stalled", stood(125), stood(600), "No step was logged for 10 min; usually there is one every 10 s."),
    # This attempt has just begun; no usual pause is known; slow steps are no stall.
    ("stalled", stood(600, attempts=(Attempt(1, NOW_S + 580),)), stood(3_600, every_s=700.0), "No step was logged"),
    ("stalled", stood(600, rows=3), stood(600), "may be hanging"),
    ("stalled", stood(600, status="stopping"), None, ""),
])  # fmt: skip
def test_each_side_of_a_limit(code: str, silent: dict[str, Any], speaking: dict[str, Any] | None, text: str) -> None:
    assert said(code, **silent) is None
    found = None if speaking is None else said(code, **speaking)
    assert speaking is None or (found is not None and text in f"{found.text} {found.remedy}")


def test_cards_with_the_same_trouble_are_one_sentence_and_a_lost_one_says_so() -> None:
    assert advice_on(gpus=[CARD], host=HOST) == (), "a machine in order is not spoken of"
    lost = card(index=1, problem="the GPU is lost: it has fallen off the bus", memory_used_bytes=None, processes=())
    found = texts_of(gpus=[lost, card(index=2, memory_used_bytes=int(23.9 * GIB))])
    assert found["gpu_lost"] == "GPU 1 cannot be read: the GPU is lost: it has fallen off the bus."
    assert found["gpu_memory_full"].startswith("Memory nearly full on GPU 2")
    trouble = {"throttle_reasons": ("heat (software)",)}
    cards = [card(index=n, idle_since_s=NOW_S - 200 - n, memory_used_bytes=24 * GIB, **trouble) for n in range(3)]
    names = "GPUs 0, 1 and 2"
    assert texts_of(gpus=cards) == {
        "heat": f"{names} throttled by heat.",
        "gpu_memory_full": f"Memory nearly full on {names}: a longer batch could run out of memory.",
        "gpu_idle": f"Idle for 3 min: {names}.",
    }
    # A partitioned card is one card, and its memory is told once.
    whole = card(mig="enabled", memory_used_bytes=24 * GIB)
    parts = [whole, replace(whole, mig="1g.10gb", uuid="MIG-a")]
    assert texts_of(gpus=parts)["gpu_memory_full"].startswith("Memory nearly full on GPU 0 (1g.10gb)")
    assert [item.text for item in advice_on(gpus=[replace(part, problem="gone") for part in parts])] == [
        "GPU 0 cannot be read: gone."
    ]


def test_the_size_of_a_checkpoint_is_that_of_the_newest_whole_one(tmp_path: Path) -> None:
    size = CheckpointSize(tmp_path, clock=lambda: NOW_S)

    def checkpoint(step: int, length: int, age_s: float) -> None:
        weights = tmp_path / f"checkpoint-{step}" / "global_step" / "weights.bin"
        weights.parent.mkdir(parents=True, exist_ok=True)
        weights.write_bytes(b"x" * length)
        os.utime(weights, (NOW_S - age_s, NOW_S - age_s))

    assert size.usual_bytes() is None
    checkpoint(9, 1_000, age_s=900)
    checkpoint(10, 3_000, age_s=500)
    (tmp_path / "checkpoint-best").mkdir()
    assert size.usual_bytes() is None, "the folder is looked into every ten seconds"
    size._look.next_s = 0.0
    assert size.usual_bytes() == 3_000
    checkpoint(20, 10, age_s=1)
    size._look.next_s = 0.0
    assert size.usual_bytes() == 3_000, "the newest is being written"
    assert CheckpointSize(tmp_path, clock=lambda: NOW_S).usual_bytes() == 3_000, "of the one before"
    checkpoint(20, 10, age_s=99)
    size._look.next_s = 0.0
    assert (size.usual_bytes(), size.present) == (10, 3)


ENGINE = {
    "checkpoints_kept": 3, "save_every_steps": 100, "max_steps": 1_000, "parameters": 3 * GIB // 4, "weights_dtype": "float32",
}  # fmt: skip


def saves(step: int = 150, present: int = 1, **changes: Any) -> Saves:
    """Of a run whose checkpoints take 10 GiB and whose model takes 3."""
    sizes = CheckpointSize(Path())
    sizes.present, sizes._bytes, sizes._look.next_s = present, 10 * GIB, math.inf
    found = saves_of(ENGINE | changes, sizes, step)
    assert found is not None
    return found


def test_what_the_run_still_saves_is_held_against_the_disk() -> None:
    # 3 are kept and 1 is there: 3 more lie there for a moment.
    needed = [found.needed_bytes // GIB for found in (
        saves(), saves(checkpoints_kept=None), saves(checkpoints_kept=1), saves(present=3), saves(950), saves(1_000),
        saves(0, max_steps=50),
    )]  # fmt: skip
    assert needed == [30, 93, 10, 10, 13, 3, 13]
    found = said("disk_short", host=HostReading(disk_free_bytes=25 * GIB), saves=saves())
    assert found is not None and "30.0 GiB" in found.text and "25.0 GiB" in found.text
    assert not advice_on(host=HostReading(disk_free_bytes=31 * GIB), saves=saves())
    # A disk that fills up with checkpoints that are kept is no trend.
    fills = HostReading(disk_free_bytes=100 * GIB, disk_lasts_s=HOUR)
    assert not advice_on(host=fills, saves=saves()) and said("disk_short", host=fills, saves=saves(present=3))


@each(("engine", "remedy"), [
    # 2 workers take 10 s each for what is computed in 4: 20 s of loading in 4 s are 5 workers, and a tenth more.
    ({"workers": 2, "cpu_cores": 32}, "6 instead of 2 loader workers would help: --set data.workers=6"),
    # Without workers the process loads for 6 s what it computes in 4: two workers.
    ({"workers": 0}, "2 instead of 0 loader workers would help: --set data.workers=2"),
    ({"workers": 2, "cpu_cores": 4}, "3 instead of 2"), ({"workers": 2, "world_size": 2, "cpu_cores": 8}, "3 instead of 2"),
    # Two machines with one process each: the cores are those of one.
    ({"workers": 2, "world_size": 2, "local_world_size": 1, "cpu_cores": 8}, "6 instead of 2"),
    # Never fewer than there are. An engine that does not say it is no guess.
    ({"workers": 4, "cpu_cores": 4}, "No CPU core is free for more loader workers"),
    ({"actual": "single"}, "More loader workers may help (data.workers)."),
])  # fmt: skip
def test_the_advice_names_the_number(engine: dict[str, Any], remedy: str) -> None:
    """As many workers as load a step while the one before is computed."""
    found = said("data_wait", pace=pace_of(10.0, wait=0.6), engine=engine)
    assert found is not None and "60%" in found.text and remedy in (found.remedy or "")
    assert said("data_wait", pace=pace_of(10.0, wait=0.25), engine=engine) is None


def test_the_worst_comes_first_and_an_ended_run_has_no_machine() -> None:
    facts: dict[str, Any] = {
        "gpus": [CARD, card(problem="gone")],
        "recorded": [
            {"code": "a", "severity": "ok", "text": "Fine."},
            {"code": "b", "severity": "error", "message": "Bad."},
        ],
        **host(disk_free_bytes=GIB),
    }
    assert [item.level for item in advice_on(**facts)] == ["error", "warning", "warning", "ok"]
    assert [item.code for item in advice_on(status="failed", **facts)] == ["b", "a"]


def test_what_a_watcher_writes_is_shown_without_a_change(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    source, lr = source_of(folder), {"code": "lr", "severity": "note"}
    lines = [
        {"code": "overfit", "severity": "warning", "text": "The model learns by heart.", "remedy": "Stop at step 9."},
        {**lr, "text": "Old.", "where": "a"},
        {**lr, "text": "Another place.", "where": "b"},
        {**lr, "text": "New \x1b[31mred[bold].", "where": "a", "remedy": "ls"},
        {"severity": "warning"},
    ]
    (folder / "advice.jsonl").write_text("garbage\n" + "".join(json.dumps(line) + "\n" for line in lines))
    found = {(item.code, item.text): item.remedy for item in source.poll().advice if item.code in ("overfit", "lr")}
    heard = {("overfit", "The model learns by heart."): "Stop at step 9.", ("lr", "New red[bold]."): "ls"}
    assert found == {**heard, ("lr", "Another place."): None}
    with (folder / "advice.jsonl").open("a") as file:
        file.write(json.dumps({"code": "overfit", "severity": "cleared", "text": "It is over."}) + "\n")
    assert "overfit" not in {item["code"] for item in source.poll().to_json()["advice"]}
