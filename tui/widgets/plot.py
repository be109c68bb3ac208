"""Plot: one metric over the steps, drawn with our own dots. Redrawn when data, size or theme change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from rich.segment import Segment
from textual.events import MouseDown, MouseMove, MouseScrollDown, MouseScrollUp, MouseUp, Resize
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from trainwiz.tui.widgets.canvas import BRAILLE, Glyphs
from trainwiz.tui.widgets.drawing import Picture, PlotData, draw_plot
from trainwiz.tui.widgets.plot_growth import grown_picture
from trainwiz.tui.widgets.plot_labels import Row
from trainwiz.tui.widgets.repaint import Kept, LineKey, refresh_lines


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
