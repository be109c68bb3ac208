"""StepRail: the five steps, with a mark and a word for each and what was chosen beneath; or all in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from textual.message import Message
from trainwiz.core.language import tr, trn
from trainwiz.core.plain import plain_text
from trainwiz.tui.cells import cells, cut
from trainwiz.tui.plan_words import run_words
from trainwiz.tui.screens.plan_fields import DATA, HARDWARE, MODEL, STEPS, TRAINING
from trainwiz.tui.screens.plan_state import PlanState, field_problem
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.repaint import LinedWidget

if TYPE_CHECKING:
    from textual import events

GAP = "  "
SHORT = 3
"""Cells of a step's name where there is no room for all of them."""


def step_summary(state: PlanState, step: int) -> str:
    """What a step holds, in a few letters."""
    reading, plan = state.reading, state.plan
    if step == HARDWARE and reading.machine is not None:
        machine = plan.machine if plan is not None else reading.machine
        gpus = machine.visible_gpus
        if not gpus:
            cores = trn("{n} core", "{n} cores", machine.cpu_cores)
            return cores if machine.accelerator == "cpu" else machine.accelerator
        name = (gpus[0].catalogue_name or gpus[0].name or "GPU").removeprefix("NVIDIA ").removeprefix("GeForce ")
        return name if len(gpus) == 1 else f"{len(gpus)} x {name}"
    if plan is None:
        return ""
    if step == MODEL:
        return plan.model.name
    if step == DATA:
        return plan.config.data.sources[0].name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    if step == TRAINING and plan.time.steps is not None:
        return run_words(plan)[0]
    return ""


def wrong_steps(state: PlanState) -> frozenset[int]:
    """The steps with a value that cannot stay as it is."""
    if state.plan is None and not state.invalid and not state.reading.findings:
        # Nothing was planned yet, and the first frame need not wait for the tables of all fields.
        return frozenset()
    from trainwiz.tui.screens.plan_field_table import FIELDS

    return frozenset(spec.step for spec in FIELDS if field_problem(state, spec))


def _mark(state: PlanState, step: int, wrong: frozenset[int], marks: Marks) -> tuple[str, str]:
    """The mark of a step and its colour."""
    if step == state.step:
        return marks.here, "$accent"
    if step in wrong:
        return marks.bad, "$error"
    return (marks.ok, "$success") if step <= state.reached else (" ", "$muted")


def rail_lines(state: PlanState, wrong: frozenset[int], width: int, marks: Marks) -> list[Content]:
    """The rail as a column of `width` cells, two lines for each step."""
    lines: list[Content] = []
    for step, name in enumerate(STEPS):
        here = step == state.step
        style = "$accent bold" if here else "$foreground" if step <= state.reached else "$muted"
        number = (f" {step + 1} ", "$muted")
        lines.append(Content.assemble(number, _mark(state, step, wrong, marks), " ", (tr(name), style)))
        summary = cut(plain_text(step_summary(state, step)), max(3, width - 3), marks.ellipsis)
        lines.append(Content.styled(f"   {summary}", "$muted"))
    return lines


def folded_rail(state: PlanState, wrong: frozenset[int], width: int, marks: Marks) -> list[Content]:
    """The steps side by side: number or mark, and words as far as they fit."""
    names = [tr(name) for name in STEPS]
    is_long = sum(cells(name) + 2 + len(GAP) for name in names) - len(GAP) <= width
    pieces: list[Content] = []
    for step, name in enumerate(names):
        here = step == state.step
        style = "$accent" if here else "$foreground" if step <= state.reached else "$muted"
        sign, colour = _mark(state, step, wrong, marks)
        word = name if here or is_long else cut(name, SHORT, "") if width >= 36 else ""
        pieces.append(Content.assemble((sign.strip() or str(step + 1), colour), " ", (word, style)))
    return pieces


class StepRail(LinedWidget):
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
        self._wrong: frozenset[int] = frozenset()

    def show(self, state: PlanState) -> None:
        before, self._state = self._state, state
        if before is None or before.reading is not state.reading or before.invalid is not state.invalid:
            self._wrong = wrong_steps(state)
        self.refresh_changed()

    @property
    def folded(self) -> bool:
        return self.size.height <= 1

    def content_lines(self) -> list[Content]:
        state, width = self._state, self.content_size.width
        if state is None:
            return []
        if self.folded:
            return [Content(GAP).join(folded_rail(state, self._wrong, width, self._marks))]
        return rail_lines(state, self._wrong, width, self._marks)

    def on_click(self, event: events.Click) -> None:
        if self._state is None:
            return
        step = event.y // 2
        if self.folded:
            pieces = folded_rail(self._state, self._wrong, self.content_size.width, self._marks)
            ends = [sum(piece.cell_length + len(GAP) for piece in pieces[: place + 1]) for place in range(len(pieces))]
            step = next((place for place, end in enumerate(ends) if event.x < end), len(STEPS))
        if step <= min(self._state.reached, len(STEPS) - 1):
            self.post_message(self.Chosen(step))
