"""FieldRow and the buttons beside it: one field of a form as a quiet line, with an editor in place when asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from textual import events, on
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.widgets import Input
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import bindings
from trainwiz.tui.screens.plan_fields import Setting
from trainwiz.tui.text import cells, cut, pad
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.lists import FocusLines, LinesWidget, Pressed, TextLines, indented

LONGEST_INPUT = 4096
ORIGINS = {
    "you": mark("you"),
    "profile": mark("profile"),
    "detected": mark("detected"),
    "solved": mark("auto"),
    "default": mark("default"),
}
"""Who chose a value, as the row writes it."""


@dataclass(frozen=True, slots=True)
class FieldView:
    """What a row shows. Everything here is plain text."""

    label: str
    value: str
    origin: str = ""
    reason: str = ""
    invalid: str = ""
    changed: bool = False
    has_list: bool = False


def row_lines(view: FieldView, width: int, *, focused: bool, roomy: bool, editing: bool) -> list[Content]:
    """The lines of a row in `width` cells. `roomy` shows reasons of rows without focus, in one line."""
    left = label_cells(width)
    origin = tr(ORIGINS.get(view.origin, view.origin))
    end = f"{marks.changed} {origin}" if view.changed else origin
    menu = f" {marks.menu}" if view.has_list else ""
    room = width - left - 3 - len(menu) - cells(end)
    value = cut(plain_text(view.value, LONGEST_INPUT), max(4, room - 1), marks.ellipsis)
    parts = [
        (f"{marks.here} " if focused else "  ", "$accent"),
        (pad(cut(view.label, left - 1, marks.ellipsis), left), "$foreground" if focused else "$muted"),
    ]
    if not editing:
        gap = " " * max(1, room - cells(value))
        parts += [(value, "$foreground"), (menu, "$muted"), (gap, "")]
        parts.append((end, "$accent" if view.changed else "$muted"))
    head = Content.assemble(*parts)
    if view.invalid:
        return [head, *indented(f"{marks.bad} {plain_text(view.invalid, 400)}", width, "$error")]
    reason = plain_text(view.reason)
    if focused:
        return [head, *indented(reason, width)]
    # One line, cut.
    return [head, *indented(cut(reason, width - 5, marks.ellipsis), width)] if roomy else [head]


def label_cells(width: int) -> int:
    return 20 if width >= 48 else 16


class FieldInput(Input):
    """The editor in a row. Enter keeps the text, escape leaves it."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("edit")]

    def __init__(self, text: str) -> None:
        super().__init__(text, compact=True, max_length=LONGEST_INPUT, select_on_focus=True)
        self.cursor_blink = False

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        # Its row gives it its place and width. Textual would lay out the whole screen for every letter.
        return super().refresh(*regions, repaint=repaint, layout=False, recompose=recompose)

    def action_accept(self) -> None:
        self._leave(keep=True)

    def action_cancel(self) -> None:
        self._leave(keep=False)

    def on_blur(self) -> None:
        self._leave(keep=True)

    def _leave(self, *, keep: bool) -> None:
        if isinstance(self.parent, FieldRow) and self.parent.editing:
            self.post_message(FieldRow.Done(self.parent, keep))


class FieldRow(FocusLines, can_focus=True):
    """Shows a FieldView; posts what the user types. It holds no value of its own."""

    FOCUS_ON_CLICK = False
    """Not yet when the button of the mouse goes down: the row that loses the focus becomes shorter, and the button
    would come up over another row, which is no click."""

    @dataclass
    class Typed(Message):
        """The text in the editor changed."""

        row: FieldRow
        text: str

    @dataclass
    class Done(Message):
        """The editor closed; `keep` is False when the old value should come back."""

        row: FieldRow
        keep: bool

    def __init__(self, spec: Setting) -> None:
        super().__init__(id=f"field-{spec.id}")
        self.spec = spec
        self.view = FieldView(label=tr(spec.label), value=marks.ellipsis, has_list=spec.opens_a_list)
        self._editor: FieldInput | None = None

    @property
    def editing(self) -> bool:
        return self._editor is not None

    @property
    def editor_has_focus(self) -> bool:
        return self._editor is not None and self._editor.has_focus

    def show(self, view: FieldView) -> None:
        if view != self.view:
            self.view = view
            if self.redraw() and self.editing:
                # What is wrong with the text stands below it, which may be below the form's last line.
                self.call_after_refresh(self.scroll_visible, animate=False)

    def begin_edit(self, text: str) -> None:
        """Open the editor on `text`, all of it selected: typing replaces it."""
        editor = self._editor = FieldInput(text)
        left = label_cells(self.content_size.width) + 2
        editor.styles.offset, editor.styles.width = (left, 0), max(8, self.content_size.width - left - 1)
        self.mount(editor)
        editor.focus()
        self.refresh(layout=True)

    async def end_edit(self) -> None:
        editor, self._editor = self._editor, None
        if editor is not None:
            await editor.remove()
            self.refresh(layout=True)

    def lines_in(self, width: int) -> list[Content]:
        focused = self.has_focus or self.editing
        roomy = not (self.screen.has_class("-short") or self.screen.has_class("-slim"))
        return row_lines(self.view, width, focused=focused, roomy=roomy, editing=self.editing)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        if not self.editing:
            self.focus(scroll_visible=False)
        self.post_message(Pressed(self))

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        if self.editing:
            self.post_message(self.Typed(self, event.value))


class ActionButton(LinesWidget, can_focus=True):
    """A word in brackets that says what it does. Enter (through the screen) or a click presses it."""

    FOCUS_ON_CLICK = False
    """As of a FieldRow."""

    DEFAULT_CSS = """
    ActionButton { width: auto; height: 1; margin: 0 2 0 0; color: $foreground; }
    ActionButton:hover { background: $panel; }
    ActionButton:focus { background: $accent; color: $background; text-style: bold; }
    """

    def __init__(self, label: str, action: str) -> None:
        super().__init__(id=f"button-{action}")
        self.action = action
        self._label = label

    def show(self, label: str) -> None:
        """Another word on it."""
        if label != self._label:
            self._label = label
            self.refresh(layout=True)

    def lines_in(self, width: int) -> list[Content]:
        return [Content(f"[ {self._label} ]")]

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return self.lines_in(container.width)[0].cell_length

    def on_click(self) -> None:
        self.focus(scroll_visible=False)
        self.post_message(Pressed(self))


class RemedyButton(TextLines, can_focus=True):
    """One remedy of the plan's findings. Its digit, enter, space or a click applies it."""

    DEFAULT_CSS = """
    RemedyButton:hover { background: $panel; }
    RemedyButton:focus { background: $panel; }
    """

    def __init__(self, number: int) -> None:
        super().__init__(id=f"remedy-{number}")
        self.number = number

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(Pressed(self))
