"""The plot's panel driven by keys and mouse: which metric, which steps, what a step says; the list of metrics."""

from __future__ import annotations

import json
from pathlib import Path

from textual.widgets import Input, OptionList, Static
from trainwiz.core.telemetry.metrics import MetricSummary
from trainwiz.tui.run_words import first_choice, held_out_name, ordered_names
from trainwiz.tui.screens.monitor import MonitorScreen
from trainwiz.tui.screens.monitor_cards import MetricCard, all_names, metric_line
from trainwiz.tui.widgets.frame import EntryDialog
from trainwiz.tui.widgets.metric_panel import MetricPanel
from trainwiz.tui.widgets.plot import Plot

from tests.core.telemetry.written_run import write_lines, write_run
from tests.each import each
from tests.tui.test_monitor import monitored, plot_text
from tests.tui.wizard_keys import until


def below(panel: MetricPanel) -> str:
    return str(panel.query_one("#values").render())


def last_row(screen: MonitorScreen) -> list[str]:
    return plot_text(screen).splitlines()[-1].split()


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
        await pilot.press("home")
        first = panel.cursor
        await pilot.press("left")
        assert panel.cursor == first == 4
        await pilot.press("pagedown", "right")
        assert panel.cursor > 4
        await pilot.press("0")
        assert panel.cursor is None and below(panel) == newest
        panel._put_cursor(812.0)
        assert "step 812   NaN" in below(panel)

        # Ranges by keys, and typed.
        await pilot.press("0", "plus")
        assert panel.title_text == "loss · from step 802" and last_row(screen)[-1] == "1,600"
        await pilot.press("less_than_sign")
        assert panel.title_text == "loss · steps 403 to 1,201" and last_row(screen)[-1] == "1,201"
        await pilot.press("greater_than_sign")
        assert panel.title_text == "loss · from step 802"
        await pilot.press("minus")
        assert panel.title_text == "loss"
        await pilot.press("plus", "plus", "home", *["left"] * 6)
        assert panel.cursor is not None and plot.picture.first <= panel.cursor <= plot.picture.last
        await pilot.press("0", "g", *"900-400", "enter")
        dialog = pilot.app.screen
        assert isinstance(dialog, EntryDialog) and panel.title_text == "loss"
        said = str(dialog.query_one("#said", Static).render())
        assert "! The first step of a range must be before the last." in said
        dialog.query_one(Input).value = ""
        await pilot.press(*"400-900", "enter")
        assert pilot.app.screen is screen and panel.title_text == "loss · steps 400 to 900"
        assert last_row(screen)[0] == "400" and last_row(screen)[-1] == "900"
        await pilot.press("g", "escape", "full_stop")
        assert panel.title_text == "learning_rate · steps 400 to 900", "it stays with another metric"

        # The mouse reads a step, and drags a range.
        await pilot.press("comma", "0")
        await pilot.click(Plot, offset=(plot.picture.gutter + plot.picture.columns // 2, 5))
        assert panel.cursor is not None and 700 < panel.cursor < 900
        await pilot.mouse_down(Plot, offset=(plot.picture.gutter + 10, 5))
        await pilot.hover(Plot, offset=(plot.picture.gutter + 30, 5))
        await pilot.mouse_up(Plot, offset=(plot.picture.gutter + 30, 5))
        await pilot.pause()
        start, end = panel.range.first, panel.range.last
        assert start is not None and end is not None
        assert 200 < start < 400 and 800 < end < 1000
        assert f"steps {start:,.0f} to {end:,.0f}" in panel.title_text
        await pilot.press("0")

        # Any metric is chosen from a list that is searched.
        await pilot.press("m")
        card = pilot.app.screen
        assert isinstance(card, MetricCard)
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
        assert isinstance(pilot.app.screen, MetricCard)
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
    summary = MetricSummary(1.0, 4, 2, 0.5, 1.0, 0)
    assert all_names(dict.fromkeys(names, summary)) == ["loss", "eval_loss", "grad_norm", "epoch_time", "val_acc"]
    firsts = [first_choice(names) for names in (["lr", "run/val_loss", "run/train_loss"], ["lr"], [])]
    assert firsts == ["run/train_loss", "lr", None]


def test_the_lines_of_the_list_fit() -> None:
    summary = MetricSummary(1e-4, 4, 12_000, -1.0, 2.5, 3)
    for width in (30, 50, 90):
        line = metric_line("a/very/" + "long/" * 30 + "name", summary, width)
        assert line.cell_length <= width and "1.0e-4" in line.plain
    assert "12,000 values  -1 to 2.500  3 NaN" in metric_line("x", summary, 120).plain
