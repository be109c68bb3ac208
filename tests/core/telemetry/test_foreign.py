"""Jobs that leave no state behind: when they run, are quiet or have finished, and how long they still take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.telemetry.metrics import Pace
from trainwiz.core.telemetry.target import QUIET_AFTER_S, FilesSource, Reading, Target, status_of

from tests.each import each

NOW_S = 1_795_269_731.0
PACE = Pace(step_s=2.0, wall_step_s=3.0, tokens_per_s=None, real_tokens_per_s=None, data_wait=None)


class Readings:
    """A job whose files say what the test says, look by look."""

    def __init__(self, *readings: Reading) -> None:
        self._readings = list(readings)

    def read(self, deadline: float) -> Reading:
        return self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]


def said(*readings: Reading) -> FilesSource:
    return FilesSource(Target("tensorboard", Path("/job"), "job"), Readings(*readings), clock=lambda: NOW_S)


@each(
    ("pause_s", "silent_s", "status"),
    [
        (None, QUIET_AFTER_S, "running"),
        (None, QUIET_AFTER_S + 1, "quiet"),
        (1.0, QUIET_AFTER_S + 1, "quiet"),
        (60.0, 600.0, "running"),
        (60.0, 601.0, "quiet"),
    ],
)
def test_ten_pauses_without_a_word_are_quiet(pause_s: float | None, silent_s: float, status: str) -> None:
    assert status_of(Reading(pause_s=pause_s), NOW_S, NOW_S - silent_s) == status


@pytest.mark.parametrize(
    ("step", "max_steps", "status"),
    [(99, 100, "running"), (100, 100, "finished"), (101, 100, "finished"), (100, None, "running")],
)
def test_the_last_step_is_the_end(step: int, max_steps: int | None, status: str) -> None:
    assert status_of(Reading(step=step, max_steps=max_steps), NOW_S, NOW_S) == status


def test_what_the_first_looks_find_was_there_before() -> None:
    there = Reading(grew=True, behind=True)
    source = said(there, there, replace(there, behind=False), replace(there, behind=False))
    assert [source.poll().status for _ in range(4)] == ["quiet", "quiet", "quiet", "running"]


def test_the_time_left_is_that_of_the_wall_clock() -> None:
    reading = Reading(step=90, max_steps=100, pace=PACE, written_s=NOW_S)
    assert said(reading).poll().eta_s == 30.0
    assert said(replace(reading, pace=replace(PACE, wall_step_s=None))).poll().eta_s == 20.0
    assert said(replace(reading, max_steps=None)).poll().eta_s is None
