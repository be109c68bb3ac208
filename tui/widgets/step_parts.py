"""What a field or a step brings beside its rows: widgets of its own, dialogs, actions. One table for each.

Everything is named by "module:name" and imported when its step is first shown, so nothing here delays the first frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from textual import on
from textual.message import Message
from textual.widget import Widget
from textual.worker import Worker, WorkerState
from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text
from trainwiz.tui.screens.plan_fields import HARDWARE, MODEL, REVIEW
from trainwiz.tui.theme import Marks

if TYPE_CHECKING:
    from textual.screen import ModalScreen
    from trainwiz.core.plan.request import PlanRequest
    from trainwiz.tui.screens.plan_fields import FieldSpec
    from trainwiz.tui.screens.plan_state import PlanState

    Change = Callable[[PlanRequest], PlanRequest]
    """How a request becomes the next one; given to what the request is by then."""
    Answer = str | Change | None
    """What a dialog is dismissed with: a text as if it were typed into the field, a change, or nothing."""


class StepPart(Widget):
    """A widget of a step that draws a PlanState. Subclasses are made with (step, marks)."""

    DEFAULT_CSS = """
    StepPart { height: auto; width: 1fr; }
    """

    class Changed(Message):
        """The user chose something in the part: the screen plans for `change(request)`."""

        def __init__(self, change: Change) -> None:
            super().__init__()
            self.change = change

    class FieldSet(Message):
        """The user chose a text for a field: the same as typing it there."""

        def __init__(self, field_id: str, text: str) -> None:
            super().__init__()
            self.field_id = field_id
            self.text = text

    class FieldWanted(Message):
        """The user wants to see a field, on whichever step it is."""

        def __init__(self, field_id: str) -> None:
            super().__init__()
            self.field_id = field_id

    def __init__(self, step: int, marks: Marks, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.step = step
        self.marks = marks
        self._said = ""

    def show(self, state: PlanState) -> None:
        """Draw a state; called for every change while the step is on the screen. Must be quick."""

    def redraw(self) -> None:
        """Draw anew, for a part that draws itself. The screen is laid out only where the height changes: that costs most."""
        width, size = self.content_size.width, self.app.size
        is_as_high = width > 0 and self.get_content_height(size, size, width) == self.content_size.height
        self.refresh(layout=not is_as_high)

    def visit(self, shown: bool) -> None:
        """The step came onto the screen or left it: what polls begins and ends here."""

    def failed(self, sentence: str) -> None:
        """A worker of the part broke off. Said once: what polls would say it again and again."""
        if sentence != self._said:
            self._said = sentence
            self.app.notify(plain_text(sentence), severity="error", markup=False)

    @on(Worker.StateChanged)
    def _worker_failed(self, event: Worker.StateChanged) -> None:
        """These messages do not bubble: without this nobody would hear of a failure that nobody foresaw."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self.failed(unforeseen_words(event.worker.error))


def unforeseen_words(error: BaseException) -> str:
    """What is said of a failure that is a mistake of trainwiz's own."""
    return tr("trainwiz failed where it should not: {kind}: {reason}.", kind=type(error).__name__, reason=error)


class PartRow(Widget, can_focus=True):
    """A row of a part that takes the focus: space presses it, and help and reset are those of its field."""

    FOCUS_ON_CLICK = False
    """As of a FieldRow."""

    field_id = ""

    def press(self) -> None:
        """Space, or a click."""


@dataclass(frozen=True, slots=True)
class FieldAction:
    """A button beneath a field.

    `opens` names a function of (state, spec) that gives a dialog, the next request, or None where there is
    nothing to do. It runs in the loop of the screen: what is slow belongs into the dialog.
    """

    id: str
    label: str
    """Marked with `mark`; translated where it is drawn."""
    opens: str
    when: Callable[[PlanState], bool] | None = None
    """Whether the button is shown; None: always."""


FIELD_PARTS: Mapping[str, tuple[str, ...]] = {
    "final_learning_rate": ("trainwiz.tui.widgets.rate_curve:RateCurve",),
    "gpus": ("trainwiz.tui.widgets.gpu_choice:GpuChoice",),
    "data": ("trainwiz.tui.widgets.data_facts:DataFacts",),
    "target_column": ("trainwiz.tui.widgets.data_table:DataTable",),
    "length": ("trainwiz.tui.widgets.length_histogram:LengthHistogram",),
    "target_length": ("trainwiz.tui.widgets.length_histogram:TargetHistogram",),
}
"""Field id -> StepParts that stand beneath its row."""

STEP_PARTS: Mapping[int, tuple[str, ...]] = {
    HARDWARE: ("trainwiz.tui.widgets.machine_facts:MachineFacts",),
    MODEL: ("trainwiz.tui.widgets.model_facts:ModelFactsView",),
    REVIEW: ("trainwiz.tui.widgets.review:Review",),
}
"""Step -> StepParts that stand beneath all of its rows."""

FIELD_ACTIONS: Mapping[str, tuple[FieldAction, ...]] = {
    "profile": (
        FieldAction("import", mark("Import a file or a command"), "trainwiz.tui.screens.plan_import:import_settings"),
    ),
    "model": (FieldAction("browse", mark("Browse files"), "trainwiz.tui.screens.plan_model_choice:browse_model"),),
    "data": (FieldAction("browse", mark("Browse files"), "trainwiz.tui.screens.plan_data_choice:browse_data"),),
    "validation_data": (
        FieldAction("browse", mark("Browse files"), "trainwiz.tui.screens.plan_data_choice:browse_data"),
    ),
}
"""Field id -> buttons beneath its row."""


def named(path: str) -> Any:
    """What a "module:name" names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def make_parts(paths: tuple[str, ...], step: int, marks: Marks) -> list[StepPart]:
    return [named(path)(step, marks) for path in paths]


def open_dialog(path: str, state: PlanState, spec: FieldSpec) -> ModalScreen[Answer] | PlanRequest | None:
    """What a dialog's or an action's function gives for the field."""
    return named(path)(state, spec)  # type: ignore[no-any-return]
