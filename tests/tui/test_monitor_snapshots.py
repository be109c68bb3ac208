"""Pictures of the monitor: three sizes, two themes, six states, with a frozen clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.telemetry.target import Target
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.monitor import MonitorScreen
from trainwiz.tui.widgets.log_view import LogView

from tests.core.telemetry.written_run import NOW_S, write_run
from tests.tui.test_monitor import until

BASELINE_TEXTUAL = "8.2.8"

pytestmark = pytest.mark.skipif(
    version("textual") != BASELINE_TEXTUAL, reason=f"the pictures were made with textual {BASELINE_TEXTUAL}"
)

SIZES = {"60x20": (60, 20), "80x24": (80, 24), "120x40": (120, 40)}

OUT_OF_MEMORY = {
    "code": 1,
    "cause": "cuda_oom",
    "message": "The GPU ran out of memory at step 1,600: 9.1 GiB were wanted and 7.8 GiB are there.",
    "remedy": "trainwiz --profile 2080super --micro-batch 3 --yes",
}

STATES: dict[str, dict[str, Any]] = {
    "running": {"nan_at": (812,), "throttled": True},
    "finished": {"status": "finished", "gpus": 0, "max_steps": 1600, "step_s": 0.35},
    "failed": {"status": "failed", "exit_": OUT_OF_MEMORY},
    "starting": {"status": "starting", "steps": 0, "gpus": 0},
    "lost": {"status": "lost"},
    "eight-gpus": {"gpus": 8},
}


@pytest.fixture(autouse=True)
def _frozen_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same folder names, time zone, theme and glyphs on every machine."""
    monkeypatch.chdir(tmp_path)
    for name in ("TRAINWIZ_THEME", "TRAINWIZ_ASCII", "TRAINWIZ_PLOT", "COLORFGBG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def app_for(state: str, theme: str) -> TrainwizApp:
    folder = write_run(Path("runs") / "uniref-650m-0412", **STATES[state])
    app = TrainwizApp(
        lambda: MonitorScreen(Target.of_run(RunFolder(folder)), interval_s=3600.0, clock=lambda: NOW_S),
        ascii_only=False,
    )
    app.theme = theme
    return app


async def drawn(pilot: Pilot) -> None:
    screen = pilot.app.screen
    assert isinstance(screen, MonitorScreen)
    await until(pilot, lambda: screen.snapshot is not None)
    log = screen.query_one("#log", LogView)
    await until(pilot, lambda: bool(log.shown_lines) and log.scroll_offset.y == log.max_scroll_y)
    await pilot.pause(0.1)


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("size", SIZES.values(), ids=list(SIZES))
@pytest.mark.parametrize("state", ["running", "finished", "failed", "starting"])
def test_monitor(snap_compare: Any, state: str, size: tuple[int, int], theme: str) -> None:
    assert snap_compare(app_for(state, theme), terminal_size=size, run_before=drawn)


@pytest.mark.parametrize("state", ["lost", "eight-gpus"])
def test_more_states(snap_compare: Any, state: str) -> None:
    assert snap_compare(app_for(state, "dark"), terminal_size=SIZES["120x40"], run_before=drawn)


@pytest.mark.parametrize("keys", [("p",), ("s",), ("tab", "f1"), ("l",), ("e",)], ids=lambda keys: keys[-1])
def test_cards_and_keys(snap_compare: Any, keys: tuple[str, ...]) -> None:
    async def press(pilot: Pilot) -> None:
        await drawn(pilot)
        await pilot.press(*keys)
        await pilot.pause(0.2)

    assert snap_compare(app_for("running", "dark"), terminal_size=SIZES["80x24"], run_before=press)
