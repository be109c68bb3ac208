"""Meters: lines of a panel made of a label, a small chart and a right-aligned value."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from trainwiz.tui.cells import pad
from trainwiz.tui.theme import UNICODE_MARKS, Marks

LABEL_WIDTH = 9
UNICODE_LEVELS = "▁▂▃▄▅▆▇█"
ASCII_LEVELS = "_.:-=+*#"


def spark(values: Sequence[float | None], width: int, highest: float, marks: Marks) -> str:
    """The newest `width` values as levels between 0 and `highest`; a value that is not known is a blank."""
    levels = UNICODE_LEVELS if marks == UNICODE_MARKS else ASCII_LEVELS
    newest = list(values)[-width:] if width > 0 else []
    top = len(levels) - 1
    return "".join(
        " " if value is None else levels[max(0, min(top, round(value / highest * top) if highest > 0 else 0))]
        for value in newest
    )


def bar(share: float, width: int, marks: Marks, planned: float | None = None, style: str = "$accent") -> Content:
    """A bar of `width` cells, `share` of it full, with a stroke where the plan expected it to end."""
    filled = max(0, min(width, round(share * width)))
    cells = [(marks.full, style)] * filled + [(marks.empty, "$track")] * (width - filled)
    if planned is not None and width > 0 and 0 <= planned <= 1:
        place = min(width - 1, round(planned * width))
        cells[place] = ("│" if marks == UNICODE_MARKS else "|", "$foreground")
    return Content.assemble(*_runs(cells))


def thin_bar(share: float, width: int, marks: Marks, style: str = "$accent") -> Content:
    """A line of `width` cells, `share` of it heavy; told apart without colours too."""
    heavy, light = ("━", "─") if marks == UNICODE_MARKS else ("=", "-")
    filled = max(0, min(width, round(share * width)))
    return Content.assemble((heavy * filled, style), (light * (width - filled), "$track"))


def _runs(cells: list[tuple[str, str]]) -> list[tuple[str, str]]:
    runs: list[tuple[str, str]] = []
    for character, style in cells:
        if runs and runs[-1][1] == style:
            runs[-1] = (runs[-1][0] + character, style)
        else:
            runs.append((character, style))
    return runs


def meter(label: str, chart: Content, value: Content, width: int) -> Content:
    """One line: label, chart, and the value at the right end; the chart gives way first."""
    room = width - LABEL_WIDTH - value.cell_length - 1
    shown = chart.truncate(max(0, room)).pad_right(max(0, room - chart.cell_length))
    return Content.assemble((pad(label, LABEL_WIDTH), "$muted"), shown, " ", value)


def spark_meter(
    label: str,
    values: Sequence[float | None],
    highest: float,
    value: Content,
    width: int,
    marks: Marks,
    value_width: int = 0,
) -> Content:
    """A meter with the recent past as its chart."""
    padded = value.pad_left(max(0, value_width - value.cell_length))
    room = max(0, width - LABEL_WIDTH - padded.cell_length - 2)
    return meter(label, Content.styled(spark(values, room, highest, marks).rjust(room), "$accent 75%"), padded, width)


def bar_meter(
    label: str,
    share: float | None,
    value: Content,
    width: int,
    marks: Marks,
    planned: float | None = None,
    value_width: int = 0,
) -> Content:
    """A meter with a bar; without a share it has only its value."""
    padded = value.pad_left(max(0, value_width - value.cell_length))
    room = max(0, width - LABEL_WIDTH - padded.cell_length - 2)
    chart = Content() if share is None else bar(share, room, marks, planned)
    return meter(label, chart, padded, width)


def spread(left: Content, right: Content, width: int) -> Content:
    """`left` and `right` at the two ends of a line; the right one gives way when both do not fit."""
    gap = width - left.cell_length - right.cell_length
    if gap < 2:
        return left.truncate(width, ellipsis=True)
    return Content.assemble(left, " " * gap, right)


def join_fitting(parts: Sequence[Content], width: int, gap: int = 3) -> Content:
    """As many of `parts` as fit into `width`, in their order."""
    line = Content()
    for part in parts:
        wanted = part if not line else Content.assemble(line, " " * gap, part)
        if wanted.cell_length > width:
            break
        line = wanted
    return line if line or not parts else parts[0].truncate(width, ellipsis=True)
