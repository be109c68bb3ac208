"""Plot: one metric over the steps, which of them it shows, and its cursor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from textual import on
from textual.events import Click, MouseScrollDown, MouseScrollUp, Resize
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from trainwiz.core.language import tr
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.canvas import choose_glyphs
from trainwiz.tui.widgets.drawing import Picture, PlotData, draw_plot
from trainwiz.tui.widgets.lists import LineKey, refresh_lines

ZOOM_SHARES = (1.0, 0.2, 0.04)
NARROWEST = 1e-6
"""Share of all steps below which a range is not narrowed further."""


@dataclass(frozen=True, slots=True)
class StepRange:
    """An end that is None is open: it follows the run. `share` counts from the last step."""

    first: float | None = None
    last: float | None = None
    share: float = 1.0
    """Only the newest share of all steps, where neither end is given."""

    def ends(self, low: float, high: float) -> tuple[float | None, float | None]:
        """The steps to draw of a run that has values from `low` to `high`; None leaves that end to the plot."""
        if self.first is not None or self.last is not None:
            return self.first, self.last
        return (None if self.share >= 1 else high - (high - low) * self.share), None

    def words(self) -> str:
        """What stands in the title; empty where all steps are shown."""
        first, last = ("" if end is None else f"{end:,.0f}" for end in (self.first, self.last))
        if first and last:
            return tr("steps {first} to {last}", first=first, last=last)
        if first or last:
            return tr("from step {step}", step=first) if first else tr("to step {step}", step=last)
        return "" if self.share == 1 else tr("last {share}", share=f"{self.share * 100:g}%")

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


REST = 300
"""So many times as long as a drawing takes no other one is made for new values: those of a long run take 10 ms."""
ROLES = ("raw", "line", "point", "bad", "label", "legend", "cursor")


class Plot(Widget):
    """Shows a PlotData. A mouse points at a step."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"plot--{role}" for role in ROLES}

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
        """A step was clicked, or the wheel turned over it: then `factor` times as many steps are wanted."""

        def __init__(self, step: float, factor: float = 1.0) -> None:
            super().__init__()
            self.step, self.factor = step, factor

    def __init__(self) -> None:
        super().__init__()
        self._data = PlotData()
        self._glyphs = choose_glyphs(marks.ascii_only)
        self.picture = Picture([])
        """What is drawn now, with the place of its steps."""
        self._drawn: Sequence[LineKey] = ()
        self._rests_until_s = 0.0

    def show(self, data: PlotData) -> None:
        """Draw this from now on; where nothing but the curves can be other, not more often than they are worth."""
        before = self._data
        if self.picture.rows and data[2:] == before[2:]:
            # Curves are compared by identity: that is cheap.
            is_same = data.curve is before.curve and data.points is before.points
            if is_same or time.monotonic() < self._rests_until_s:
                return
        self._data = data
        began_s = time.thread_time()
        self._draw(data)
        self._rests_until_s = time.monotonic() + REST * (time.thread_time() - began_s)

    def on_resize(self, event: Resize) -> None:
        self._draw(self._data)

    def _draw(self, data: PlotData) -> None:
        self.picture = draw_plot(data, self.size.width, self.size.height, self._glyphs)
        self._drawn = refresh_lines(self, self._drawn, self.picture.rows)

    def render_line(self, y: int) -> Strip:
        rows, width = self.picture.rows, self.size.width
        if y >= len(rows):
            return Strip.blank(width, self.rich_style)
        strip = Strip([Segment(text, self.get_component_rich_style(f"plot--{role}")) for text, role in rows[y]])
        # The style of the widget is worked out for each question, and most lines need no filling.
        return strip if strip.cell_length == width else strip.adjust_cell_length(width, self.rich_style)

    # Mouse

    def on_click(self, event: Click) -> None:
        if (step := self.picture.step_at(event.x)) is not None:
            self.post_message(self.Pointed(step))

    @on(MouseScrollUp)
    @on(MouseScrollDown)
    def _wheel(self, event: MouseScrollUp | MouseScrollDown) -> None:
        if (step := self.picture.step_at(event.x)) is not None:
            event.stop()
            self.post_message(self.Pointed(step, 0.5 if isinstance(event, MouseScrollUp) else 2.0))
