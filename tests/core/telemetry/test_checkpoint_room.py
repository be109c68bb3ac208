"""Whether the disk lasts for the checkpoints to come."""

from __future__ import annotations

from dataclasses import replace

from trainwiz.core.telemetry.advice_machine import advise
from trainwiz.core.telemetry.metrics import Pace
from trainwiz.core.telemetry.peaks import Saves
from trainwiz.core.telemetry.snapshot import HostReading

from tests.each import each

GIB = 1024**3
SAVES = Saves(
    checkpoint_bytes=10 * GIB, present=1, kept=3, every_steps=100, step=150, max_steps=1_000, model_bytes=3 * GIB
)
PACE = Pace(step_s=6.0, wall_step_s=6.0, tokens_per_s=None, real_tokens_per_s=None, data_wait=None)


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


def test_the_step_that_does_not_fit_is_named() -> None:
    # 3 are kept and 1 is there: 3 more lie there for a moment.
    assert SAVES.needed_bytes == 30 * GIB
    assert SAVES.fails_at_step(30 * GIB) is None
    assert SAVES.fails_at_step(25 * GIB) == 400
    assert SAVES.fails_at_step(5 * GIB) == 200


def test_the_advice_says_when_and_how_much() -> None:
    host = HostReading(disk_free_bytes=25 * GIB)
    (advice,) = advise(status="running", host=host, pace=PACE, saves=SAVES)
    assert advice.code == "disk_short" and advice.level == "warning"
    assert "30.0 GiB" in advice.text and "25.0 GiB" in advice.text
    assert "step 400, in about 25 min" in advice.text
    assert advice.remedy is not None and "5.0 GiB" in advice.remedy
    assert not advise(status="running", host=HostReading(disk_free_bytes=31 * GIB), pace=PACE, saves=SAVES)


def test_a_disk_that_fills_up_with_checkpoints_that_are_kept_is_no_trend() -> None:
    host = HostReading(disk_free_bytes=100 * GIB, disk_lasts_s=3_600.0, disk_span_s=1_200.0)
    assert not advise(status="running", host=host, pace=PACE, saves=SAVES)
    settled = replace(SAVES, present=3)
    assert [item.code for item in advise(status="running", host=host, pace=PACE, saves=settled)] == ["disk_short"]
    assert not advise(status="running", host=host, pace=PACE, saves=settled, left_s=1_800.0), "the run ends before"
