"""Pictures of the monitor in its states, sizes, themes and languages, with a frozen clock; and its cards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from trainwiz.core.language import tr
from trainwiz.core.telemetry import target as targets
from trainwiz.core.telemetry.target import Source, Target
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.monitor import MonitorScreen
from trainwiz.tui.text import cells
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.log_panel import LogPanel

from tests.tui.monitor_states import RecordedProcess, target_of
from tests.tui.test_monitor import monitor_app
from tests.tui.wizard_parts import shown, until

BASELINE_TEXTUAL = "8.2.8"
needs_baseline = pytest.mark.skipif(
    version("textual") != BASELINE_TEXTUAL, reason=f"the pictures were made with textual {BASELINE_TEXTUAL}"
)

SIZES = {"60x20": (60, 20), "80x24": (80, 24), "120x40": (120, 40)}


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
    marks.ascii_only = False
    monkeypatch.undo()
    time.tzset()


def app_for(state: str, theme: str, ascii_only: bool = False) -> TrainwizApp:
    app = monitor_app(target_of(state), ascii_only=ascii_only)
    app.theme = theme
    return app


async def drawn(pilot: Pilot) -> None:
    screen = pilot.app.screen
    assert isinstance(screen, MonitorScreen)
    await until(pilot, lambda: screen.snapshot is not None and not screen._looking)
    assert screen.query_one(LogPanel).title_text == tr("log")
    await pilot.pause(0.1)


@needs_baseline
@pytest.mark.parametrize(
    ("state", "size", "theme"),
    [
        ("running", "120x40", "dark"),
        ("running", "80x24", "light"),
        ("nan", "120x40", "high-contrast"),
        ("eight-gpus", "60x20", "light"),
        ("failed", "80x24", "dark"),
        ("tokenising", "80x24", "dark"),
        ("tensorboard", "120x40", "dark"),
        ("process", "120x40", "dark"),
        ("answers", "120x40", "dark"),
    ],
)
def test_monitor(snap_compare: Any, state: str, size: str, theme: str) -> None:
    assert snap_compare(app_for(state, theme), terminal_size=SIZES[size], run_before=drawn)


@needs_baseline
@pytest.mark.parametrize("keys", [("s",), ("tab", "f1"), ("m",)], ids=lambda keys: "-".join(keys))
def test_cards_and_keys(snap_compare: Any, keys: tuple[str, ...]) -> None:
    async def press(pilot: Pilot) -> None:
        await drawn(pilot)
        await pilot.press(*keys)
        await pilot.pause(0.4)

    assert snap_compare(app_for("running", "dark"), terminal_size=SIZES["80x24"], run_before=press)


@needs_baseline
@pytest.mark.usefixtures("chinese")
@pytest.mark.parametrize(("state", "size"), [("running", "120x40"), ("failed", "60x20")])
def test_in_chinese_whose_letters_take_two_cells(snap_compare: Any, state: str, size: str) -> None:
    async def checked(pilot: Pilot) -> None:
        await drawn(pilot)
        strips = pilot.app.screen._compositor.render_strips()
        assert [cells(strip.text) for strip in strips] == [SIZES[size][0]] * len(strips)

    assert snap_compare(app_for(state, "dark"), terminal_size=SIZES[size], run_before=checked)


@pytest.mark.usefixtures("chinese")
async def test_where_only_ascii_can_be_drawn_every_cell_is_and_the_texts_are_english() -> None:
    app = app_for("nan", "dark", ascii_only=True)
    async with app.run_test(size=SIZES["80x24"]) as pilot:
        await drawn(pilot)
        for strip in app.screen._compositor.render_strips():
            for line_filter in app.get_line_filters():
                strip = strip.apply_filter(line_filter, app.screen.styles.background)
            assert strip.text.isascii(), strip.text
        assert "* running" in shown(app).splitlines()[0] and "RAM and disk" in shown(app)
    assert tr("RAM and disk") == "RAM and disk"
