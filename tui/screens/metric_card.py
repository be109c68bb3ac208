"""MetricCard: all metrics of a run in one list, narrowed by typing; the answer is what is plotted next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option
from trainwiz.core.language import tr, trn
from trainwiz.core.plain import plain_text
from trainwiz.core.telemetry.metrics import MetricSummary
from trainwiz.tui.cells import cells, pad
from trainwiz.tui.keys import bindings
from trainwiz.tui.metric_names import held_out_name, ordered_names
from trainwiz.tui.widgets.axes import value_label

WIDEST_NAME = 44
VALUES_WIDTH = 28
"""Of the last value and the count, which every line has; the range stands where there is room for it."""


def matching_names(names: Sequence[str], text: str) -> list[str]:
    """The names that hold every word of `text`, those that begin with it first."""
    words = text.lower().split()
    found = [name for name in names if all(word in plain_text(name).lower() for word in words)]
    return sorted(found, key=lambda name: not plain_text(name).lower().startswith(text.lower().strip()))


def all_names(metrics: Mapping[str, MetricSummary]) -> list[str]:
    """Every metric, each followed by its like on held-out rows."""
    names: list[str] = []
    for name in ordered_names(metrics):
        pair = held_out_name(name, metrics)
        names += [entry for entry in (name, pair) if entry is not None and entry not in names]
    return names + [name for name in metrics if name not in names]


class MetricCard(ModalScreen[str | None]):
    """Answers the name of a metric, or None when it was closed."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("list")]

    DEFAULT_CSS = """
    MetricCard { align: center middle; background: $background 60%; }
    MetricCard > Vertical {
        width: 114; max-width: 96%; height: auto; max-height: 90%;
        background: $surface; border: round $accent; padding: 0 1;
    }
    MetricCard Input { border: none; height: 1; padding: 0; background: $panel; margin: 0 0 1 0; }
    MetricCard OptionList { border: none; height: auto; max-height: 26; background: $surface; padding: 0; scrollbar-gutter: stable; }
    MetricCard .hint { color: $muted; height: auto; margin: 1 0 0 0; }
    """

    def __init__(self, metrics: Mapping[str, MetricSummary], current: str) -> None:
        super().__init__()
        self._metrics = metrics
        self._names = all_names(metrics)
        self._current = current
        self._shown: list[str] = []

    def compose(self) -> ComposeResult:
        with Vertical():
            count = len(self._names)
            heading = trn("What to plot: {n} metric", "What to plot: {n} metrics", count, n=f"{count:,}")
            yield Static(Content.styled(heading, "bold"), markup=False)
            entry = Input(placeholder=tr("type to search"), max_length=200, compact=True)
            entry.cursor_blink = False
            yield entry
            options: OptionList = OptionList(markup=False)
            options.can_focus = False
            yield options
            yield Static(tr("enter plot   ↑↓ move   esc close"), classes="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        # The width of the lines is known after the first layout.
        self.call_after_refresh(self._fill, "")

    def on_resize(self) -> None:
        self.call_after_refresh(self._fill, self.query_one(Input).value)

    def _fill(self, text: str) -> None:
        self._shown = matching_names(self._names, text)
        options = self.query_one(OptionList)
        options.clear_options()
        width = max(20, options.scrollable_content_region.width or options.size.width)
        options.add_options([Option(metric_line(name, self._metrics[name], width)) for name in self._shown])
        if self._shown:
            wanted = self._current if not text and self._current in self._shown else self._shown[0]
            options.highlighted = self._shown.index(wanted)
        else:
            options.add_option(Option(tr("No metric has that in its name."), disabled=True))

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._fill(event.value)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        index = self.query_one(OptionList).highlighted
        if index is not None and index < len(self._shown):
            self.dismiss(self._shown[index])

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_index < len(self._shown):
            self.dismiss(self._shown[event.option_index])

    def action_move(self, by: int) -> None:
        options = self.query_one(OptionList)
        if self._shown:
            options.highlighted = ((options.highlighted or 0) + by) % len(self._shown)

    def action_close(self) -> None:
        self.dismiss(None)


def metric_line(name: str, summary: MetricSummary, width: int) -> Content:
    """Name, last value, count, range and the number of values that are not numbers, in `width` cells."""
    room = min(WIDEST_NAME, max(12, width - VALUES_WIDTH))
    shown = Content(plain_text(name)).truncate(room, ellipsis=True)
    last = "—" if summary.last is None else value_label(summary.last)
    values = trn("{n} value", "{n} values", summary.count, n=f"{summary.count:,}")
    bad = "  " + tr("{n} not a number", n=f"{summary.non_finite:,}") if summary.non_finite else ""
    parts = [(pad(last, 10, right=True), ""), ("  " + pad(values, 16, right=True), "$muted")]
    if summary.minimum is not None and summary.maximum is not None:
        between = "  " + tr("{low} to {high}", low=value_label(summary.minimum), high=value_label(summary.maximum))
        if room + VALUES_WIDTH + cells(between) + cells(bad) <= width:
            parts.append((between, "$muted"))
    parts.append((bad, "$error"))
    line = Content.assemble(shown, " " * max(0, room - shown.cell_length), *parts)
    return line.truncate(width, ellipsis=True)
