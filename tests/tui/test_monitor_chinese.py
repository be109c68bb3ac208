"""The monitor in Chinese, whose letters take two cells: pictures of the main states, and nothing beyond its frame."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual import content as textual_content
from textual.content import Content
from textual.pilot import Pilot
from trainwiz.core.language import tr, use_language
from trainwiz.core.launch.actions import StopCost
from trainwiz.tui.keys import KEYS, keys_of
from trainwiz.tui.run_words import now_words, with_checkpoint_words
from trainwiz.tui.screens.monitor import MonitorScreen
from trainwiz.tui.text import cells
from trainwiz.tui.widgets.canvas import ASCII, BRAILLE, DotCanvas
from trainwiz.tui.widgets.frame import GAP, fitting_keys
from trainwiz.tui.widgets.monitor_panel import MonitorPanel
from trainwiz.tui.widgets.plot import StepRange, parse_range

from tests.each import each
from tests.tui.monitor_states import STATES
from tests.tui.test_monitor_snapshots import SIZES, _frozen_world, app_for, drawn, needs_baseline, screen_text

frozen_world = _frozen_world
"""A fixture for all tests here, too."""

MAIN_STATES = ("running", "failed", "no-gpu", "eight-gpus", "nan")
WORDS: dict[str, tuple[str, ...]] = {
    "running": ("● 运行中", "第 1,600 / 500,000 步", "79 °C，降频", "内存与磁盘", "2.614"),
    "failed": ("✗ 失败", "下一步 trainwiz --profile 2080super --micro-batch 3"),
    "no-gpu": ("没有 GPU",),
    "eight-gpus": ("8 块 GPU", "6.0 / 7.8 GiB"),
    "nan": ("× 第 812 步 NaN",),
}


@pytest.fixture(autouse=True)
def _chinese(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(textual_content, "divide_line", textual_content.divide_line)
    assert use_language("zh") == ""
    yield
    use_language("en")


@needs_baseline
@pytest.mark.parametrize("size", SIZES.values(), ids=list(SIZES))
@pytest.mark.parametrize("state", MAIN_STATES)
def test_monitor(snap_compare: Any, state: str, size: tuple[int, int]) -> None:
    assert snap_compare(app_for(state, "dark"), terminal_size=size, run_before=drawn)


@needs_baseline
@pytest.mark.parametrize("keys", [("s",), ("tab", "f1"), ("m",), ("l",), ("colon",)], ids="-".join)
def test_cards(snap_compare: Any, keys: tuple[str, ...]) -> None:
    async def press(pilot: Pilot[int]) -> None:
        await drawn(pilot)
        await pilot.press(*keys)
        await pilot.pause(0.4)

    assert snap_compare(app_for("running", "dark"), terminal_size=SIZES["80x24"], run_before=press)


@pytest.mark.parametrize("state", MAIN_STATES)
async def test_what_a_picture_says(state: str) -> None:
    app = app_for(state, "dark")
    async with app.run_test(size=SIZES["120x40"]) as pilot:
        await drawn(pilot)
        text = " ".join(screen_text(app).replace("│", " ").split())
        assert [words for words in WORDS[state] if words not in text] == []


@pytest.mark.parametrize("size", SIZES.values(), ids=list(SIZES))
@pytest.mark.parametrize("state", STATES)
async def test_every_line_is_as_wide_as_the_screen_and_every_frame_is_straight(
    state: str, size: tuple[int, int]
) -> None:
    app = app_for(state, "dark")
    async with app.run_test(size=size) as pilot:
        await drawn(pilot)
        screen = app.screen
        assert isinstance(screen, MonitorScreen)
        strips = screen._compositor.render_strips()
        assert [cells(strip.text) for strip in strips] == [size[0]] * len(strips)
        for panel in screen.query(MonitorPanel):
            region = panel.region
            if not panel.is_on_screen or not panel.styles.border_right[0] or region.bottom > size[1]:
                continue
            for y in range(region.y + 1, region.bottom - 1):
                assert strips[y].crop(region.x, region.x + 1).text == "│"
                assert strips[y].crop(region.right - 1, region.right).text == "│"


@pytest.mark.parametrize("state", STATES)
async def test_no_line_of_a_panel_is_wider_than_its_room(state: str) -> None:
    app = app_for(state, "dark")
    async with app.run_test(size=SIZES["120x40"]) as pilot:
        await drawn(pilot)
        screen = app.screen
        assert isinstance(screen, MonitorScreen) and screen.snapshot is not None
        for panel in screen.query(MonitorPanel):
            for width in (30, 38, 56, 100):
                for height in (2, 3, 5, 12):
                    lines = [line.truncate(width) for line in panel.lines(screen.snapshot, width, height)]
                    assert all(line.cell_length <= width for line in lines)


async def test_where_only_ascii_can_be_drawn_the_texts_are_english() -> None:
    app = app_for("running", "dark", ascii_only=True)
    async with app.run_test(size=SIZES["80x24"]) as pilot:
        await drawn(pilot)
        text = screen_text(app)
        assert "* running" in text and "RAM and disk" in text and "运行" not in text
    assert tr("RAM and disk") == "RAM and disk"


@each("row", KEYS)
def test_every_key_is_explained(row: Any) -> None:
    assert not row.words.isascii() and cells(row.words) <= 18
    assert row.sentence.endswith("。")
    assert "{" not in row.words + row.sentence


@each("width", [20, 40, 60, 80, 120])
def test_the_key_bar_fits(width: int) -> None:
    rows = fitting_keys(keys_of("monitor", "app"), width)
    length = sum(cells(row.shown_key) + 1 + cells(row.words) + GAP for row in rows) - GAP
    assert length <= width or all(row.rank == 0 for row in rows)


def test_a_range_is_typed_in_either_language() -> None:
    for text in ("最后 500", "最后500步", "last 500"):
        assert parse_range(text, 0, 1600) == StepRange(length=500)
    assert parse_range("400 到 900", 0, 1600) == parse_range("400-900", 0, 1600) == StepRange(400, 900)
    assert parse_range("全部", 0, 1600) == StepRange()
    with pytest.raises(ValueError, match="起点要在终点之前"):
        parse_range("9-4", 0, 1600)


def test_sentences_stand_side_by_side_without_spaces() -> None:
    cost = StopCost(
        wait_s=60.0, again_s=300.0, patience_s=600.0, lost_steps=12, lost_s=600.0, checkpoint="checkpoint-100"
    )
    assert "。 " not in with_checkpoint_words(cost)
    assert "12 步" in now_words(cost) and "checkpoint-100" in now_words(cost)


@pytest.mark.parametrize("glyphs", [BRAILLE, ASCII], ids=["braille", "ascii"])
def test_a_wide_letter_on_a_plot_takes_two_cells_and_half_of_one_is_none(glyphs: Any) -> None:
    canvas = DotCanvas(8, 1, glyphs)

    def row() -> str:
        return "".join(text for text, _ in canvas.row(0))

    canvas.text(0, 0, "原始ab", "legend")
    assert row() == "原始ab  "
    canvas.text(1, 0, "x", "bad")
    assert (row(), cells(row())) == (" x始ab  ", 8)
    canvas.text(2, 0, "y", "bad")
    assert (row(), cells(row())) == (" xy ab  ", 8)
    canvas.text(6, 0, "平滑", "legend")
    assert (row(), cells(row())) == (" xy ab平", 8)
    canvas.text(-1, 0, "始z", "legend")
    assert cells(row()) == 8
    assert not canvas.is_free(6, 0, 1) and not canvas.is_free(7, 0, 1)


def test_the_folder_of_a_run_keeps_its_words(tmp_path: Path) -> None:
    """Names and commands are no texts of ours."""
    assert tr(str(tmp_path)) == str(tmp_path)
    assert Content(tr("trainwiz runs resume")).plain == "trainwiz runs resume"
