"""SaveDialog: keeps the choices of the wizard as a profile of the user's own. It asks for a name and overwrites nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static
from trainwiz.core.config.keys import NOT_IN_PROFILES
from trainwiz.core.errors import TrainwizError
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.core.plan.request import PlanRequest
from trainwiz.core.profile.save import SavedProfile, save_profile
from trainwiz.tui.keys import bindings

LONGEST_NAME = 80
LONGEST_MESSAGE = 400
SHOWN_S = 8.0


class SaveDialog(ModalScreen[SavedProfile | None]):
    """Answers what was saved, or None when it was closed. A name that cannot be taken is said, and may be changed."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("edit")]
    AUTO_FOCUS = "Input"

    DEFAULT_CSS = """
    SaveDialog { align: center middle; background: $background 60%; }
    SaveDialog > Vertical {
        width: 76; max-width: 96%; height: auto; background: $surface; border: round $accent; padding: 1 2;
    }
    SaveDialog Static { height: auto; }
    SaveDialog Input { border: none; height: 1; padding: 0; background: $panel; margin: 1 0; }
    SaveDialog #problem { color: $error; }
    SaveDialog .hint { color: $muted; }
    """

    def __init__(self, request: PlanRequest) -> None:
        super().__init__()
        self._request = of_a_setup(request)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content.styled(tr("Save as a profile of mine"), "bold"), markup=False)
            entry = Input(placeholder=tr("a name for it"), max_length=LONGEST_NAME, compact=True)
            entry.cursor_blink = False
            yield entry
            yield Static("", id="problem", markup=False)
            hint = tr("enter saves it; existing profiles are never overwritten   esc cancel")
            yield Static(hint, classes="hint", markup=False)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.query_one("#problem", Static).update("")

    def action_accept(self) -> None:
        name = self.query_one(Input).value.strip()
        problem = tr("Type a name.") if not name else ""
        if name:
            try:
                self.dismiss(save_profile(name, self._request))
            except TrainwizError as error:
                problem = " ".join(finding.message for finding in error.findings)
        self.query_one("#problem", Static).update(Content(plain_text(problem, LONGEST_MESSAGE)))

    def action_cancel(self) -> None:
        self.dismiss(None)


def ask_and_save(app: App[Any], request: PlanRequest) -> None:
    """Ask for a name until it can be saved or the user leaves; then say how the profile is used."""

    def say(saved: SavedProfile | None) -> None:
        if saved is not None:
            words = tr("{name} is saved: trainwiz --profile {name}", name=saved.name)
            app.notify(plain_text(words, LONGEST_MESSAGE), timeout=SHOWN_S, markup=False)

    app.push_screen(SaveDialog(request), say)


def of_a_setup(request: PlanRequest) -> PlanRequest:
    """The request without what belongs to one run: its name, its folder, its mode."""
    return replace(
        request,
        overrides={key: value for key, value in request.overrides.items() if key not in NOT_IN_PROFILES},
        name=None,
        output_dir=None,
        force=False,
        mode="train",
        overfit_batches=None,
        benchmark_steps=None,
        trace_steps=None,
    )
