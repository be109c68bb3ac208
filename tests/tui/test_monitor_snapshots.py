"""Pictures of the monitor: three sizes, two themes, all states, with a frozen clock; and what they say as text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from trainwiz.core.telemetry import target as targets
from trainwiz.core.telemetry.target import Source, Target
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.monitor import MonitorScreen
from trainwiz.tui.widgets.log_view import LogView

from tests.core.telemetry.written_run import NOW_S
from tests.tui.monitor_states import STATES, RecordedProcess, target_of
from tests.tui.test_monitor import until

BASELINE_TEXTUAL = "8.2.8"
needs_baseline = pytest.mark.skipif(
    version("textual") != BASELINE_TEXTUAL, reason=f"the pictures were made with textual {BASELINE_TEXTUAL}"
)

SIZES = {"60x20": (60, 20), "80x24": (80, 24), "120x40": (120, 40)}

WORDS: dict[str, tuple[str, ...]] = {
    "running": ("● running", "step 1,600 of 500,000", "79 °C, throttles", "2.614"),
    "nan": ("● running", "× NaN at 812", "not a number"),
    "no-gpu": ("● running", "no GPU"),
    "eight-gpus": ("● running", "8 GPUs", "0 ████", "7 ████", "6.0 of 7.8 GiB"),
    "starting": ("◌ starting", "values come with the first logged"),
    "finished": ("✓ finished",),
    "failed": ("✗ failed", "The GPU ran out of memory at step 1,600", "trainwiz --profile 2080super --micro-batch 3"),
    "stopped": ("■ stopped", "Stopped after step 1,600; checkpoint-1600 is complete."),
    "lost": ("? lost", "gone without a last word", "trainwiz runs resume"),
    "recovered": ("● running", "evaluating, for 75 s", "attempt 2, as GPU memory ran out; from step 1,200: 3 × 1,302"),
    "paused": ("● running", "paused, for 6.7 min: waiting for room on the disk"),
    "tokenising": ("◌ starting", "tokenising 12,000 of 80,000 rows, for 3"),
    "given-up": ("✗ failed", "ran out of memory", "attempt 3", "The micro-batch is one row already"),
    "trainer": ("● running", "bert-finetune", "step 1,200 of 3,000", "No process of this machine"),
    "quiet": ("quiet", "bert-finetune", "step 1,200 of 3,000"),
    "tensorboard": ("vision", "resnet50", "◆"),
    "process": ("● running", "train.py (pid 4711)", "step 1,200 of 3,000", "5.3 of 7.8 GiB"),
}


@pytest.fixture(autouse=True)
def _frozen_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same folder names, time zone, theme and glyphs on every machine."""
    monkeypatch.chdir(tmp_path)
    for name in ("TRAINWIZ_THEME", "TRAINWIZ_ASCII", "TRAINWIZ_PLOT", "COLORFGBG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("TZ", "UTC")
    real = targets.open_source

    def open_source(target: Target, **kwargs: Any) -> Source:
        return RecordedProcess(target) if target.kind == "process" else real(target, **kwargs)

    monkeypatch.setattr(targets, "open_source", open_source)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def app_for(state: str, theme: str, ascii_only: bool = False) -> TrainwizApp:
    target = target_of(state)
    app = TrainwizApp(
        lambda: MonitorScreen(target, interval_s=3600.0, clock=lambda: NOW_S),
        ascii_only=ascii_only,
    )
    app.theme = theme
    return app


async def drawn(pilot: Pilot) -> None:
    screen = pilot.app.screen
    assert isinstance(screen, MonitorScreen)
    await until(pilot, lambda: screen.snapshot is not None and not screen._looking)
    log = screen.query_one("#log", LogView)
    await until(pilot, lambda: not log.shown_lines or log.scroll_offset.y == log.max_scroll_y)
    await pilot.pause(0.1)


def screen_text(app: TrainwizApp) -> str:
    """All that is on the screen, as a terminal shows it."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


@needs_baseline
@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("size", SIZES.values(), ids=list(SIZES))
@pytest.mark.parametrize("state", STATES)
def test_monitor(snap_compare: Any, state: str, size: tuple[int, int], theme: str) -> None:
    assert snap_compare(app_for(state, theme), terminal_size=size, run_before=drawn)


@pytest.mark.parametrize("state", STATES)
async def test_what_a_picture_says(state: str) -> None:
    app = app_for(state, "dark")
    async with app.run_test(size=SIZES["120x40"]) as pilot:
        await drawn(pilot)
        text = " ".join(screen_text(app).replace("│", " ").split())
        assert [words for words in WORDS[state] if words not in text] == []


@pytest.mark.parametrize("size", SIZES.values(), ids=list(SIZES))
@pytest.mark.parametrize("state", STATES)
async def test_in_ascii_every_cell_is_ascii_and_no_status_is_lost(state: str, size: tuple[int, int]) -> None:
    app = app_for(state, "dark", ascii_only=True)
    async with app.run_test(size=size) as pilot:
        await drawn(pilot)
        screen = app.screen
        assert isinstance(screen, MonitorScreen) and screen.snapshot is not None
        for strip in screen._compositor.render_strips():
            for line_filter in app.get_line_filters():
                strip = strip.apply_filter(line_filter, screen.styles.background)
            assert strip.text.isascii(), strip.text
        assert screen.snapshot.status in screen_text(app).splitlines()[0]


@needs_baseline
@pytest.mark.parametrize(
    "keys",
    [
        ("p",),
        ("s",),
        ("tab", "f1"),
        ("l",),
        ("e",),
        ("m",),
        ("m", *"eval"),
        ("tab", "end", "left", "left"),
        ("tab", "g", *"9-4", "enter"),
        ("tab", "x"),
        ("l", "slash", *"markup", "enter"),
        ("colon",),
    ],
    ids=lambda keys: "-".join(keys),
)
def test_cards_and_keys(snap_compare: Any, keys: tuple[str, ...]) -> None:
    async def press(pilot: Pilot) -> None:
        await drawn(pilot)
        await pilot.press(*keys)
        await pilot.pause(0.4)

    assert snap_compare(app_for("running", "dark"), terminal_size=SIZES["80x24"], run_before=press)


@needs_baseline
def test_high_contrast(snap_compare: Any) -> None:
    assert snap_compare(app_for("nan", "high-contrast"), terminal_size=SIZES["120x40"], run_before=drawn)
