"""What is painted anew: only the lines of a widget that read otherwise than before."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget

LineKey = Sequence[object]


def line_keys(content: Content) -> list[LineKey]:
    """One for each line, equal where two lines look alike; Content itself compares its text only."""
    return [(line.plain, *line.spans) for line in content.split("\n", allow_blank=True)]


def refresh_lines(widget: Widget, before: Sequence[LineKey], after: Sequence[LineKey]) -> Sequence[LineKey]:
    """Paint the lines that differ, all of them where there are more or fewer; returns what is drawn then.

    Textual paints a whole widget for every `refresh()`, which costs most of what a monitor takes. What
    is not on the screen is drawn when it comes there.
    """
    if not widget.is_on_screen:
        if before:
            widget.refresh()
        return ()
    if len(before) != len(after):
        widget.refresh()
        return after
    width = widget.content_size.width
    changed = [Region(0, y, width, 1) for y, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    if changed:
        widget.refresh(*changed)
    return after
