"""Moments in words, of times that files may hold."""

from __future__ import annotations

import math
import time

import pytest
from trainwiz.core.text import FARTHEST_S, is_moment, moment_words

from tests.each import each


def test_a_moment_is_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert moment_words(1_795_269_731.0) == "2026-11-21 14:02"
    assert moment_words(1_795_269_731.0, "%H:%M:%S") == "14:02:11"


@each("time_s", [math.nan, math.inf, -math.inf, 1e300, -1e18])
def test_a_time_that_no_calendar_has_is_said_to_be_unknown(time_s: float) -> None:
    assert not is_moment(time_s)
    assert moment_words(time_s) == "an unknown time"


@pytest.mark.parametrize("time_s", [0.0, -1.0, 1_795_269_731.0, FARTHEST_S / 2])
def test_a_time_of_the_calendar_is_one(time_s: float) -> None:
    assert is_moment(time_s)
    assert moment_words(time_s)[:4].isdecimal()
