"""Windows with a list that typing narrows; SaveDialog, the name under which choices are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import Worker
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import TrainwizError
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import bindings
from trainwiz.tui.options import MACHINE_FIELDS
from trainwiz.tui.screens.plan_state import Offer, PlanState
from trainwiz.tui.text import pad
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.frame import EntryDialog, Window, entry_field, failure_words
from trainwiz.tui.widgets.lists import hanging

if TYPE_CHECKING:
    from trainwiz.core.plan.fit import Fits

LABEL_WIDTH = 26
ROOMY_CELLS = 60
"""Narrower, the lines of a note begin beneath its label."""
BESIDE_THE_LIST = 7
"""Lines of the window that are no line of the list: its border, title, entry and hint, and the lines between them."""
TALLEST = 0.86
"""Of the screen, as max-height says."""


def matching(offers: Sequence[Offer], text: str) -> list[Offer]:
    """The offers that hold every word of `text`; names that begin with it come first, notes last."""
    text = text.lower().strip()
    words = text.split()

    def holds_all(offer: Offer) -> bool:
        searched = f"{offer.value} {offer.label} {offer.note}".lower()
        return all(word in searched for word in words)

    def rank(offer: Offer) -> tuple[bool, bool, bool]:
        name = (offer.label or offer.value).lower()
        return name != text, not name.startswith(text), text not in name

    found = filter(holds_all, offers)
    return sorted(found, key=rank) if text else [*found]


class Chooser(Window[str]):
    """A list that typing narrows; returns the chosen value, or None when it was closed.

    The cursor is a mark too: without colours its line looks like all others.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("list")]
    HINT: ClassVar[str] = mark("enter select   ↑↓ move   esc close")
    MOST = 300
    """Lines at most."""

    DEFAULT_CSS = """
    Chooser > Vertical { width: 84; max-height: 86%; }
    Chooser OptionList { border: none; height: auto; max-height: 22; background: $surface; padding: 0; }
    Chooser .hint { color: $muted; margin: 1 0 0 0; }
    """

    def __init__(self, title: str, offers: Sequence[Offer], current: str, free_text: str = "") -> None:
        """`free_text` says what may be typed that is not in the list; empty: only the list counts."""
        super().__init__()
        self._title, self._offers, self._current, self._free_text = title, tuple(offers), current, free_text
        self._shown: list[Offer] = []
        self._marked = -1
        """The line with the mark of the cursor; -1: none."""

    def compose(self) -> ComposeResult:
        options: OptionList = OptionList(markup=False)
        options.can_focus = False
        with Vertical():
            yield Static(Content.styled(self._title, "bold"), classes="title", markup=False)
            yield entry_field(self._free_text or tr("type to search"), 4096)
            yield options
            yield Static(tr(self.HINT), classes="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._fill("")
        values = [offer.value for offer in self._shown]
        if self._current in values:
            self.options.highlighted = values.index(self._current)

    def on_resize(self) -> None:
        # The hint stays in sight.
        self.options.styles.max_height = max(2, int(self.size.height * TALLEST) - BESIDE_THE_LIST)
        # The lines fill the width that there is.
        self.call_after_refresh(lambda: self._put_lines(self.place))

    @property
    def options(self) -> OptionList:
        return self.query_one(OptionList)

    @property
    def place(self) -> int | None:
        return self.options.highlighted

    def _fill(self, text: str) -> None:
        text = text.strip()
        self._shown = matching(self._offers, text)[: self.MOST]
        if text and self._free_text and text not in {offer.value for offer in self._shown}:
            typed = Offer(text, tr("use “{text}”", text=plain_text(text, 60)), tr("as typed"))
            # What names a file or folder means it, also where a longer name of the list begins with it.
            self._shown.insert(0 if _is_a_path(text) else len(self._shown), typed)
        self._put_lines(0 if self._shown else None)
        nothing = tr("No matches. Press backspace to widen the search.") + "\n" if text and not self._shown else ""
        self.query_one(".hint", Static).update(nothing + tr(self.HINT))

    def _put_lines(self, place: int | None) -> None:
        self._marked = -1
        options = self.options
        options.clear_options()
        options.add_options([Option(self._drawn(index)) for index in range(len(self._shown))])
        options.highlighted = place

    def _drawn(self, place: int, here: bool = False) -> Content:
        """A label and its note, whose lines stand beneath each other."""
        offer = self._shown[place]
        label, note = plain_text(offer.label or offer.value, 200), plain_text(f"{offer.before}{offer.note}", 200)
        start = pad(f"{marks.here if here else ' '} {label}", LABEL_WIDTH + 2)
        # A cell on each side, and two of the scrollbar.
        width = (self.options.size.width or LABEL_WIDTH) - 4
        line = Content.assemble(f"{start}  ", (note, "$muted"))
        return Content("\n").join(hanging(line, width, LABEL_WIDTH + 4 if width >= ROOMY_CELLS else 4))

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        for index, here in ((self._marked, False), (self.place, True)):
            if index is not None and 0 <= index < len(self._shown):
                self.options.replace_option_prompt_at_index(index, self._drawn(index, here))
        self._marked = -1 if self.place is None else self.place

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._fill(event.value)

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _taken(self, event: Input.Submitted | OptionList.OptionSelected) -> None:
        event.stop()
        if self.place is not None and self.place < len(self._shown):
            self.dismiss(self._shown[self.place].value)

    def action_move(self, by: int) -> None:
        if self._shown:
            self.options.highlighted = ((self.place or 0) + by) % len(self._shown)


def _is_a_path(text: str) -> bool:
    try:
        return Path(text).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        return False


class FitChooser(Chooser):
    """What can be trained here on some data, looked for in a thread; answers the number of a row."""

    def __init__(self, state: PlanState, source: str) -> None:
        super().__init__(tr("Searching for models that fit..."), (), "")
        self._request, self._here, self._source = state.request, state.reading.machine, source
        self._fits: Fits | None = None

    def on_mount(self) -> None:
        super().on_mount()
        self.run_worker(self._find, thread=True, exit_on_error=False)

    def request_of(self, row: str) -> PlanRequest:
        """The run of a row, in the folder that was asked for."""
        assert self._fits is not None
        return replace(self._fits.rows[int(row)].request, output_dir=self._request.output_dir)

    def _find(self) -> tuple[str, tuple[Offer, ...]]:
        """(title, offers), in a thread."""
        from trainwiz.core.history.measurement import load
        from trainwiz.core.history.rates import kept_rates
        from trainwiz.core.plan.fit import Question, find_fits
        from trainwiz.core.plan.gather import probe_here
        from trainwiz.core.plan.refine import Refiner

        own = self._request.overrides
        kept = {key: value for key, value in own.items() if key.startswith(("data.", "planning.")) or key == "task"}
        kept["data.sources.0.name"] = self._source
        request = replace(self._request, profile=None, overrides=kept, name=None, output_dir=None, mode="train")
        try:
            here = self._here or probe_here(request)
            self._fits = find_fits(Question(request), here, Refiner(None, load, kept_rates))
        except (TrainwizError, OSError) as error:
            return failure_words(error), ()
        from trainwiz.tui.plan_words import fit_words

        rows = (Offer(str(place), fit.model, fit_words(fit)) for place, fit in enumerate(self._fits.rows))
        return tr("Models that fit, the largest first"), tuple(rows)

    @on(Worker.StateChanged)
    def _found(self, event: Worker.StateChanged) -> None:
        event.stop()
        title, self._offers = event.worker.result or ("", ())
        if event.worker.error is not None:
            title = failure_words(event.worker.error)
        if event.worker.is_finished:
            self.query_one(Static).update(Content.styled(plain_text(title, 600), "bold"))
            self._fill("")


def save_dialog(request: PlanRequest) -> EntryDialog[str]:
    """Keeps the choices as a profile; answers how it is used."""

    def save(text: str) -> str:
        from trainwiz.core.profile.save import save_profile

        if not text.strip():
            raise ValueError(tr("Type a name."))
        return tr("Saved {name}: trainwiz --profile {name}", name=save_profile(text.strip(), of_a_setup(request)).name)

    hint = tr("enter save (existing profiles are never overwritten)   esc cancel")
    return EntryDialog(tr("Save as my profile"), tr("profile name"), hint, save)


def of_a_setup(request: PlanRequest) -> PlanRequest:
    """The request without what belongs to one run: its name, its folder, its mode."""
    from trainwiz.core.config.keys import NOT_IN_PROFILES

    kept = {key: value for key, value in request.overrides.items() if key not in NOT_IN_PROFILES}
    machine: dict[str, Any] = {name: getattr(request, name) for name in MACHINE_FIELDS.values()}
    return PlanRequest(request.profile, kept, **machine)
