"""Log lines are plain text: no escape codes, progress bars folded, memory bounded."""

from __future__ import annotations

import time

import pytest
from trainwiz.core.telemetry.log import LONGEST_LINE
from trainwiz.core.telemetry.log_lines import LogLines


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m text", "red text"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x00b\x07c\x9b31md", "abcd"),
        ("[bold]not markup[/bold]", "[bold]not markup[/bold]"),
        ("right \u202eto left", "right to left"),
        ("tab\there", "tab here"),
    ],
)
def test_lines_are_harmless(raw: str, shown: str) -> None:
    log = LogLines()
    log.feed(raw + "\n")
    assert tuple(line.text for line in log.lines()) == (shown,)


def test_a_progress_bar_is_one_line_and_its_last_version() -> None:
    log = LogLines()
    for percent in range(101):
        log.feed(f"\r{percent}%|{'#' * (percent // 10)}")
    assert tuple(line.text for line in log.lines()) == ("100%|##########",)
    log.feed("\nsaved\n")
    assert tuple(line.text for line in log.lines()) == ("100%|##########", "saved")


def test_windows_line_ends() -> None:
    log = LogLines()
    log.feed("one\r\ntwo\r")
    log.feed("\nthree\r\n")
    assert tuple(line.text for line in log.lines()) == ("one", "two", "three")


def test_a_bar_that_never_ends_stays_small() -> None:
    log = LogLines()
    for index in range(20_000):
        log.feed(f"\rstep {index}")
    assert tuple(line.text for line in log.lines()) == ("step 19999",)
    assert len(log._half) < 5 * LONGEST_LINE


def test_fifty_thousand_lines_at_once_keep_the_newest() -> None:
    log = LogLines(kept=300)
    started = time.perf_counter()
    log.feed("".join(f"line {n}\n" for n in range(50_000)))
    assert time.perf_counter() - started < 0.5
    assert tuple(line.text for line in log.lines()) == tuple(f"line {n}" for n in range(49_700, 50_000))
