"""Charts of the wizard: the learning rate over the steps, and how long the rows are."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.language import mark, tr
from trainwiz.tui.text import cells, count, cut, number, percent, value_label
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.canvas import DotCanvas, Glyphs, Scale, choose_glyphs
from trainwiz.tui.widgets.drawing import Row
from trainwiz.tui.widgets.lists import indented

if TYPE_CHECKING:
    from trainwiz.core.data.summary import DataSummary
    from trainwiz.core.export.training_arguments import RateSchedule
    from trainwiz.core.plan.result import Plan
    from trainwiz.core.plan.rows import Lengths
    from trainwiz.tui.screens.plan_state import PlanState

LEAST_GAP = 2
"""Cells between two labels below the curve."""


def rate_picture(schedule: RateSchedule, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """`height` rows of `width` cells: from 0 to the highest rate, the steps of warm-up and end below. Needs 24 x 3 cells."""
    rows, highest = height - 1, value_label(schedule.highest)
    gutter = len(highest) + 1
    canvas, scale = DotCanvas(width - gutter, rows, glyphs), Scale(0.0, schedule.highest or 1.0)
    # The last step that is taken has the rate of all the steps before it being done.
    reach, before = schedule.steps - 1, -1
    for x in range(canvas.width):
        y = scale.row(schedule.at(round(reach * x / max(1, canvas.width - 1))), canvas.height)
        before = y if before < 0 else before
        canvas.line(x, min(y, before), max(y, before))
        before = y
    labels = {0: highest, rows - 1: "0"}
    picture = [[(labels.get(row, "").rjust(gutter - 1) + " ", "label"), *canvas.row(row)] for row in range(rows)]
    return [*picture, [(" " * gutter + _step_line(schedule, canvas.columns), "label")]]


def _step_line(schedule: RateSchedule, columns: int) -> str:
    """0, the end of the warm-up and the last step, each beneath its place, as far as there is room."""
    line = [" "] * columns
    marks = [(0, 0), (schedule.steps, columns - 1)]
    if schedule.kind != "constant" and 0 < schedule.warmup_steps < schedule.steps:
        marks.append((schedule.warmup_steps, round(schedule.warmup_steps / schedule.steps * (columns - 1))))
    for step, place in marks:
        text = f"{step:,}"
        start = min(max(0, place - len(text) // 2), columns - len(text))
        if start >= 0 and all(cell == " " for cell in line[max(0, start - LEAST_GAP) : start + len(text) + LEAST_GAP]):
            line[start : start + len(text)] = text
    return "".join(line)


# The learning rate over the run, in one sentence and as a small curve.

INDENT = 4
CURVE_HEIGHT = 6
WIDEST_CURVE = 60
LEAST_CURVE = 24


def rate_curve(state: PlanState, width: int, is_small: bool) -> list[Content]:
    """What the training will do, not what was typed, in a sentence and, where there is room, drawn."""
    plan = state.plan
    if plan is None:
        return []
    schedule, room = schedule_of(plan), width - INDENT - 1
    lines = indented(rate_words(plan, schedule), width)
    if schedule is None or is_small or room < LEAST_CURVE:
        return lines
    styles = {"line": "$muted" if state.slow else "$accent", "label": "$muted"}
    for row in rate_picture(schedule, min(room, WIDEST_CURVE), CURVE_HEIGHT, choose_glyphs(marks.ascii_only)):
        lines.append(Content.assemble(" " * INDENT, *((text, styles.get(role, "")) for text, role in row)))
    return lines


def schedule_of(plan: Plan) -> RateSchedule | None:
    """The schedule of a plan; None where its steps are not known."""
    from trainwiz.core.export.training_arguments import rate_schedule

    steps = plan.time.steps or plan.config.training.max_steps
    return rate_schedule(plan.config, steps) if steps else None


def rate_words(plan: Plan, schedule: RateSchedule | None) -> str:
    """What the rate does, in one sentence; a second one where a DeepSpeed file could change it."""
    if schedule is None:
        return tr("The number of steps is not known yet, so there is no learning rate curve.")
    # Without a fixed number the Trainer counts the steps of its epochs itself.
    steps = count(schedule.steps)
    words = _shape_words(schedule, steps if plan.config.training.max_steps is not None else tr("about {n}", n=steps))
    if plan.config.engine.deepspeed_file is None:
        return words
    return f"{words} {tr('A scheduler in your DeepSpeed file replaces it.')}"


SHAPES = {
    ("constant", True): mark("Warmup to {peak} over {warmup} steps, then constant to step {steps}."),
    ("constant", False): mark("Constant {peak} from the first step to step {steps}."),
    ("cosine", True): mark("Warmup to {peak} over {warmup} steps, then cosine decay to {last} at step {steps}."),
    ("cosine", False): mark("Cosine decay from {peak} to {last} at step {steps}."),
    ("linear", True): mark("Warmup to {peak} over {warmup} steps, then linear decay to {last} at step {steps}."),
    ("linear", False): mark("Linear decay from {peak} to {last} at step {steps}."),
}
"""What a schedule does, with and without a warm-up; all others are drawn straight."""


def _shape_words(schedule: RateSchedule, steps: str) -> str:
    warms_up = schedule.warmup_steps > 0 and schedule.kind != "constant"
    if warms_up and schedule.warmup_steps >= schedule.steps:
        highest = number(float(f"{schedule.highest:.4g}"))
        return tr("Warmup lasts the whole run: up to {peak} in {steps} steps.", peak=highest, steps=steps)
    kind = next((kind for kind in ("constant", "cosine") if schedule.kind.startswith(kind)), "linear")
    peak, warmup, last = number(schedule.peak), count(schedule.warmup_steps), number(schedule.last)
    return tr(SHAPES[kind, warms_up], peak=peak, warmup=warmup, last=last, steps=steps)


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


# How long the rows are, where they are cut, and what is lost and padded there.

MOST_COLUMNS, LEAST_COLUMNS = 72, 12
TALL, SHORT = 4, 1
"""Lines of the bars. Where there is room for one only, the words say what is cut and no more."""


def input_lengths(state: PlanState, width: int, is_small: bool) -> Iterator[Content]:
    """The picture of the inputs, and in words what the chosen length does to them."""
    from trainwiz.core.data.lengths import joins_texts

    data, plan = state.reading.data, state.plan
    if data is None or plan is None:
        return
    limit, batch = plan.batch.sequence_length, plan.batch
    if joins_texts(plan.config):
        sentence = tr(
            "Texts are packed into sequences of {length} tokens, without truncation or padding.",
            length=count(limit),
        )
        yield from indented(sentence, width)
        return
    yield from _lengths(data.lengths, data, limit, width, is_small)
    waste = batch.padding_waste
    if not data.lengths or is_small or waste is None:
        return
    yield from indented(tr("{share} of the processed tokens are padding.", share=percent(waste)), width)


def target_lengths(state: PlanState, width: int, is_small: bool) -> Iterator[Content]:
    """The same for targets, which are padded with their inputs; nothing where rows have none."""
    data, plan = state.reading.data, state.plan
    if data is not None and plan is not None and plan.task == "seq2seq":
        limit = plan.config.batch.target_length or plan.batch.sequence_length
        yield from _lengths(data.target_lengths, data, limit, width, is_small)


def _lengths(rows: tuple[int, ...], data: DataSummary, limit: int, width: int, is_small: bool) -> Iterator[Content]:
    from trainwiz.core.plan.rows import lengths_of

    lengths = lengths_of(rows)
    if lengths is not None:
        yield from _picture(lengths, limit, width, SHORT if is_small else TALL)
        yield from indented(_cut(lengths, limit), width)
        if not is_small:
            yield from indented(_usual(lengths, estimated=data.length_unit != "tokens"), width)


def _usual(lengths: Lengths, *, estimated: bool) -> str:
    middle, most, longest = (
        count(number) for number in (lengths.quantile(1, 2), lengths.quantile(95, 100), lengths.longest)
    )
    if estimated:
        return tr(
            "Median about {middle} tokens per row, 95% of the rows up to {most}, the longest {longest}; estimated "
                "from bytes.",
            middle=middle, most=most, longest=longest,
        )  # fmt: skip
    return tr(
        "Median {middle} tokens per row, 95% of the rows up to {most}, the longest {longest}.",
        middle=middle, most=most, longest=longest,
    )  # fmt: skip


def _cut(lengths: Lengths, limit: int) -> str:
    share = lengths.share_above(limit)
    if share <= 0:
        return tr("No row exceeds {limit} tokens, so none is truncated.", limit=count(limit))
    whole = lengths.counts.mean(lengths.longest)
    lost = 1 - lengths.counts.mean(limit) / whole if whole else 0.0
    return tr(
        "{share} of the rows exceed {limit} tokens and are truncated; {lost} of all tokens are dropped.",
        share=percent(share), limit=count(limit), lost=percent(lost),
    )  # fmt: skip


def _picture(lengths: Lengths, limit: int, width: int, height: int) -> Iterator[Content]:
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
        here = tr("max {n} →", n=count(limit))
        start = max(0, columns - cells(here))
    elif bars.limit_column < columns // 2:
        here = tr("▲ max {n}", n=count(limit))
        start = max(0, min(bars.limit_column, columns - cells(here)))
    else:
        here = tr("max {n} ▲", n=count(limit))
        start = max(0, bars.limit_column + 1 - cells(here))
    line = ("0" + " " * (start - 1) if start > 1 else " " * start) + here
    free = columns - cells(line) - cells(end)
    if free >= 2:
        line += " " * free + end
    return cut(line, columns, "")
