"""LengthHistogram: how long the rows are, where they are cut, and what is lost and padded there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

from textual.app import RenderResult
from textual.content import Content
from textual.geometry import Size
from trainwiz.core.language import tr
from trainwiz.tui.text import cells, count, cut, percent
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.step_form import StepPart

if TYPE_CHECKING:
    from trainwiz.core.plan.rows import Lengths
    from trainwiz.tui.screens.plan_state import PlanState


# Lengths of rows as bars with a mark at the longest that is kept. Pure: numbers in, lines of text out.

EIGHTHS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Bars:
    """Rows counted by their length. Column i holds lengths from i x `span` to (i + 1) x `span` tokens."""

    counts: tuple[int, ...]
    span: float
    """Tokens of a column."""
    limit_column: int
    """Where the longest kept length lies; as many as there are columns where it lies beyond them."""
    has_longer: bool
    """Some rows are longer than the last column; they are counted in it."""

    @property
    def top(self) -> int:
        """Tokens at the right edge."""
        return round(self.span * len(self.counts))


def count_bars(ordered: Sequence[int], limit: int, columns: int) -> Bars:
    """`ordered`: lengths in tokens, shortest first, not empty. The far end of a long tail goes into the last column."""
    usual = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    # The limit stays on the picture, with a little room behind it, unless that makes dust of the rows before it.
    top = max(usual, min(limit * 1.1, usual * 3), columns / 4, 1)
    # Few lengths have as many columns each, so that none falls between two.
    span = top / columns if top >= columns else 1 / (columns // ceil(top))
    # The rows below the right edge of each column but the last, which has no edge.
    below = [0, *(bisect_left(ordered, span * (place + 1)) for place in range(columns - 1)), len(ordered)]
    counts = [high - low for low, high in pairwise(below)]
    return Bars(tuple(counts), span, min(columns, int(limit / span)), ordered[-1] > span * columns)


def bar_rows(bars: Bars, height: int) -> list[str]:
    """`height` lines, the highest first: rows for each length that a column holds. One with any row shows something."""
    # A column of two lengths beside one of a single length would look like twice the rows.
    edges = [ceil(bars.span * place) for place in range(len(bars.counts) + 1)]
    means = [count / max(1, high - low) for count, (low, high) in zip(bars.counts, pairwise(edges), strict=True)]
    most = max(means)
    eighths = [0 if not mean else max(1, round(mean / most * 8 * height)) for mean in means]
    return [
        "".join(EIGHTHS[max(0, min(8, column - 8 * (height - 1 - line)))] for column in eighths)
        for line in range(height)
    ]


# LengthHistogram: how long the rows are, where they are cut, and what is lost and padded there.

INDENT = 4
MOST_COLUMNS, LEAST_COLUMNS = 72, 12
TALL, SHORT = 4, 1
"""Lines of the bars. Where there is room for one only, the words say what is cut and no more."""


class LengthHistogram(StepPart):
    """Beneath the longest input."""

    DEFAULT_CSS = """
    LengthHistogram { height: auto; }
    """

    def __init__(self, step: int, marks: Marks) -> None:
        super().__init__(step, marks)
        self._shown: tuple[object, ...] = ()
        self._state: PlanState | None = None

    def show(self, state: PlanState) -> None:
        self._state = state
        plan = state.plan
        now = (state.reading.data, plan.batch if plan is not None else None, state.slow)
        if now != self._shown:
            self._shown = now
            self.display = bool(self._lines(60))
            self.redraw()

    def _content(self, state: PlanState, width: int, height: int) -> Iterator[Content]:
        yield from input_lines(state, width, height, self.marks)

    def _lines(self, width: int) -> list[Content]:
        if self._state is None or self._state.reading.data is None or self._state.plan is None:
            return []
        small = any(self.screen.has_class(name) for name in ("-short", "-low", "-slim"))
        return list(self._content(self._state, width, SHORT if small else TALL))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> RenderResult:
        return Content("\n").join(self._lines(self.content_size.width))


class TargetHistogram(LengthHistogram):
    """Beneath the longest target; nothing where rows have no targets."""

    def _content(self, state: PlanState, width: int, height: int) -> Iterator[Content]:
        yield from target_lines(state, width, height, self.marks)


def input_lines(state: PlanState, width: int, height: int, marks: Marks) -> Iterator[Content]:
    """The picture of the inputs, and in words what the chosen length does to them."""
    from trainwiz.core.data.lengths import joins_texts
    from trainwiz.core.plan.rows import lengths_of

    data, plan = state.reading.data, state.plan
    assert data is not None and plan is not None
    limit = plan.batch.sequence_length
    if joins_texts(plan.config):
        sentence = tr(
            "Texts are joined into sequences of {length} tokens: nothing is cut, nothing is padded.",
            length=count(limit),
        )
        yield from _wrapped(sentence, width)
        return
    lengths = lengths_of(data.lengths)
    if lengths is None:
        return
    yield from _picture(lengths, limit, width, height, marks)
    yield from _wrapped(_cut(lengths, limit), width)
    if height == SHORT:
        return
    yield from _wrapped(_usual(lengths, estimated=data.length_unit != "tokens"), width)
    waste, arranged, drawn = plan.batch.padding_waste, plan.batch.arranged_waste, plan.batch.drawn_waste
    if waste is not None:
        text = tr("{share} of what is computed is padding.", share=percent(waste))
        if arranged is not None and waste - arranged > 0.005:
            text = tr(
                "{share} of what is computed is padding; {arranged} where rows of like length go together.",
                share=percent(waste),
                arranged=percent(arranged),
            )
        elif drawn is not None and drawn - waste > 0.005:
            text = tr(
                "{share} of what is computed is padding; {drawn} if rows of like length did not go together.",
                share=percent(waste),
                drawn=percent(drawn),
            )
        yield from _wrapped(text, width)


def target_lines(state: PlanState, width: int, height: int, marks: Marks) -> Iterator[Content]:
    """The same for targets, which are padded with their inputs."""
    from trainwiz.core.plan.rows import lengths_of

    data, plan = state.reading.data, state.plan
    assert data is not None and plan is not None
    lengths, limit = lengths_of(data.target_lengths), plan.config.batch.target_length
    if lengths is None or plan.task != "seq2seq":
        return
    limit = limit or plan.batch.sequence_length
    yield from _picture(lengths, limit, width, height, marks)
    yield from _wrapped(_cut(lengths, limit), width)
    if height > SHORT:
        yield from _wrapped(_usual(lengths, estimated=data.length_unit != "tokens"), width)


def _usual(lengths: Lengths, *, estimated: bool) -> str:
    middle, most, longest = (
        count(number) for number in (lengths.quantile(1, 2), lengths.quantile(95, 100), lengths.longest)
    )
    if estimated:
        return tr(
            "Half of the rows have up to about {middle} tokens, 95 % up to {most}, the longest {longest}; "
            "estimated from bytes.",
            middle=middle, most=most, longest=longest,
        )  # fmt: skip
    return tr(
        "Half of the rows have up to {middle} tokens, 95 % up to {most}, the longest {longest}.",
        middle=middle, most=most, longest=longest,
    )  # fmt: skip


def _cut(lengths: Lengths, limit: int) -> str:
    share = lengths.share_above(limit)
    if share <= 0:
        return tr("No row is cut at {limit} tokens.", limit=count(limit))
    whole = lengths.mean_up_to(lengths.longest)
    lost = 1 - lengths.mean_up_to(limit) / whole if whole else 0.0
    return tr(
        "{share} of the rows are cut at {limit} tokens; {lost} of all tokens are never seen.",
        share=percent(share), limit=count(limit), lost=percent(lost),
    )  # fmt: skip


def _picture(lengths: Lengths, limit: int, width: int, height: int, marks: Marks) -> Iterator[Content]:
    columns = min(MOST_COLUMNS, width - INDENT - 2)
    if columns < LEAST_COLUMNS:
        return
    bars = count_bars(lengths.ordered, limit, columns)
    place = bars.limit_column
    for line in bar_rows(bars, height):
        kept, mark, cut_off = line[:place], line[place : place + 1], line[place + 1 :]
        # What is cut is told by the mark and its word; the colour only repeats it.
        mark = marks.bar if mark == " " else mark
        yield Content.assemble(" " * INDENT, (kept, "$foreground"), (mark, "$accent"), (cut_off, "$warning"))
    yield Content.styled(" " * INDENT + axis_text(bars, limit), "$muted")


def axis_text(bars: Bars, limit: int) -> str:
    """0 at the left, the limit under its column, the longest at the right, as far as they do not meet."""
    columns = len(bars.counts)
    end = count(bars.top) + ("+" if bars.has_longer else "")
    if bars.limit_column >= columns:
        here = tr("cut at {n} →", n=count(limit))
        start = max(0, columns - cells(here))
    elif bars.limit_column < columns // 2:
        here = tr("▲ cut at {n}", n=count(limit))
        start = max(0, min(bars.limit_column, columns - cells(here)))
    else:
        here = tr("cut at {n} ▲", n=count(limit))
        start = max(0, bars.limit_column + 1 - cells(here))
    line = ("0" + " " * (start - 1) if start > 1 else " " * start) + here
    free = columns - cells(line) - cells(end)
    if free >= 2:
        line += " " * free + end
    return cut(line, columns, "")


def _wrapped(text: str, width: int) -> Iterator[Content]:
    for line in Content(text).wrap(max(10, width - INDENT - 1)):
        yield Content.styled(" " * INDENT + line.plain.rstrip(), "$muted")
