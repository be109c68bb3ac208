"""The plot as text, its scales and steps; its panel by keys and mouse; the list of metrics."""

from __future__ import annotations

import itertools
import json
import math
from itertools import pairwise
from pathlib import Path

from textual.widgets import OptionList
from trainwiz.core.telemetry.metrics import EMPTY_CURVE, Curve, MetricSummary, Series
from trainwiz.tui.run_words import first_choice, held_out_name, ordered_names
from trainwiz.tui.screens.monitor_cards import all_names, metric_words
from trainwiz.tui.text import cells, value_label
from trainwiz.tui.widgets.canvas import (
    ASCII,
    BLOCK,
    BRAILLE,
    GLYPHS,
    DotCanvas,
    Glyphs,
    choose_glyphs,
    linear_ticks,
    log_ticks,
    make_scale,
    tick_labels,
)
from trainwiz.tui.widgets.chooser import Chooser
from trainwiz.tui.widgets.drawing import PlotData, draw_plot, read_at, step_beside, value_labels
from trainwiz.tui.widgets.metric_panel import MetricPanel, Plot, StepRange

from tests.core.telemetry.written_run import write_lines, write_run
from tests.each import each
from tests.tui.test_monitor import monitored, plot_text
from tests.tui.wizard_parts import until


def curve_of(values: list[float], every: int = 1) -> Curve:
    series = Series()
    for index, value in enumerate(values):
        series.add(index * every, value)
    return series.curve()


def text_of(rows: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]


def roles_at(rows: list[list[tuple[str, str]]], column: int) -> list[str]:
    """The role of each row's cell in this column; "" for a blank cell."""
    found = []
    for row in rows:
        place = 0
        for text, role in row:
            if place <= column < place + len(text):
                found.append(role if text[column - place] != " " else "")
            place += len(text)
    return found


@each("glyphs", GLYPHS.values())
@each(("width", "height"), [(16, 3), (40, 8), (120, 40), (200, 60)])
def test_every_row_has_exactly_the_width(glyphs: Glyphs, width: int, height: int) -> None:
    values = [2 + math.sin(index / 20) for index in range(500)]
    values[100] = math.nan
    rows = text_of(draw_plot(PlotData(curve_of(values), logarithmic=True), width, height, glyphs).rows)
    assert [len(row) for row in rows] == [width] * height
    assert glyphs is not ASCII or "".join(rows).isascii()
    assert glyphs is BRAILLE or not any("\u2800" <= letter <= "\u28ff" for letter in "".join(rows))


def test_nan_is_a_gap_with_its_step_beside_it() -> None:
    values = [3.0 - index / 100 for index in range(200)]
    values[120] = math.nan
    rows = draw_plot(PlotData(curve_of(values, every=10)), 80, 16, BRAILLE).rows
    assert any("× NaN at 1,200" in row for row in text_of(rows))
    gutter = len(rows[0][0][0])
    column = gutter + int(1200 / 1990 * (80 - gutter))
    roles = roles_at(rows[:-1], column)
    assert "bad" in roles and not {"line", "raw"} & set(roles)
    assert "line" in roles_at(rows[:-1], column - 2) and "line" in roles_at(rows[:-1], column + 2)


def test_where_nothing_can_be_drawn_it_says_why() -> None:
    for data, height, words in (
        (PlotData(curve_of([math.nan, math.nan])), 5, "NaN since step 0, never a finite value."),
        (PlotData(EMPTY_CURVE, empty_text="Come back later."), 5, "Come back later."),
        (PlotData(curve_of([3.0, 2.0, 1.0]), empty_text="No values."), 2, "no room"),
        (PlotData(curve_of([1.0] * 100), first=1000.0, last=2000.0), 5, "No values between steps 1,000 and 2,000."),
    ):
        assert words in " ".join(text_of(draw_plot(data, 60 if height == 5 else 30, height, BRAILLE).rows))


def test_extremes_survive_decimation() -> None:
    values = [1.0] * 10_000
    values[7_777] = 9.0
    rows = draw_plot(PlotData(curve_of(values)), 80, 20, BRAILLE).rows
    gutter = len(rows[0][0][0])
    column = gutter + int(7_777 / 9_999 * (80 - gutter))
    assert "raw" in (roles_at(rows, column)[0], roles_at(rows, column)[1])


def test_evaluations_are_marks_and_the_cursor_stands_behind_the_curve() -> None:
    data = PlotData(curve_of([1.0] * 50), curve_of([1.2, 1.1, 1.3], every=15))
    rows = text_of(draw_plot(data, 60, 10, BRAILLE).rows)
    assert sum(row.count("◆") for row in rows) == 4
    assert any("eval ◆" in row for row in rows)
    data = PlotData(curve_of([float(index) for index in range(101)]), cursor=50.0)
    picture = draw_plot(data, 60, 12, ASCII)
    column = picture.gutter + int(50 / 100 * picture.columns)
    texts = text_of(picture.rows)
    cells_ = [row[column] for row in texts[:-1]]
    assert cells_.count("|") >= 8 and cells_.count("@") == 1
    assert texts[cells_.index("@")][column - 1] in "*'."
    step = picture.step_at(column)
    assert step is not None and abs(step - 50) <= 100 / picture.columns
    assert picture.step_at(0) is None and picture.step_at(60) is None


def test_a_zero_among_positive_values_lies_at_the_bottom_of_a_log_scale() -> None:
    picture = draw_plot(PlotData(curve_of([0.0, 1e-4, 1e-3, 1e-2]), logarithmic=True), 60, 14, BRAILLE)
    assert picture.scale == make_scale(1e-4, 1e-2, True)
    # Values below 0 have a linear scale.
    picture = draw_plot(PlotData(curve_of([-1.0, 0.0, 1.0]), logarithmic=True), 60, 14, BRAILLE)
    assert picture.scale == make_scale(-1.0, 1.0, False)


FAR = [0.0, math.nan, math.inf, 1e308, -1e308, 5e-324]


@each("steps", [(0.1, 0.1), (2.0**62, 2.0**62), (-1e308, 1e308), (0.0, 5e-324), (1.0, 1.0 + 2**-52)])
def test_steps_and_values_at_the_limits_of_floats_are_drawn(steps: tuple[float, float]) -> None:
    for pair in itertools.product(FAR, FAR):
        series = Series()
        for step, value in zip(steps, pair, strict=True):
            series.add(step, value)
        for logarithmic in (False, True):
            data = PlotData(series.curve(), series.curve(), logarithmic=logarithmic, cursor=steps[1])
            assert [len(row) for row in text_of(draw_plot(data, 60, 10, BRAILLE).rows)] == [60] * 10


def test_glyphs_follow_terminal_and_wish() -> None:
    assert choose_glyphs(False, {"TERM": "xterm"}) is BRAILLE
    assert choose_glyphs(False, {"TERM": "linux"}) is BLOCK
    assert choose_glyphs(True, {}) is choose_glyphs(False, {"TERM": "vt100"}) is ASCII
    assert choose_glyphs(True, {"TRAINWIZ_PLOT": "block"}) is BLOCK


def test_ticks_are_round() -> None:
    for low, high, labels in (
        (0, 1204, "0 500 1000"),
        (2.61, 3.1, "2.8 3.0"),
        (0, 2.4e-4, "0 1e-4 2e-4"),
        (0, 3.0e6, "0 1M 2M 3M"),
        (0, 30_000, "0 10k 20k 30k"),
    ):
        assert tick_labels(linear_ticks(low, high, 3)) == labels.split()
    assert log_ticks(0.5, 2000, 5) == [1, 10, 100, 1000]
    values = (2.612, 0.81, 2.4e-4, 1_999_872, 0.0, 512, 12_500, 4952.3, 999.97)
    said = ["2.612", "0.810", "2.4e-4", "2.00M", "0", "512", "12.50k", "4,952", "1,000"]
    assert [value_label(value) for value in values] == said


@each("rows", [4, 8, 19, 40])
@each(("low", "high"), [(2.6, 3.48), (-12.0, 2.0), (0.0, 1e29), (1e-30, 7e-30)])
def test_labels_of_a_linear_scale_are_evenly_apart_and_say_their_value(low: float, high: float, rows: int) -> None:
    scale = make_scale(low, high, False)
    labels = value_labels(scale, rows, rows * BRAILLE.dots_down, BRAILLE)
    if rows >= 8:
        assert len(labels) >= 2
    places = sorted(labels)
    gaps = [after - before for before, after in pairwise(places)]
    assert all(gap >= 2 for gap in gaps)
    assert max(gaps, default=0) - min(gaps, default=0) <= 1
    for row, label in labels.items():
        assert scale.row(float(label), rows * BRAILLE.dots_down) // BRAILLE.dots_down == row


@each("glyphs", [BRAILLE, ASCII])
def test_a_wide_letter_on_a_plot_takes_two_cells_and_half_of_one_is_none(glyphs: Glyphs) -> None:
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


def test_a_range_follows_the_run_where_its_end_is_open_and_never_vanishes() -> None:
    assert [shown.ends(0, 1000) for shown in (StepRange(share=0.2), StepRange(400))] == [(800, None), (400, None)]
    assert StepRange(100, 200).next_zoom().words() == "last 20%"
    about = StepRange().resized(0.5, 0, 1000, about=300)
    assert about == StepRange(150, 650) and about.moved(1, 0, 1000).moved(1, 0, 1000) == StepRange(500, None)
    narrow = StepRange()
    for _ in range(200):
        narrow = narrow.resized(0.5, 0, 1000, about=999)
    first, last = narrow.ends(0, 1000)
    assert first is not None and first < (1000 if last is None else last) <= 1000


def test_the_cursor_reads_what_was_logged_and_never_stands_still() -> None:
    curve = curve_of([3.0, 2.5, math.nan, 2.0], every=10)
    assert read_at(EMPTY_CURVE, 5) is None
    reading, bad = read_at(curve, 12), read_at(curve, 19)
    assert reading is not None and (reading.step, reading.value) == (10, 2.5)
    assert bad is not None and bad.step == 20 and math.isnan(bad.value)
    curve = curve_of([1.0, math.nan, 1.0, 1.0], every=100)
    assert [step_beside(curve, step, 1.0) for step in (0, 100, 200, 300)] == [100, 200, 300, None]
    assert [step_beside(curve, step, -1.0) for step in (300, 200, 100, 0)] == [200, 100, 0, None]
    assert step_beside(curve, 0, 230.0) == 200
    assert step_beside(curve, 300, -1e9) == 0


def below(panel: MetricPanel) -> str:
    return str(panel.query_one("#values").render())


async def test_steps_ranges_and_metrics_by_keys_and_mouse(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", nan_at=(812,))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    values = {row["step"]: row for row in rows if "loss" in row}
    more = {**{f"layer_{number}/norm": 1.5 + number for number in range(30)}, "[bold]\x1b[31mevil": 1.0}
    write_lines(folder / "metrics.jsonl", [row | more | {"a_below": n - 1.0} for n, row in enumerate(rows)])
    async with monitored(folder) as (screen, pilot):
        panel, plot = screen.query_one(MetricPanel), screen.query_one(Plot)
        panel.focus()
        await pilot.pause()

        # The cursor reads steps.
        newest = below(panel)
        await pilot.press("end")
        assert panel.cursor == 1600 and below(panel).startswith("step 1,600")
        await pilot.press("left")
        assert panel.cursor is not None and panel.cursor < 1600
        assert f"{values[panel.cursor]['loss']:.3f}"[:5] in below(panel)
        assert "│" in plot_text(screen) and "●" in plot_text(screen)
        await pilot.press("home", "left")
        assert panel.cursor == 4
        await pilot.press("pagedown", "right")
        assert panel.cursor > 4
        await pilot.press("0")
        assert panel.cursor is None and below(panel) == newest
        panel._put_cursor(812.0)
        assert "step 812   NaN" in below(panel)

        # Ranges by keys.
        await pilot.press("0", "plus")
        assert panel.title_text == "loss · from step 802"
        await pilot.press("less_than_sign")
        assert panel.title_text == "loss · steps 403 to 1,201"
        await pilot.press("greater_than_sign")
        assert panel.title_text == "loss · from step 802"
        await pilot.press("minus")
        assert panel.title_text == "loss"
        await pilot.press("plus", "plus", "home", *["left"] * 6)
        assert panel.cursor is not None and plot.picture.first <= panel.cursor <= plot.picture.last
        await pilot.press("0", "plus", "full_stop")
        assert panel.title_text == "learning_rate · from step 802", "it stays with another metric"

        # The mouse reads a step.
        await pilot.press("comma", "0")
        await pilot.click(Plot, offset=(plot.picture.gutter + plot.picture.columns // 2, 5))
        assert panel.cursor is not None and 700 < panel.cursor < 900
        await pilot.press("0")

        # Any metric is chosen from a list that is searched.
        await pilot.press("m")
        card = pilot.app.screen
        assert isinstance(card, Chooser)
        await pilot.pause()
        options = card.query_one(OptionList)
        assert options.option_count == len(screen.snapshot.metrics if screen.snapshot else {}) > 30
        prompts = [str(options.get_option_at_index(index).prompt) for index in range(options.option_count)]
        assert any("[bold]evil" in prompt for prompt in prompts) and "\x1b" not in "".join(prompts)
        await pilot.press(*"norm 17")
        assert options.option_count == 1
        assert "18.50" in str(options.get_option_at_index(0).prompt)
        assert f"{len(rows)} values" in str(options.get_option_at_index(0).prompt)
        await pilot.press("enter")
        assert pilot.app.screen is screen
        await until(pilot, lambda: screen.snapshot is not None and "layer_17/norm" in screen.snapshot.curves)
        assert panel.title_text == "layer_17/norm" and "18.50" in below(panel)
        await pilot.press("m", *"no such", "enter")
        assert isinstance(pilot.app.screen, Chooser)
        await pilot.press("escape", "m", *"a_below", "enter", "e")
        await until(pilot, lambda: panel.title_text == "a_below · no log scale below 0")
        # Without a frame the name stands below.
        await pilot.resize_terminal(60, 20)
        await pilot.press("0")
        await pilot.pause(0.1)
        assert below(panel).startswith("a_below")


@each(
    ("name", "names", "pair"),
    [
        ("loss", {"loss", "eval_loss"}, "eval_loss"),
        ("train/loss", {"train/loss", "eval/loss"}, "eval/loss"),
        ("run1/train/loss", {"run1/train/loss", "run1/val/loss", "run2/val/loss"}, "run1/val/loss"),
        ("train_loss_epoch", {"train_loss_epoch", "val_loss_epoch"}, "val_loss_epoch"),
        ("run1/loss", {"run1/loss", "run1/eval_loss"}, "run1/eval_loss"),
        ("Loss/train", {"Loss/train", "Loss/test"}, "Loss/test"),
        ("constrained", {"constrained", "consevaled"}, None),
        ("eval_loss", {"loss", "eval_loss", "eval_eval_loss"}, None),
    ],
)
def test_a_metric_and_its_like_on_held_out_rows(name: str, names: set[str], pair: str | None) -> None:
    assert held_out_name(name, names) == pair


def test_the_order_of_metrics() -> None:
    names = ["epoch_time", "eval_loss", "grad_norm", "loss", "val_acc"]
    assert ordered_names(names) == ["loss", "grad_norm", "epoch_time", "val_acc"]
    summary = MetricSummary(1.0, 4, 2, 0.5, 1.0, 3)
    assert metric_words(summary).split() == ["1", "2", "values", "3", "NaN/inf"]
    assert all_names(dict.fromkeys(names, summary)) == ["loss", "eval_loss", "grad_norm", "epoch_time", "val_acc"]
    firsts = [first_choice(names) for names in (["lr", "run/val_loss", "run/train_loss"], ["lr"], [])]
    assert firsts == ["run/train_loss", "lr", None]
