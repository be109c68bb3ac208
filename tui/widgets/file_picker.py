"""FilePicker: a file or folder of the disk, found by walking through folders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from rich.style import Style
from rich.text import Text, TextType
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import DirectoryTree, Static
from textual.widgets.directory_tree import DirEntry
from textual.widgets.tree import TreeNode
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import bindings
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.frame import Window


def first_folder(start: str, here: Path) -> Path:
    """The folder to open for what a field holds now; `here` where that is no path."""
    if start.strip():
        try:
            path = here / Path(start).expanduser()
            if path.exists():
                return path if path.is_dir() else path.parent
        except (OSError, RuntimeError, ValueError):
            pass
    return here


def unusable_name(name: str) -> str:
    """Why a path with this name could not be written into a config and read back; empty when it can."""
    # What is not UTF-8 is not printable either.
    if name == name.strip() and name.isprintable():
        return ""
    return tr("The name is not UTF-8, contains invisible characters, or starts or ends with a space. Rename it first.")


def path_text(path: Path, here: Path) -> str:
    """The path as a field shows it: from the folder `here` where it lies in it, else in full."""
    try:
        inside = path.relative_to(here)
    except ValueError:
        return str(path)
    return f"./{inside}" if len(inside.parts) == 1 and inside.suffix == "" else str(inside)


class FileTree(DirectoryTree):
    """Folders, and the files whose names have one of these endings; hidden ones are left out."""

    ICON_FILE = ""

    def __init__(self, folder: Path, kinds: Sequence[str]) -> None:
        self._kinds = tuple(kinds)
        self.ICON_NODE, self.ICON_NODE_EXPANDED = f"{marks.more} ", f"{marks.menu} "
        super().__init__(folder)
        self.show_guides = False

    def filter_paths(self, paths: Iterable[Path]) -> Iterable[Path]:
        seen = (path for path in paths if not path.name.startswith("."))
        return [path for path in seen if path.name.lower().endswith(self._kinds) or self._safe_is_dir(path)]

    def process_label(self, label: TextType) -> Text:
        """A name may hold anything but a slash and a zero: it is text, in one line."""
        return Text(plain_text(str(label)) or "?")

    def render_label(self, node: TreeNode[DirEntry], base_style: Style, style: Style) -> Text:
        """With a mark at the cursor: without colours its line looks like all others."""
        return Text.assemble(
            f"{marks.here if node is self.cursor_node else ' '} ", super().render_label(node, base_style, style)
        )


class FilePicker(Window[str]):
    """Returns the path as a field writes it (from the working folder where it lies in it), or None."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("browse")]
    AUTO_FOCUS = "FileTree"
    HINT = mark("enter open or select   u use folder   backspace folder above   esc close")

    DEFAULT_CSS = """
    FilePicker > Vertical { width: 88; height: 26; }
    FilePicker FileTree { height: 1fr; background: $surface; scrollbar-size: 1 1; }
    FilePicker .problem { max-height: 4; color: $warning; }
    FilePicker .hint { color: $muted; }
    """

    def __init__(self, title: str, start: str, kinds: Sequence[str], stands_for_folder: str = "") -> None:
        """`start`: a file, whose folder is opened, or a folder; else the working folder is. `kinds`: endings of the
        names of files, in lower case. A file called `stands_for_folder` means the folder that it lies in."""
        super().__init__()
        self._stands_for_folder = stands_for_folder
        self._title, self._kinds, self._here = title, kinds, Path.cwd()
        self.folder = first_folder(start, self._here)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content.styled(self._title, "bold"), markup=False)
            yield FileTree(self.folder, self._kinds)
            yield Static("", classes="problem", markup=False)
            yield Static(tr(self.HINT), classes="hint", markup=False)

    def _say(self, sentence: str) -> None:
        self.query_one(".problem", Static).update(plain_text(sentence, 600))

    @on(DirectoryTree.DirectorySelected)
    def _opened(self, event: DirectoryTree.DirectorySelected) -> None:
        """The tree shows what is in it; nothing, where it cannot be read."""
        event.stop()
        may = os.access(event.path, os.R_OK | os.X_OK)
        self._say("" if may else tr("No permission to read {folder}.", folder=str(event.path)))

    @on(DirectoryTree.FileSelected)
    def _selected(self, event: DirectoryTree.FileSelected) -> None:
        event.stop()
        path = event.path
        self.answer(path.parent if path.name == self._stands_for_folder else path)

    def answer(self, path: Path) -> None:
        """Close with a path, or say why it cannot be taken."""
        problem = unusable_name(str(path)) or ("" if path.exists() else tr("{name} does not exist.", name=path.name))
        if problem:
            self._say(problem)
        else:
            self.dismiss(path_text(path, self._here))

    def action_take_folder(self) -> None:
        """The folder under the cursor, or the one that holds the file under it."""
        node = self.query_one(FileTree).cursor_node
        path = self.folder if node is None or node.data is None else node.data.path
        self.answer(path if path.is_dir() else path.parent)

    def action_above(self) -> None:
        self.folder = self.folder.parent
        self.query_one(FileTree).path = self.folder
