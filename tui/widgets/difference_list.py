"""DifferenceList: the values of the plan that are other than the profile's own, with both and who chose them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.app import RenderResult
from textual.content import Content
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.tui.cells import cells, cut, pad
from trainwiz.tui.screens.plan_field_table import FIELDS
from trainwiz.tui.screens.plan_fields import word_for
from trainwiz.tui.theme import UNICODE_MARKS, Marks
from trainwiz.tui.widgets.cursor_list import CursorList
from trainwiz.tui.widgets.step_parts import StepPart

if TYPE_CHECKING:
    from trainwiz.core.config.differences import ConfigDifference

WIDEST_KEY = 36
LONGEST_VALUE = 60


def field_id_of(key: str) -> str:
    """The id of the field that shows a key; empty where a row of a list or mapping stands for it."""
    while True:
        for spec in FIELDS:
            if key in spec.keys:
                return spec.id
        if "." not in key:
            return ""
        key = key.rpartition(".")[0]


def value_words(key: str, value: Any) -> str:
    """A value as the fields write it; lists of sources by their names."""
    if value is None or value in ([], {}, ""):
        return tr("not set")
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return ", ".join(str(item.get("name", item)) for item in value)
    return word_for(key, value)


def change_words(theirs: str, yours: str, arrow: str, room: int, marks: Marks) -> str:
    """ "theirs -> yours" in at most `room` cells; each keeps half of them before the other is cut."""
    theirs, yours = plain_text(theirs, LONGEST_VALUE), plain_text(yours, LONGEST_VALUE)
    both = room - cells(arrow) - 2
    for_theirs = max(both // 2, both - cells(yours))
    theirs = cut(theirs, for_theirs, marks.ellipsis)
    return cut(f"{theirs} {arrow} {cut(yours, both - cells(theirs), marks.ellipsis)}", room, marks.ellipsis)


def difference_lines(differences: tuple[ConfigDifference, ...], width: int, marks: Marks, cursor: int) -> list[Content]:
    """One line for each: key, the profile's value, yours, who chose it. `cursor` -1: none has the cursor."""
    arrow = "→" if marks == UNICODE_MARKS else "->"
    key_width = min(max(cells(one.key) for one in differences), WIDEST_KEY, max(8, width // 2 - 3))
    lines = []
    for index, one in enumerate(differences):
        mine = one.chosen_by.origin == "you"
        origin = tr("you") if mine else tr("follows")
        room = max(4, width - key_width - 7 - cells(origin))
        text = change_words(value_words(one.key, one.theirs), value_words(one.key, one.yours), arrow, room, marks)
        lines.append(
            Content.assemble(
                (f"{marks.here if index == cursor else ' '} ", "$accent"),
                (pad(cut(plain_text(one.key), key_width, marks.ellipsis), key_width) + "  ", "$muted"),
                (pad(text, room), "$foreground"),
                (f" {marks.changed if mine else ' '} {origin}", "$accent" if mine else "$muted"),
            )
        )
    return lines


class DifferenceList(CursorList):
    """Space goes to the field of the difference under the cursor; r gives its value back."""

    def __init__(self, marks: Marks) -> None:
        super().__init__(marks, id="differences")
        self._differences: tuple[ConfigDifference, ...] = ()
        self.display = False

    @property
    def size_of_list(self) -> int:
        return len(self._differences)

    @property
    def field_id(self) -> str:  # type: ignore[override]
        """Whose help and reset the keys of the screen give."""
        return field_id_of(self._differences[self.cursor].key) if self._differences else ""

    def show(self, differences: tuple[ConfigDifference, ...]) -> None:
        self.display = bool(differences)
        if differences != self._differences:
            self._differences = differences
            self.keep_cursor()

    def press(self) -> None:
        if self.field_id:
            self.post_message(StepPart.FieldWanted(self.field_id))

    def render(self) -> RenderResult:
        if not self._differences:
            return Content()
        cursor = self.cursor if self.has_focus else -1
        return Content("\n").join(difference_lines(self._differences, self.content_size.width, self.marks, cursor))
