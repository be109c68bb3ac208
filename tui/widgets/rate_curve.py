"""RateCurve: the learning rate over the run, in one sentence and as a small curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import RenderResult
from textual.content import Content
from textual.geometry import Size
from trainwiz.core.language import tr
from trainwiz.tui.text import count, number, value_label
from trainwiz.tui.theme import UNICODE_MARKS, Marks
from trainwiz.tui.widgets.canvas import DotCanvas, Glyphs, Scale, choose_glyphs
from trainwiz.tui.widgets.drawing import Row
from trainwiz.tui.widgets.field_row import wrap
from trainwiz.tui.widgets.step_form import StepPart

if TYPE_CHECKING:
    from trainwiz.core.export.training_arguments import RateSchedule
    from trainwiz.core.plan.result import Plan
    from trainwiz.tui.screens.plan_state import PlanState


# rate_picture: the learning rate over the steps as rows of coloured text. Pure: no terminal.

LEAST_GAP = 2
"""Cells between two labels below the curve."""


def curve_rows(schedule: RateSchedule, columns: int, rows: int, glyphs: Glyphs) -> list[Row]:
    """The curve alone, one value for each column of dots, from 0 at the bottom to the highest rate at the top."""
    canvas = DotCanvas(columns, rows, glyphs)
    scale = Scale(0.0, schedule.highest or 1.0)
    # The last step that is taken has the rate of all the steps before it being done.
    reach = schedule.steps - 1
    before: int | None = None
    for x in range(canvas.width):
        rate = schedule.at(round(reach * x / max(1, canvas.width - 1)))
        y = scale.row(rate, canvas.height)
        top, bottom = (y, y) if before is None else (min(y, before), max(y, before))
        canvas.line(x, top, bottom)
        before = y
    return [list(canvas.row(row)) for row in range(rows)]


def rate_picture(schedule: RateSchedule, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """`height` rows of `width` cells: rates at the left, the steps of warm-up and end below. Needs 24 x 3 cells."""
    rows = height - 1
    labels = {0: value_label(schedule.highest), rows - 1: "0"}
    gutter = max(map(len, labels.values())) + 1
    columns = width - gutter
    picture: list[Row] = []
    for row, curve in enumerate(curve_rows(schedule, columns, rows, glyphs)):
        picture.append([(labels.get(row, "").rjust(gutter - 1) + " ", "label"), *curve])
    picture.append([(" " * gutter + _step_line(schedule, columns), "label")])
    return picture


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


# RateCurve: the learning rate over the run, in one sentence and as a small curve.

INDENT = 4
CURVE_HEIGHT = 6
WIDEST_CURVE = 60
SMALL_CURVE = 8
"""Cells of the curve where there is one line for it."""
LEAST_CURVE = 24


class RateCurve(StepPart):
    """What the training will do, not what was typed: drawn of the plan's resolved config."""

    DEFAULT_CSS = """
    RateCurve { height: auto; }
    """

    def __init__(self, step: int, marks: Marks) -> None:
        super().__init__(step, marks)
        self._glyphs = choose_glyphs(marks != UNICODE_MARKS)
        self._schedule: RateSchedule | None = None
        self._words = ""
        self._old = False

    def show(self, state: PlanState) -> None:
        plan = state.plan
        schedule = schedule_of(plan) if plan is not None else None
        words = rate_words(plan, schedule) if plan is not None else ""
        if (schedule, words, state.slow) != (self._schedule, self._words, self._old):
            self._schedule, self._words, self._old = schedule, words, state.slow
            self.redraw()

    def _lines(self, width: int) -> list[Content]:
        folded = any(self.screen.has_class(name) for name in ("-low", "-short", "-slim"))
        style = "$muted" if self._old else "$accent"
        return rate_lines(self._schedule, self._words, width, self._glyphs, folded=folded, style=style)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> RenderResult:
        return Content("\n").join(self._lines(self.content_size.width))


def schedule_of(plan: Plan) -> RateSchedule | None:
    """The schedule of a plan; None where its steps are not known."""
    from trainwiz.core.export.training_arguments import rate_schedule

    steps = plan.time.steps or plan.config.training.max_steps
    return rate_schedule(plan.config, steps) if steps else None


def rate_lines(
    schedule: RateSchedule | None, words: str, width: int, glyphs: Glyphs, *, folded: bool, style: str
) -> list[Content]:
    """The sentence and the curve; `folded` puts a curve of one line before the sentence."""
    margin = " " * INDENT
    room = width - INDENT - 1
    if schedule is None or room < LEAST_CURVE:
        return [Content.styled(margin + line, "$muted") for line in wrap(words, room)]
    styles = {"line": style, "label": "$muted"}
    if folded:
        curve = curve_rows(schedule, SMALL_CURVE, 1, glyphs)[0]
        first, *rest = wrap(words, room - SMALL_CURVE - 2)
        head = Content.assemble(
            margin, *((text, styles.get(role, "")) for text, role in curve), ("  " + first, "$muted")
        )
        return [head, *(Content.styled(margin + " " * (SMALL_CURVE + 2) + line, "$muted") for line in rest)]
    lines = [Content.styled(margin + line, "$muted") for line in wrap(words, room)]
    picture = rate_picture(schedule, min(room, WIDEST_CURVE), CURVE_HEIGHT, glyphs)
    return [
        *lines,
        *(Content.assemble(margin, *((text, styles.get(role, "")) for text, role in row)) for row in picture),
    ]


def rate_words(plan: Plan, schedule: RateSchedule | None) -> str:
    """What the rate does, in one sentence; a second one where a DeepSpeed file could change it."""
    if schedule is None:
        return tr("The number of steps is not known yet, and with it the curve of the learning rate.")
    words = _shape_words(schedule, _steps_words(plan, schedule.steps))
    if plan.config.engine.deepspeed_file is None:
        return words
    return f"{words} {tr('A scheduler in your DeepSpeed file takes its place.')}"


def _steps_words(plan: Plan, steps: int) -> str:
    # Without a fixed number the Trainer counts the steps of its epochs itself.
    return count(steps) if plan.config.training.max_steps is not None else tr("about {n}", n=count(steps))


def _shape_words(schedule: RateSchedule, steps: str) -> str:
    peak, last = number(schedule.peak), number(schedule.last)
    warmup = count(schedule.warmup_steps)
    warms_up = schedule.warmup_steps > 0 and schedule.kind != "constant"
    if warms_up and schedule.warmup_steps >= schedule.steps:
        highest = number(float(f"{schedule.highest:.4g}"))
        return tr("The warm-up is the whole run: up to {peak} in {steps} steps.", peak=highest, steps=steps)
    if schedule.kind.startswith("constant"):
        if warms_up:
            return tr("Up to {peak} in {warmup} steps, and so to step {steps}.", peak=peak, warmup=warmup, steps=steps)
        return tr("{peak} from the first step to step {steps}.", peak=peak, steps=steps)
    if schedule.kind.startswith("cosine"):
        if warms_up:
            return tr(
                "Up to {peak} in {warmup} steps, then down to {last} at step {steps} in half a wave.",
                peak=peak,
                warmup=warmup,
                last=last,
                steps=steps,
            )
        return tr("From {peak} down to {last} at step {steps} in half a wave.", peak=peak, last=last, steps=steps)
    if warms_up:
        return tr(
            "Up to {peak} in {warmup} steps, then straight down to {last} at step {steps}.",
            peak=peak,
            warmup=warmup,
            last=last,
            steps=steps,
        )
    return tr("From {peak} straight down to {last} at step {steps}.", peak=peak, last=last, steps=steps)
