"""The monitor in Chinese, whose letters take two cells: pictures of the main states, and nothing beyond its frame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from textual import content as textual_content
from textual.pilot import Pilot
from trainwiz.core.language import tr, use_language
from trainwiz.core.launch.actions import StopCost
from trainwiz.tui.keys import KEYS, keys_of
from trainwiz.tui.run_words import now_words, with_checkpoint_words
from trainwiz.tui.text import cells
from trainwiz.tui.widgets.canvas import ASCII, BRAILLE, DotCanvas
from trainwiz.tui.widgets.frame import GAP, fitting_keys
from trainwiz.tui.widgets.monitor_panel import MonitorPanel
from trainwiz.tui.widgets.plot import StepRange, parse_range

from tests.each import each
from tests.tui.test_monitor_snapshots import SIZES, _frozen_world, app_for, drawn, needs_baseline, screen_text

frozen_world = _frozen_world
"""A fixture for all tests here, too."""


@pytest.fixture(autouse=True)
def _chinese(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(textual_content, "divide_line", textual_content.divide_line)
    use_language("zh")
    yield
    use_language("en")


@needs_baseline
@pytest.mark.parametrize(("state", "size"), [("running", "120x40"), ("failed", "60x20")])
def test_monitor(snap_compare: Any, state: str, size: str) -> None:
    async def checked(pilot: Pilot[int]) -> None:
        await drawn(pilot)
        screen = pilot.app.screen
        strips = screen._compositor.render_strips()
        assert [cells(strip.text) for strip in strips] == [SIZES[size][0]] * len(strips)
        for panel in screen.query(MonitorPanel):
            region = panel.region
            if panel.is_on_screen and panel.styles.border_right[0] and region.bottom <= SIZES[size][1]:
                for y in range(region.y + 1, region.bottom - 1):
                    assert strips[y].crop(region.x, region.x + 1).text == "│"
                    assert strips[y].crop(region.right - 1, region.right).text == "│"

    assert snap_compare(app_for(state, "dark"), terminal_size=SIZES[size], run_before=checked)


async def test_where_only_ascii_can_be_drawn_the_texts_are_english() -> None:
    app = app_for("running", "dark", ascii_only=True)
    async with app.run_test(size=SIZES["80x24"]) as pilot:
        await drawn(pilot)
        text = screen_text(app)
        assert "* running" in text and "RAM and disk" in text and "运行" not in text
    assert tr("RAM and disk") == "RAM and disk"


def test_keys_ranges_and_sentences() -> None:
    for row in KEYS:
        assert not row.words.isascii() and cells(row.words) <= 18 and row.sentence.endswith("。"), row.id
        assert "{" not in row.words + row.sentence, row.id
    for width in (20, 60, 120):
        rows = fitting_keys(keys_of("monitor", "app"), width)
        length = sum(cells(row.shown_key) + 1 + cells(row.words) + GAP for row in rows) - GAP
        assert length <= width or all(row.rank == 0 for row in rows)
    assert parse_range("最后500步", 0, 1600) == parse_range("last 500", 0, 1600) == StepRange(length=500)
    assert parse_range("400 到 900", 0, 1600) == parse_range("400-900", 0, 1600) == StepRange(400, 900)
    assert parse_range("全部", 0, 1600) == StepRange()
    with pytest.raises(ValueError, match="起点要在终点之前"):
        parse_range("9-4", 0, 1600)
    # Sentences stand side by side without spaces.
    cost = StopCost(60.0, 300.0, 600.0, "checkpoint-100", 12, 600.0)
    assert "。 " not in with_checkpoint_words(cost)
    assert "12 步" in now_words(cost) and "checkpoint-100" in now_words(cost)


@each("glyphs", [BRAILLE, ASCII])
def test_a_wide_letter_on_a_plot_takes_two_cells_and_half_of_one_is_none(glyphs: Any) -> None:
    canvas = DotCanvas(8, 1, glyphs)
    for place, text, row in (
        (0, "原始ab", "原始ab  "),
        (1, "x", " x始ab  "),
        (2, "y", " xy ab  "),
        (6, "平滑", " xy ab平"),
    ):
        canvas.text(place, 0, text, "legend")
        shown = "".join(text for text, _ in canvas.row(0))
        assert shown == row and cells(shown) == 8
    canvas.text(-1, 0, "始z", "legend")
    assert cells("".join(text for text, _ in canvas.row(0))) == 8
    assert not canvas.is_free(6, 0, 1) and not canvas.is_free(7, 0, 1)
