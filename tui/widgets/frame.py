"""The frame of every screen: head line, steps, keys and help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from textual import on
from textual.app import ComposeResult, RenderResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.style import Style
from textual.widget import Widget
from textual.widgets import Input, Static
from trainwiz.core.errors import TrainwizError
from trainwiz.core.language import tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import KeyBinding, bindings, owner_of
from trainwiz.tui.plan_words import run_words
from trainwiz.tui.screens.plan_fields import DATA, FIELDS, HARDWARE, MODEL, STEPS, TRAINING
from trainwiz.tui.screens.plan_state import PlanState, field_problem
from trainwiz.tui.text import cells, cut, pad
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.lists import LinedWidget

if TYPE_CHECKING:
    from textual import events


class HeadLine(Widget):
    """Where one is, and at the right end what the plan came from and how much of it was changed."""

    DEFAULT_CSS = """
    HeadLine { height: 1; padding: 0 1; }
    """

    _state: PlanState | None = None

    def show(self, state: PlanState) -> None:
        before, self._state = self._state, state
        if before is None or (before.slow, before.request) != (state.slow, state.request):
            self.refresh()

    def render(self) -> RenderResult:
        state, dot = self._state, marks.dot
        left = Content.assemble(("trainwiz", "bold $accent"), (f" {dot} {tr('plan')}", "$muted"))
        if state is None:
            return left
        parts = [plain_text(state.request.profile or tr("no profile"), 40)]
        if state.changed:
            parts.append(trn("{n} value changed", "{n} values changed", state.changed))
        if state.slow:
            parts.insert(0, tr("updating"))
        right = f" {dot} ".join(parts)
        room = self.content_size.width - left.cell_length - 2
        if room < 4:
            return left
        right = cut(right, room, marks.ellipsis)
        gap = self.content_size.width - left.cell_length - cells(right)
        return Content.assemble(left, " " * max(1, gap), (right, "$muted"))


GAP = 3


def fitting_keys(rows: Sequence[KeyBinding], width: int) -> list[KeyBinding]:
    """The rows that fit into `width` cells, in their order; the highest ranks are left out first."""
    kept = [row for row in rows if row.rank < 9]
    while kept and sum(cells(row.shown_key) + 1 + cells(row.words) + GAP for row in kept) - GAP > width:
        worst = max(row.rank for row in kept)
        if worst == 0:
            break
        kept.remove([row for row in kept if row.rank == worst][-1])
    return kept


class KeyBar(Widget):
    """The keys that `rows` returns, redrawn by `refresh()` when they change. A click does what the key does."""

    def __init__(self, rows: Callable[[], Sequence[KeyBinding]]) -> None:
        super().__init__()
        self._rows = rows
        self._drawn: tuple[KeyBinding, ...] = ()

    def refresh_changed(self) -> None:
        if self._drawn != tuple(self._rows()):
            self.refresh()

    def render(self) -> RenderResult:
        parts: list[Content] = []
        self._drawn = tuple(self._rows())
        for row in fitting_keys(self._drawn, self.content_size.width):
            words = Content.assemble((row.shown_key, "$foreground"), f" {row.words}")
            parts.append(words.stylize(Style.from_meta({"@click": f"do_row({row.id!r})"})))
        return Content(" " * GAP).join(parts)

    async def action_do_row(self, row_id: str) -> None:
        row = next((row for row in self._rows() if row.id == row_id), None)
        if row is not None:
            await self.app.run_action(row.action, owner_of(row, self.screen, self.screen.focused))


Answer = TypeVar("Answer")


class Window(ModalScreen[Answer | None], Generic[Answer]):
    """Closing it answers None."""

    DEFAULT_CSS = """
    Window { align: center middle; background: $background 60%; }
    Window > Vertical, Window > VerticalScroll {
        max-width: 96%; height: auto; max-height: 90%; background: $surface; border: round $accent; padding: 0 1;
    }
    Window Static { height: auto; }
    Window Input { border: none; height: 1; padding: 0; background: $panel; margin: 0 0 1 0; }
    """

    def action_close(self) -> None:
        self.dismiss(None)


def entry_field(placeholder: str, longest: int) -> Input:
    """A field of one line, with a cursor that stands still: one that blinks draws twice a second."""
    entry = Input(placeholder=placeholder, max_length=longest, compact=True)
    entry.cursor_blink = False
    return entry


class EntryDialog(Window[Answer]):
    """Answers what `take` makes of the text; the sentence of what it raises stands below, and the text may be changed."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("list")]

    DEFAULT_CSS = """
    EntryDialog > Vertical { width: 76; }
    EntryDialog Input { margin: 1 0; }
    EntryDialog #said { color: $muted; }
    EntryDialog #said.-wrong { color: $error; }
    """

    def __init__(self, title: str, placeholder: str, hint: str, take: Callable[[str], Answer]) -> None:
        super().__init__()
        self._title, self._hint, self._take = title, hint, take
        self._entry = entry_field(placeholder, 80)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content.styled(self._title, "bold"), markup=False)
            yield self._entry
            yield Static(self._hint, id="said", markup=False)

    def _say(self, text: str, *, wrong: bool) -> None:
        self.query_one("#said", Static).set_class(wrong, "-wrong").update(
            Content(plain_text(text, 400) if wrong else text)
        )

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._say(self._hint, wrong=False)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        try:
            self.dismiss(self._take(event.value))
        except (ValueError, TrainwizError) as error:
            self._say(f"! {error}", wrong=True)

    def action_move(self, by: int) -> None:
        """There is no list to move in."""


def failure_words(error: BaseException) -> str:
    """What it says for people; of one that nobody foresaw that it is a mistake of trainwiz's own."""
    if isinstance(error, TrainwizError | OSError):
        return plain_text(error, 300)
    return plain_text(tr("Internal error in trainwiz: {kind}: {reason}.", kind=type(error).__name__, reason=error), 300)


KEY_WIDTH = 10


class HelpCard(Window[None]):
    """`parts` are (heading, text) pairs; `rows` are the keys to list: of several digits that do the same the first."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("dialog")]

    DEFAULT_CSS = """
    HelpCard > VerticalScroll { width: 84; }
    """

    def __init__(self, title: str, parts: Sequence[tuple[str, str]], rows: Sequence[KeyBinding]) -> None:
        super().__init__()
        self._title, self._parts = title, tuple(parts)
        # The first of several digits stands for all.
        self._rows = [row for row in rows if row.label or not row.key.isdecimal()]

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Content.styled(plain_text(self._title), "bold"), markup=False)
            for heading, text in self._parts:
                if text:
                    shown = "\n".join(plain_text(line) for line in text.splitlines())
                    yield Static(Content.assemble("\n", (heading, "$accent"), "\n", shown), markup=False)
            lines = [
                Content.assemble("  " + pad(row.shown_key, KEY_WIDTH), (row.sentence, "$muted")) for row in self._rows
            ]
            yield Static(Content.assemble("\n", (tr("Keys"), "$accent"), "\n", Content("\n").join(lines)), markup=False)


RAIL_GAP = "  "
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
    return frozenset(spec.step for spec in FIELDS if field_problem(state, spec))


def _mark(state: PlanState, step: int, wrong: frozenset[int]) -> tuple[str, str]:
    if step == state.step:
        return marks.here, "$accent"
    if step in wrong:
        return marks.bad, "$error"
    return (marks.ok, "$success") if step <= state.reached else (" ", "$muted")


def rail_lines(state: PlanState, wrong: frozenset[int], width: int) -> list[Content]:
    """The rail as a column of `width` cells, two lines for each step."""
    lines: list[Content] = []
    for step, name in enumerate(STEPS):
        here = step == state.step
        style = "$accent bold" if here else "$foreground" if step <= state.reached else "$muted"
        number = (f" {step + 1} ", "$muted")
        lines.append(Content.assemble(number, _mark(state, step, wrong), " ", (tr(name), style)))
        summary = cut(plain_text(step_summary(state, step)), max(3, width - 3), marks.ellipsis)
        lines.append(Content.styled(f"   {summary}", "$muted"))
    return lines


def folded_rail(state: PlanState, wrong: frozenset[int], width: int) -> list[Content]:
    """The steps side by side: number or mark, and words as far as they fit."""
    names = [tr(name) for name in STEPS]
    is_long = sum(cells(name) + 2 + len(RAIL_GAP) for name in names) - len(RAIL_GAP) <= width
    pieces: list[Content] = []
    for step, name in enumerate(names):
        here = step == state.step
        style = "$accent" if here else "$foreground" if step <= state.reached else "$muted"
        sign, colour = _mark(state, step, wrong)
        word = name if here or is_long else cut(name, SHORT, "") if width >= 36 else ""
        pieces.append(Content.assemble((sign.strip() or str(step + 1), colour), " ", (word, style)))
    return pieces


class StepRail(LinedWidget):
    """Draws `state`; a click on a visited step asks for it."""

    @dataclass
    class Chosen(Message):
        """The step that was clicked."""

        step: int

    _state: PlanState | None = None
    _wrong: frozenset[int] = frozenset()

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
            return [Content(RAIL_GAP).join(folded_rail(state, self._wrong, width))]
        return rail_lines(state, self._wrong, width)

    def on_click(self, event: events.Click) -> None:
        step = event.y // 2
        if self._state is not None and not self.folded and step <= min(self._state.reached, len(STEPS) - 1):
            self.post_message(self.Chosen(step))
