"""The plot as text, its scales and steps; its panel by keys; the list of metrics."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

from textual.widgets import OptionList
from trainwiz.core.telemetry.metrics import EMPTY_CURVE, Curve, MetricSummary, Series
from trainwiz.tui.run_words import first_choice, held_out_name, ordered_names
from trainwiz.tui.screens.monitor_cards import metric_words
from trainwiz.tui.text import value_label
from trainwiz.tui.widgets.chooser import Chooser
from trainwiz.tui.widgets.drawing import (
    ASCII,
    BLOCK,
    BRAILLE,
    GLYPHS,
    Glyphs,
    PlotData,
    Scale,
    choose_glyphs,
    draw_plot,
    make_scale,
    step_labels,
    value_labels,
)
from trainwiz.tui.widgets.metric_panel import ALL_STEPS, MetricPanel, StepRange

from tests.core.telemetry.written_run import write_lines, write_run
from tests.each import each
from tests.tui.test_monitor import monitored
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
    rows = text_of(draw_plot(PlotData(curve_of(values), logarithmic=True), width, height, glyphs)[0])
    assert [len(row) for row in rows] == [width] * height
    assert glyphs is not ASCII or "".join(rows).isascii()
    assert glyphs is BRAILLE or not any("\u2800" <= letter <= "\u28ff" for letter in "".join(rows))


def test_nan_is_a_gap_with_its_step_beside_it() -> None:
    values = [3.0 - index / 100 for index in range(200)]
    values[120] = math.nan
    rows, _ = draw_plot(PlotData(curve_of(values, every=10)), 80, 16, BRAILLE)
    assert any("× NaN 1,200" in row for row in text_of(rows))
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
        assert words in " ".join(text_of(draw_plot(data, 60 if height == 5 else 30, height, BRAILLE)[0]))


def test_extremes_survive_decimation() -> None:
    values = [1.0] * 10_000
    values[7_777] = 9.0
    rows, _ = draw_plot(PlotData(curve_of(values)), 80, 20, BRAILLE)
    gutter = len(rows[0][0][0])
    column = gutter + int(7_777 / 9_999 * (80 - gutter))
    assert "raw" in (roles_at(rows, column)[0], roles_at(rows, column)[1])


def test_evaluations_are_marks() -> None:
    data = PlotData(curve_of([1.0] * 50), curve_of([1.2, 1.1, 1.3], every=15))
    rows = text_of(draw_plot(data, 60, 10, BRAILLE)[0])
    assert sum(row.count("◆") for row in rows) == 3


def test_a_zero_among_positive_values_lies_at_the_bottom_of_a_log_scale() -> None:
    assert draw_plot(PlotData(curve_of([0.0, 1e-4, 1e-3, 1e-2]), logarithmic=True), 60, 14, BRAILLE)[1] == make_scale(
        1e-4, 1e-2, True
    )
    # Values below 0 have a linear scale.
    assert draw_plot(PlotData(curve_of([-1.0, 0.0, 1.0]), logarithmic=True), 60, 14, BRAILLE)[1] == make_scale(
        -1.0, 1.0, False
    )


FAR = [0.0, math.nan, math.inf, 1e308, -1e308, 5e-324]


@each("steps", [(0.1, 0.1), (2.0**62, 2.0**62), (-1e308, 1e308), (0.0, 5e-324), (1.0, 1.0 + 2**-52)])
def test_steps_and_values_at_the_limits_of_floats_are_drawn(steps: tuple[float, float]) -> None:
    for pair in itertools.product(FAR, FAR):
        series = Series()
        for step, value in zip(steps, pair, strict=True):
            series.add(step, value)
        for logarithmic in (False, True):
            data = PlotData(series.curve(), series.curve(), logarithmic=logarithmic)
            assert [len(row) for row in text_of(draw_plot(data, 60, 10, BRAILLE)[0])] == [60] * 10


def test_glyphs_follow_terminal_and_wish() -> None:
    assert choose_glyphs(False, {"TERM": "xterm"}) is BRAILLE
    assert choose_glyphs(False, {"TERM": "linux"}) is BLOCK
    assert choose_glyphs(True, {}) is choose_glyphs(False, {"TERM": "vt100"}) is ASCII
    assert choose_glyphs(True, {"TRAINWIZ_PLOT": "block"}) is BLOCK


def test_values_and_steps_beside_a_plot_are_evenly_apart_and_true() -> None:
    for low, high, logarithmic, labels in (
        (2.61, 3.1, False, "3.10 2.85 2.61"),
        (0.0, 2.4e-4, False, "2.4e-4 1.2e-4 0"),
        (0, 30_000, False, "30.0k 15.0k 0"),
        (1e-5, 0.1, True, "0.100 1.0e-3 1.0e-5"),
        (1.0, 1.0001, False, "1.00010 1.00005 1.00000"),
    ):
        assert " ".join(value_labels(Scale(low, high, logarithmic), 9).values()) == labels
    for low, high, logarithmic in ((2.6, 3.48, False), (-12.0, 2.0, False), (1e-30, 7e-30, False), (1e-3, 2.0, True)):
        for rows in (4, 8, 19, 40):
            scale = make_scale(low, high, logarithmic)
            for row, label in value_labels(scale, rows).items():
                assert abs(scale.row(float(label), rows * 4) // 4 - row) <= (rows > 20)
    assert step_labels(0, 1204, 40).split() == ["0", "401", "803", "1,204"]
    assert step_labels(1, 4, 40).split() == ["1", "2", "3", "4"]
    assert len(step_labels(0, 1e300, 40)) == 40 and step_labels(0, 1204, 7) == "  1,204"
    values = (2.612, 0.81, 2.4e-4, 1_999_872, 0.0, 512, 12_500, 4952.3, 999.97)
    said = ["2.612", "0.810", "2.40e-4", "2.000M", "0", "512.0", "12.50k", "4,952", "1,000.0"]
    assert [value_label(value) for value in values] == said


def test_a_range_follows_the_run_where_its_end_is_open_and_never_vanishes() -> None:
    last = ALL_STEPS.resized(0.2, 0, 1000)
    assert last == StepRange(800, None) and last.resized(2, 0, 1000) == StepRange(600, None)
    before = last.moved(-1, 0, 1000)
    assert before == StepRange(700, 900) and before.moved(1, 0, 1000) == last
    assert StepRange(50, 250).moved(-1, 0, 1000) == StepRange(0, 200) and ALL_STEPS.moved(1, 0, 1000) == ALL_STEPS
    narrow = ALL_STEPS
    for _ in range(200):
        narrow = narrow.resized(0.5, 0, 1000)
    assert narrow.first is not None and 999 < narrow.first < 1000 and narrow.resized(1e9, 0, 1000) == ALL_STEPS


def below(panel: MetricPanel) -> str:
    return str(panel.query_one("#values").render())


async def test_steps_ranges_and_metrics_by_keys(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", nan_at=(812,))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    more = {**{f"layer_{number}/norm": 1.5 + number for number in range(30)}, "[bold]\x1b[31mevil": 1.0}
    write_lines(folder / "metrics.jsonl", [row | more | {"a_below": n - 1.0} for n, row in enumerate(rows)])
    async with monitored(folder) as (screen, pilot):
        panel = screen.query_one(MetricPanel)
        panel.focus()
        await pilot.pause()

        for pressed, title in (
            ("plus", "loss · from step 802"),
            ("left", "loss · steps 403 to 1,201"),
            ("right", "loss · from step 802"),
            ("minus", "loss"),
            ("z", "loss · from step 1,281"),
            ("full_stop", "learning_rate · from step 1,281"),
        ):
            await pilot.press(pressed)
            assert panel.title_text == title
        await pilot.press("comma", "z")
        assert panel.title_text == "loss" and "raw" in str(panel.border_subtitle)

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
        await pilot.pause(0.1)
        await pilot.press("e")
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
    assert metric_words(summary).split() == ["1.000", "2", "values"]
    firsts = [first_choice(names) for names in (["lr", "run/val_loss", "run/train_loss"], ["lr"], [])]
    assert firsts == ["run/train_loss", "lr", None]
