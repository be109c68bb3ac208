"""StepRail: the five steps, with a mark and a word for each and what was chosen beneath; or all in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import RenderResult
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from trainwiz.core.plain import plain_text
from trainwiz.tui.screens.plan_field_table import FIELDS
from trainwiz.tui.screens.plan_fields import DATA, HARDWARE, MODEL, STEPS, TRAINING
from trainwiz.tui.screens.plan_state import PlanState, field_problem
from trainwiz.tui.theme import Marks

if TYPE_CHECKING:
    from textual import events


def step_summary(state: PlanState, step: int) -> str:
    """What a step holds, in a few letters."""
    reading, plan = state.reading, state.plan
    if step == HARDWARE and reading.machine is not None:
        machine = plan.machine if plan is not None else reading.machine
        gpus = machine.visible_gpus
        if not gpus:
            return f"{machine.cpu_cores} cores" if machine.accelerator == "cpu" else machine.accelerator
        name = (gpus[0].catalogue_name or gpus[0].name or "GPU").removeprefix("NVIDIA ").removeprefix("GeForce ")
        return name if len(gpus) == 1 else f"{len(gpus)} x {name}"
    if plan is None:
        return ""
    if step == MODEL:
        return plan.model.name
    if step == DATA:
        return plan.config.data.sources[0].name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    if step == TRAINING and plan.time.steps is not None:
        return f"{plan.time.steps:,} steps"
    return ""


def rail_content(state: PlanState, width: int, marks: Marks, *, folded: bool) -> Content:
    """The rail as a column of `width` cells, or folded into one line."""
    cells: list[Content] = []
    for step, name in enumerate(STEPS):
        here = step == state.step
        done = step < state.reached and not here
        wrong = any(field_problem(state, spec) for spec in FIELDS if spec.step == step)
        mark = marks.here if here else marks.bad if wrong else marks.ok if done else " "
        style = "$accent" if here else "$foreground" if step <= state.reached else "$muted"
        mark_style = "$accent" if here else "$error" if wrong else "$success" if done else "$muted"
        if folded:
            # The number and the mark of every step; words as far as they fit.
            long = sum(len(word) + 4 for word in STEPS) <= width
            word = name if here or long else name[:3] if width >= 36 else ""
            cells.append(Content.assemble((mark if mark != " " else str(step + 1), mark_style), " ", (word, style)))
            continue
        cells.append(
            Content.assemble(
                (f" {step + 1} ", "$muted"), (mark, mark_style), " ", (name, f"{style} bold" if here else style)
            )
        )
        summary = plain_text(step_summary(state, step), max(3, width - 3))
        cells.append(Content.styled(f"   {summary}", "$muted"))
    return Content("  ").join(cells) if folded else Content("\n").join(cells)


class StepRail(Widget):
    """Draws `state`; a click on a visited step asks for it."""

    class Chosen(Message):
        """The step that was clicked."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    def __init__(self, marks: Marks, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._marks = marks
        self._state: PlanState | None = None

    def show(self, state: PlanState) -> None:
        self._state = state
        self.refresh()

    @property
    def folded(self) -> bool:
        return self.size.height <= 1

    def render(self) -> RenderResult:
        if self._state is None:
            return ""
        return rail_content(self._state, self.content_size.width, self._marks, folded=self.folded)

    def on_click(self, event: events.Click) -> None:
        if self.folded:
            position = event.x
            text = str(self.render())
            step = 0
            for index, piece in enumerate(text.split("  ")):
                position -= len(piece) + 2
                step = index
                if position < 0:
                    break
        else:
            step = event.y // 2
        if self._state is not None and step <= min(self._state.reached, len(STEPS) - 1):
            self.post_message(self.Chosen(step))
