"""Plot: one metric over the steps, drawn with our own dots. Redrawn when data, size or theme change."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual.events import Resize
from textual.strip import Strip
from textual.widget import Widget
from trainwiz.tui.widgets.canvas import BRAILLE, Glyphs
from trainwiz.tui.widgets.drawing import PlotData, Row, draw_curve


class Plot(Widget):
    """Shows a PlotData. `glyphs` says what the terminal can draw."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "plot--raw",
        "plot--line",
        "plot--point",
        "plot--bad",
        "plot--label",
        "plot--legend",
    }

    DEFAULT_CSS = """
    Plot { height: 1fr; width: 1fr; }
    Plot > .plot--raw { color: $muted 55%; }
    Plot > .plot--line { color: $accent; }
    Plot > .plot--point { color: $foreground; text-style: bold; }
    Plot > .plot--bad { color: $error; text-style: bold; }
    Plot > .plot--label { color: $muted; }
    Plot > .plot--legend { color: $muted; }
    """

    def __init__(self, *, glyphs: Glyphs = BRAILLE, id: str | None = None) -> None:
        super().__init__(id=id)
        self._data = PlotData()
        self._glyphs = glyphs
        self._rows: list[Row] = []

    def show(self, data: PlotData) -> None:
        """Draw this from now on."""
        self._data = data
        self._draw()

    def rows(self) -> list[Row]:
        """What is drawn now, as runs of (text, role)."""
        return self._rows

    def on_resize(self, event: Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        self._rows = draw_curve(self._data, self.size.width, self.size.height, self._glyphs)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        if y >= len(self._rows):
            return Strip.blank(self.size.width, self.rich_style)
        styles = {role: self.get_component_rich_style(f"plot--{role}") for role in {role for _, role in self._rows[y]}}
        return Strip([Segment(text, styles[role]) for text, role in self._rows[y]]).adjust_cell_length(
            self.size.width, self.rich_style
        )
