"""FileList and FileText: the files of a start with their sizes, what is in them, and what in them is not the profile's."""

from __future__ import annotations

from collections.abc import Mapping

from textual.app import ComposeResult, RenderResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static
from trainwiz.core.language import tr, trn
from trainwiz.core.plain import plain_text
from trainwiz.core.run.folder import PLAN_JSON
from trainwiz.core.text_changes import changed_lines, count_changes
from trainwiz.tui.cells import cut, pad
from trainwiz.tui.figures import size
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.cursor_list import CursorList

LONGEST_PREVIEW = 400
LONGEST_LINE = 400
NAME_WIDTH, SIZE_WIDTH = 18, 10
LINES_BEFORE_A_CHANGE = 2
NOT_COMPARED = frozenset({PLAN_JSON})
"""Figures, which change with every trace, and no settings."""


class FileList(CursorList):
    """Up and down choose which file is shown."""

    class Moved(Message):
        """Another file is under the cursor."""

    def __init__(self, marks: Marks) -> None:
        super().__init__(marks, id="files")
        self._files: Mapping[str, str] = {}
        self._theirs: Mapping[str, str] | None = None

    @property
    def size_of_list(self) -> int:
        return len(self._files)

    @property
    def current(self) -> tuple[str, str | None]:
        """The text of the file under the cursor, and the profile's, where there is one to compare with."""
        if not self._files:
            return "", None
        name = list(self._files)[self.cursor]
        theirs = None if self._theirs is None or name in NOT_COMPARED else self._theirs.get(name, "")
        return self._files[name], theirs

    def show(self, files: Mapping[str, str], theirs: Mapping[str, str] | None) -> None:
        """`theirs` is None where nothing differs from the profile, or the comparison is still being made."""
        if (files, theirs) != (self._files, self._theirs):
            self._files, self._theirs = files, theirs
            self.keep_cursor()

    class Scrolled(Message):
        """More of the file is wanted."""

        def __init__(self, pages: int) -> None:
            super().__init__()
            self.pages = pages

    def moved(self) -> None:
        self.post_message(self.Moved())

    def action_scroll_file(self, pages: int) -> None:
        self.post_message(self.Scrolled(pages))

    def _change(self, name: str) -> str:
        if self._theirs is None or name in NOT_COMPARED:
            return ""
        if name not in self._theirs:
            return tr("new")
        count = count_changes(self._theirs[name], self._files[name])
        return trn("{n} line differs", "{n} lines differ", count, n=f"{count:,}") if count else ""

    def render(self) -> RenderResult:
        if not self._files:
            return Content.styled("  " + tr("nothing yet"), "$muted")
        lines = []
        for index, (name, text) in enumerate(self._files.items()):
            here = index == self.cursor
            lines.append(
                Content.assemble(
                    (f"{self.marks.here if here else ' '} ", "$accent"),
                    (
                        pad(cut(plain_text(name), NAME_WIDTH, self.marks.ellipsis), NAME_WIDTH),
                        "$foreground" if here else "$muted",
                    ),
                    (pad(size(len(text.encode())), SIZE_WIDTH, right=True), "$muted"),
                    (f"   {self._change(name)}", "$accent"),
                )
            )
        return Content("\n").join(lines)


class FileText(VerticalScroll, can_focus=False):
    """One file. Its lines that differ from the profile's begin with +, and those that they replace with -."""

    DEFAULT_CSS = """
    FileText { height: 12; margin: 1 0 0 2; border-left: solid $line; padding: 0 1; scrollbar-size: 1 1; }
    FileText Static { width: auto; height: auto; color: $muted; }
    """

    def compose(self) -> ComposeResult:
        yield Static("", markup=False)

    def show(self, text: str, theirs: str | None) -> None:
        self.query_one(Static).update(file_content(text, theirs))
        self.call_after_refresh(self.scroll_to, y=first_shown(text, theirs), animate=False)

    def scroll_pages(self, pages: int) -> None:
        self.scroll_relative(y=pages * max(1, self.size.height - 2), animate=False)


def first_shown(text: str, theirs: str | None) -> int:
    """The line to begin at: a little before the first difference."""
    if theirs is None or theirs == text:
        return 0
    place = next((index for index, (change, _) in enumerate(changed_lines(theirs, text)) if change != " "), 0)
    return max(0, min(place, LONGEST_PREVIEW) - LINES_BEFORE_A_CHANGE)


def file_content(text: str, theirs: str | None) -> Content:
    """The lines of a file, marked against the profile's where there is one."""
    styles = {"+": "$foreground", "-": "$error", " ": "$muted"}
    if theirs is None or theirs == text:
        lines = [Content.styled(plain_text(line, LONGEST_LINE), "$muted") for line in text.splitlines()]
    else:
        lines = [
            Content.styled(f"{change} {plain_text(line, LONGEST_LINE)}", styles[change])
            for change, line in changed_lines(theirs, text)
        ]
    shown = lines[:LONGEST_PREVIEW]
    more = len(lines) - len(shown)
    if more:
        shown.append(Content.styled(trn("{n} more line", "{n} more lines", more, n=f"{more:,}"), "$muted"))
    return Content("\n").join(shown)
