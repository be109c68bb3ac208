"""Plot: one metric over the steps, which of them it shows, and its cursor."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rich.segment import Segment
from textual.events import MouseDown, MouseMove, MouseScrollDown, MouseScrollUp, MouseUp, Resize
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from trainwiz.core.language import mark, tr
from trainwiz.core.telemetry.series import Curve
from trainwiz.tui.widgets.canvas import BRAILLE, Glyphs
from trainwiz.tui.widgets.drawing import Picture, PlotData, Row, draw_plot, step_labels
from trainwiz.tui.widgets.lists import Kept, LineKey, refresh_lines

# A plot that grew by less than can be seen: its steps are labelled anew, and nothing else is drawn. Pure.

UNSEEN_DOTS = 0.25
"""Steps that take less than this share of a dot's width change nothing that can be seen."""


def grown_picture(picture: Picture, drawn: PlotData, data: PlotData, dots_across: int) -> Picture | None:
    """`picture`, which shows `drawn`, as a picture of `data`; None where it has to be drawn again.

    A run of 100,000 steps on 100 columns gets a dot's width of news every 500 steps: to draw it anew
    for each step would be most of what a monitor takes.
    """
    scale = picture.scale
    if scale is None or not picture.columns or not _alike(drawn, data):
        return None
    first = picture.first if data.first is None else data.first
    last = data.curve.last_step if data.last is None else data.last
    drawn_last = drawn.curve.last_step
    if last is None or drawn_last is None:
        return None
    unseen = (picture.last - picture.first) / (picture.columns * dots_across) * UNSEEN_DOTS
    if abs(first - picture.first) >= unseen or abs(last - picture.last) >= unseen:
        return None
    news = data.curve.extremes(drawn_last, last)
    if news is not None and not (scale.low <= news[0] and news[1] <= scale.high):
        return None
    labels = [(" " * picture.gutter + step_labels(first, last, picture.columns), "label")]
    return replace(picture, rows=[*picture.rows[:-1], labels])


def _alike(drawn: PlotData, data: PlotData) -> bool:
    """Whether only the end of the curve can be another."""
    same_settings = (drawn.points_name, drawn.logarithmic, drawn.uprights, drawn.first is None, drawn.last is None) == (
        data.points_name,
        data.logarithmic,
        data.uprights,
        data.first is None,
        data.last is None,
    )
    return same_settings and _same(drawn.points, data.points) and _went_on(drawn.curve, data.curve)


def _same(before: Curve, after: Curve) -> bool:
    return before is after or (len(before), before.last_step) == (len(after), after.last_step)


def _went_on(before: Curve, after: Curve) -> bool:
    """Whether `after` is `before` with more points: not another metric, not a run that went back, no new gap."""
    count = len(before.steps)
    return (
        count > 0
        and len(before.bucket_steps) == len(after.bucket_steps)
        and len(before.non_finite_steps) == len(after.non_finite_steps)
        and _equal(before.values, after.values, count)
        and _equal(before.steps, after.steps, count)
        and _equal(before.bucket_sums, after.bucket_sums, len(before.bucket_sums))
    )


def _equal(before: array[float], after: array[float], count: int) -> bool:
    # Arrays would be compared number by number, each as an object: twenty times as long.
    return memoryview(before)[:count] == memoryview(after)[:count]


# StepRange: which steps a plot shows, and how keys, a mouse or typed words change that. Pure.

ZOOM_SHARES = (1.0, 0.2, 0.04)
NARROWEST = 1e-6
"""Share of all steps below which a range is not narrowed further."""
HOW_TO_TYPE = mark("Type two steps as 400-900, or 400- for the rest, or last 500, or all.")

_SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_NUMBER = r"(\d[\d,_']*(?:\.\d+)?)\s*([kmg]?)"
_SPAN = re.compile(rf"(?:{_NUMBER})?\s*(?:-|–|\.\.|:|to|到|至|\s)\s*(?:{_NUMBER})?$")
_LAST = re.compile(rf"(?:last\s+|最后\s*){_NUMBER}\s*(%?)(?:\s*(?:steps?|步))?$")


@dataclass(frozen=True, slots=True)
class StepRange:
    """An end that is None is open: it follows the run. `share` or `length` count from the last step."""

    first: float | None = None
    last: float | None = None
    share: float = 1.0
    """Only the newest share of all steps, where neither end is given."""
    length: float | None = None
    """Only the newest `length` steps, where neither end is given."""

    def ends(self, low: float, high: float) -> tuple[float | None, float | None]:
        """The steps to draw of a run that has values from `low` to `high`; None leaves that end to the plot."""
        if self.first is not None or self.last is not None:
            return self.first, self.last
        if self.length is not None:
            return max(low, high - self.length), None
        return (None if self.share >= 1 else high - (high - low) * self.share), None

    def words(self) -> str:
        """What stands in the title; empty where all steps are shown."""
        if self.first is not None and self.last is not None:
            return tr("steps {first} to {last}", first=f"{self.first:,.0f}", last=f"{self.last:,.0f}")
        if self.first is not None:
            return tr("from step {step}", step=f"{self.first:,.0f}")
        if self.last is not None:
            return tr("to step {step}", step=f"{self.last:,.0f}")
        if self.length is not None:
            return tr("last {n} steps", n=f"{self.length:,.0f}")
        if self.share in (1.0, 0.2):
            return "" if self.share == 1 else tr("last fifth")
        return tr("last {share}", share=f"{self.share * 100:g} %")

    def next_zoom(self) -> StepRange:
        """All steps, the last fifth, the last 4 %, all again."""
        own = self in [StepRange(share=share) for share in ZOOM_SHARES]
        place = ZOOM_SHARES.index(self.share) + 1 if own else 1
        return StepRange(share=ZOOM_SHARES[place % len(ZOOM_SHARES)])

    def resized(self, factor: float, low: float, high: float, about: float | None = None) -> StepRange:
        """`factor` times as many steps around `about`; without it the last step shown stays where it is."""
        first, last = self._closed(low, high)
        length = (last - first) * factor
        if length >= high - low:
            return StepRange()
        if length < (high - low) * NARROWEST or length <= 0:
            return self
        if about is None:
            return StepRange(last - length, None if last >= high else last)
        start = about - length * (about - first) / (last - first)
        return StepRange(start, start + length)._within(low, high)

    def moved(self, direction: int, low: float, high: float) -> StepRange:
        """Half of its length to the left (-1) or to the right (1); it stops at the ends of the run."""
        first, last = self._closed(low, high)
        if last - first >= high - low:
            return self
        by = direction * (last - first) / 2
        return StepRange(first + by, last + by)._within(low, high)

    def _closed(self, low: float, high: float) -> tuple[float, float]:
        first, last = self.ends(low, high)
        return low if first is None else first, high if last is None else last

    def _within(self, low: float, high: float) -> StepRange:
        """The same length inside [low, high]; at the end of the run it follows the run."""
        assert self.first is not None and self.last is not None
        length = self.last - self.first
        first = min(max(self.first, low), high - length)
        return StepRange(first, None if first + length >= high else first + length)


def parse_range(text: str, low: float, high: float) -> StepRange:
    """The range that a user typed for a run with steps `low` to `high`. ValueError with one sentence."""
    typed = text.strip().lower()
    if typed in {"", "all", "-", "全部"}:
        return StepRange()
    if found := _LAST.match(typed):
        number, size, percent = found.groups()
        value = _value(number, size)
        if value <= 0:
            raise ValueError(tr("A range holds at least one step."))
        if percent:
            return StepRange(share=min(1.0, value / 100))
        return StepRange(length=value)
    if not (found := _SPAN.match(typed)):
        raise ValueError(tr(HOW_TO_TYPE))
    start, start_size, end, end_size = found.groups()
    first = None if start is None else _value(start, start_size)
    last = None if end is None else _value(end, end_size)
    if first is not None and first >= (high if last is None else last):
        if last is not None:
            raise ValueError(tr("The first step of a range lies before its last one."))
        known = {"low": f"{low:,.0f}", "high": f"{high:,.0f}"}
        raise ValueError(
            tr("The first step of a range lies before its last one; the run has steps {low} to {high}.", **known)
        )
    if last is not None and last <= low:
        raise ValueError(tr("There is nothing before step {step}.", step=f"{low:,.0f}"))
    if first is not None and first > high:
        raise ValueError(tr("There is nothing after step {step} yet.", step=f"{high:,.0f}"))
    return StepRange(first, last)


def _value(number: str, size: str | None) -> float:
    return float(re.sub("[,_']", "", number)) * _SIZES[size or ""]


# Plot: one metric over the steps, drawn with our own dots. Redrawn when data, size or theme change.


class Plot(Kept, Widget):
    """Shows a PlotData. `glyphs` says what the terminal can draw. A mouse points at a step or drags a range."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "plot--raw",
        "plot--line",
        "plot--point",
        "plot--bad",
        "plot--label",
        "plot--legend",
        "plot--cursor",
    }

    DEFAULT_CSS = """
    Plot { height: 1fr; width: 1fr; }
    Plot > .plot--raw { color: $muted 55%; }
    Plot > .plot--line { color: $accent; }
    Plot > .plot--point { color: $foreground; text-style: bold; }
    Plot > .plot--bad { color: $error; text-style: bold; }
    Plot > .plot--label { color: $muted; }
    Plot > .plot--legend { color: $muted; }
    Plot > .plot--cursor { color: $foreground; text-style: bold; }
    """

    class Pointed(Message):
        """A step was clicked."""

        def __init__(self, step: float) -> None:
            super().__init__()
            self.step = step

    class Dragged(Message):
        """A range of steps was marked with the mouse."""

        def __init__(self, first: float, last: float) -> None:
            super().__init__()
            self.first, self.last = first, last

    class Wheeled(Message):
        """The wheel was turned over a step; `factor` is how many times as many steps are wanted."""

        def __init__(self, step: float, factor: float) -> None:
            super().__init__()
            self.step, self.factor = step, factor

    def __init__(self, *, glyphs: Glyphs = BRAILLE, id: str | None = None) -> None:
        super().__init__(id=id)
        self._data = PlotData()
        self._glyphs = glyphs
        self._picture = Picture([])
        self._whole, self._drawn_data = self._picture, self._data
        """The newest picture that was drawn dot by dot, and what it shows."""
        self._drawn: Sequence[LineKey] = ()
        self._drag_from: float | None = None

    def show(self, data: PlotData) -> None:
        """Draw this from now on; what looks the same as before costs nothing."""
        if self._picture.rows and self._data.shows_the_same_as(data):
            return
        self._data = data
        grown = grown_picture(self._whole, self._drawn_data, data, self._glyphs.dots_across)
        if grown is None:
            self._draw()
        else:
            self._picture = grown
            self._drawn = refresh_lines(self, self._drawn, grown.rows)

    @property
    def picture(self) -> Picture:
        """What is drawn now, with the place of its steps."""
        return self._picture

    def rows(self) -> list[Row]:
        """What is drawn now, as runs of (text, role)."""
        return self._picture.rows

    def on_resize(self, event: Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        self._drawn_data = self._data
        self._whole = self._picture = draw_plot(self._data, self.size.width, self.size.height, self._glyphs)
        self._drawn = refresh_lines(self, self._drawn, self._picture.rows)

    def render_line(self, y: int) -> Strip:
        rows = self._picture.rows
        if y >= len(rows):
            return Strip.blank(self.size.width, self.rich_style)
        styles = {role: self.get_component_rich_style(f"plot--{role}") for role in {role for _, role in rows[y]}}
        strip = Strip([Segment(text, styles[role]) for text, role in rows[y]])
        width = self.size.width
        # The style of the widget is worked out for each question, and most lines need no filling.
        return strip if strip.cell_length == width else strip.adjust_cell_length(width, self.rich_style)

    # Mouse

    def on_mouse_down(self, event: MouseDown) -> None:
        self._drag_from = self._picture.step_at(event.x)
        if self._drag_from is not None:
            self.capture_mouse()

    def on_mouse_move(self, event: MouseMove) -> None:
        step = self._picture.step_at(event.x)
        if self._drag_from is None or step is None or step == self._drag_from:
            return
        self._picture = draw_plot(
            replace(self._data, uprights=(self._drag_from, step)), self.size.width, self.size.height, self._glyphs
        )
        self._drawn = refresh_lines(self, self._drawn, self._picture.rows)

    def on_mouse_up(self, event: MouseUp) -> None:
        start, self._drag_from = self._drag_from, None
        self.release_mouse()
        if start is None:
            return
        picture = self._picture
        end = picture.step_at(min(max(event.x, picture.gutter), picture.gutter + picture.columns - 1))
        self._draw()
        if end is None or end == start:
            self.post_message(self.Pointed(start))
        else:
            self.post_message(self.Dragged(min(start, end), max(start, end)))

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        self._wheel(event, 0.5)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        self._wheel(event, 2.0)

    def _wheel(self, event: MouseScrollUp | MouseScrollDown, factor: float) -> None:
        step = self._picture.step_at(event.x)
        if step is not None:
            event.stop()
            self.post_message(self.Wheeled(step, factor))
