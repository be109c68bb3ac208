"""FilePicker: a file or folder of the disk, found by typing a path or walking through folders."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static
from textual.worker import Worker, WorkerState, get_current_worker
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import bindings
from trainwiz.tui.text import cells, cut, pad, size
from trainwiz.tui.widgets.chooser import ListWindow
from trainwiz.tui.widgets.frame import failure_words

# What is in a folder, for a list to choose from: folders, then the files that are looked for, then the others.

MOST_LISTED = 1_000
"""Lines; the others are found by typing."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One folder or file. `name` is as the file system gives it: anything but a slash and a zero."""

    name: str
    is_folder: bool = False
    is_wanted: bool = False
    """A file of the kinds that are looked for."""
    folded: str = ""
    """The name in lower case: it is searched at every key."""
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries of a folder in the order of the list; `problem` is the sentence that says why some or all lack."""

    folder: Path
    entries: tuple[Entry, ...] = ()
    problem: str = ""
    wanted: int = 0
    """How many files are of the kinds that are looked for."""


def read_folder(folder: Path, kinds: Sequence[str], is_cancelled: Callable[[], bool] = lambda: False) -> Listing:
    """The entries of `folder`, hidden ones too. `kinds` are endings of file names in lower case.

    Raises nothing: a folder that cannot be read has a sentence and what was read of it.
    """
    entries: list[Entry] = []
    problem = ""
    endings = tuple(kinds)
    try:
        with os.scandir(folder) as found:
            for item in found:
                if is_cancelled():
                    break
                entries.append(_entry(item, endings))
    except OSError as error:
        problem = tr("Can't read {folder}: {reason}.", folder=str(folder), reason=error.strerror or str(error))
    entries.sort(key=lambda entry: (not entry.is_folder, not entry.is_wanted, entry.folded))
    return Listing(folder, tuple(entries), problem, sum(entry.is_wanted for entry in entries))


def _entry(item: os.DirEntry[str], endings: tuple[str, ...]) -> Entry:
    size = None
    try:
        is_folder = item.is_dir()
    except OSError:  # A link that goes round in circles.
        is_folder = False
    if not is_folder:
        with contextlib.suppress(OSError):
            size = item.stat().st_size
    folded = item.name.lower()
    return Entry(item.name, is_folder, not is_folder and bool(endings) and folded.endswith(endings), folded, size)


def matching_entries(entries: Sequence[Entry], text: str) -> tuple[Entry, ...]:
    """The entries whose name holds `text`; those that begin with it first. Hidden ones only where a dot is typed."""
    text = text.lower()
    found = [entry for entry in entries if text in entry.folded]
    if not text.startswith("."):
        found = [entry for entry in found if not entry.folded.startswith(".")]
    if not text:
        return tuple(found)
    return tuple(sorted(found, key=lambda entry: not entry.folded.startswith(text)))


THIS_FOLDER = Entry(".", is_folder=True)
ABOVE = Entry("..", is_folder=True)


def first_folder(start: str | Path, here: Path) -> tuple[Path, str]:
    """The folder to open and the entry in it to stand on, for what a field holds now; `here` where that is no path."""
    if not str(start).strip():
        return here, ""
    try:
        path = here / Path(start).expanduser()
        if path.is_dir():
            return path, ""
        if path.is_file():
            return path.parent, path.name
    except (OSError, RuntimeError, ValueError):
        pass
    return here, ""


def typed_parts(text: str, base: Path) -> tuple[Path, str]:
    """(folder that a typed text names, what narrows its list). A relative path starts from `base`."""
    text = text.strip()
    if "\0" in text:
        return base, text.replace("\0", "")
    if text == "~" or text.startswith("~/"):
        try:
            text = str(Path("~").expanduser()) + (text[1:] or "/")
        except RuntimeError:
            return base, text
    head, slash, name = text.rpartition("/")
    if not slash:
        return base, text
    return Path(os.path.normpath(base / (head or "/"))), name


def unusable_name(name: str) -> str:
    """Why a path with this name could not be written into a config and read back; empty when it can."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return tr("The file name is not UTF-8. Rename it first.")
    if name != name.strip() or not name.isprintable():
        return tr("The name starts or ends with a space, or contains invisible characters. Rename it first.")
    return ""


def path_text(path: Path, here: Path) -> str:
    """The path as a field shows it: from the folder `here` where it lies in it, else in full."""
    try:
        inside = path.relative_to(here)
    except ValueError:
        return str(path)
    return f"./{inside}" if len(inside.parts) == 1 and inside.suffix == "" else str(inside)


class PathInput(Input):
    """What is typed over the list. Backspace in the empty field leaves the folder."""

    class Leave(Message):
        """Backspace, with nothing left to delete."""

    def action_delete_left(self) -> None:
        if self.value:
            super().action_delete_left()
        else:
            self.post_message(self.Leave())


class FilePicker(ListWindow):
    """A file or folder: typing narrows the list, a path goes there; folders are read in a thread.

    Returns the path as a field writes it (from the working folder where it lies in it), or None.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("browse")]
    HINT = mark("enter open or select   ↑↓ move   backspace folder above   esc close")

    DEFAULT_CSS = """
    FilePicker > Vertical { width: 88; height: 26; }
    FilePicker .title, FilePicker .folder { height: 1; }
    FilePicker .folder { color: $muted; }
    FilePicker OptionList { height: 1fr; max-height: 100%; }
    FilePicker .problem { max-height: 4; color: $warning; }
    """

    def __init__(
        self, title: str, start: str | Path = "", kinds: Sequence[str] = (), *, with_folders: bool = True
    ) -> None:
        """`start`: a file, whose folder is opened, or a folder; else the working folder is.

        `kinds`: endings of names, in lower case, of the files that come first ("config.json", ".csv.gz"); others
        are quiet. `with_folders`: a folder can be the answer too.
        """
        super().__init__(title)
        self._kinds, self._with_folders = tuple(kinds), with_folders
        self._here = Path.cwd()
        self._folder, self._started_at = first_folder(start, self._here)
        self._entered = self._folder
        """The folder that was gone to last: what a typed path starts from."""
        self._text = self._notice = ""
        self._wants_to_take = False
        """Enter was pressed before the folder was read."""
        self.listing: Listing | None = None
        """The entries of the folder; None while it is read."""
        self.shown: tuple[Entry, ...] = ()

    def entry(self) -> Input:
        entry = PathInput(placeholder=tr("type to search, or enter a path"), max_length=4096, compact=True)
        entry.cursor_blink = False
        return entry

    def parts(self) -> list[Widget]:
        folder, problem = (Static("", classes=name, markup=False) for name in ("folder", "problem"))
        title, entry, options, hint = super().parts()
        return [title, folder, entry, options, problem, hint]

    def on_mount(self) -> None:
        super().on_mount()
        self._open(self._folder)

    # Reading.

    def _open(self, folder: Path, notice: str = "") -> None:
        """Read a folder. The one on the screen stays there until it is done; `notice` says why it is read again."""
        self._folder, self._notice = folder, notice
        self._say(notice)
        self.run_worker(partial(self._work, folder), thread=True, exclusive=True, group="browse", exit_on_error=False)

    def _work(self, folder: Path) -> None:
        worker = get_current_worker()
        listing = read_folder(folder, self._kinds, lambda: worker.is_cancelled)
        if not worker.is_cancelled:
            self.call_later(self._listed, listing)

    @on(Worker.StateChanged)
    def _worker_failed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self._say(failure_words(event.worker.error))

    def _listed(self, listing: Listing) -> None:
        if listing.folder == self._folder:
            self.listing = listing
            self._fill()
            if self._wants_to_take:
                self.take_line(self.place)

    # Drawing.

    def _fill(self) -> None:
        """The entries that match; the cursor stands on the one that is most likely meant."""
        if self.listing is None:
            return
        found = matching_entries(self.listing.entries, self._text)
        is_top = self.listing.folder == self.listing.folder.parent
        extra = () if self._text else (*((THIS_FOLDER,) if self._with_folders else ()), *(() if is_top else (ABOVE,)))
        self.shown = (*extra, *found[:MOST_LISTED])
        self.put_lines(len(self.shown), self._first_place(len(extra)))
        hidden, rest = max(0, len(found) - MOST_LISTED), ""
        if hidden or (self._text and not found):
            rest = tr("{n} more", n=f"{hidden:,}") if hidden else tr("No matches. Press backspace to show all.")
        self._say(self.listing.problem or self._notice or rest)
        self._show_folder()

    def _first_place(self, above: int) -> int | None:
        """Where the cursor stands in a list that is new; `above`: entries that are not in the folder."""
        names, last = [entry.name for entry in self.shown], len(self.shown) - 1
        if self._started_at in names and not self._text:
            return names.index(self._started_at)
        # A folder that was typed to its end is meant itself; of one that was entered, the first file that is looked for.
        if self.query_one(PathInput).value.strip() or last < 0:
            return None if last < 0 else 0
        return next((place for place, entry in enumerate(self.shown) if entry.is_wanted), min(above, last))

    def line(self, place: int, mark: str, width: int) -> Content:
        entry, wanted = self.shown[place], self.listing.wanted if self.listing is not None else 0
        name, note, quiet = plain_text(entry.name, 4 * width), "", bool(self._kinds) and not entry.is_wanted
        if entry is THIS_FOLDER:
            note = trn("{n} matching file", "{n} matching files", wanted, n=f"{wanted:,}") if self._kinds else ""
            name, quiet = tr("this folder"), not wanted
        elif entry is ABOVE:
            note, quiet = tr("parent folder"), True
        elif entry.is_folder:
            name, quiet = f"{name}/", False
        elif entry.bytes is not None:
            note = size(entry.bytes)
        room = max(1, width - cells(note) - 2)
        line = pad(cut(f"{mark} {name}", room), room)
        return Content.styled(f"{line}  {note}", "$muted" if quiet else "$foreground")

    def _show_folder(self) -> None:
        for line in self.query(".folder").results(Static):
            line.update(cut(plain_text(str(self._folder), 4000)[::-1], max(8, line.size.width))[::-1])

    def _fit(self) -> None:
        super()._fit()
        self._show_folder()

    def _say(self, sentence: str) -> None:
        for line in self.query(".problem").results(Static):
            line.update(plain_text(sentence, 600))
            line.display = bool(sentence)

    # Choosing.

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        """A text with a slash names a folder, which is opened, and the beginning of a name in it."""
        event.stop()
        folder, self._text = typed_parts(event.value, self._entered)
        self._wants_to_take, self._notice = False, ""
        if folder != self._folder:
            self.listing = None
            self._open(folder)
        else:
            self._fill()

    def take_line(self, place: int | None) -> None:
        """Enter the folder under the cursor, or answer with the file."""
        listing = self.listing
        self._wants_to_take = listing is None or listing.folder != self._folder
        if self._wants_to_take:
            return
        typed = self.query_one(PathInput).value.strip()
        if place is None or not self.shown:
            self._say(tr("{name} does not exist.", name=plain_text(typed, 200)) if typed else "")
            return
        entry = self.shown[place]
        if entry is ABOVE:
            self.action_above()
        elif entry is THIS_FOLDER:
            self.answer(self._folder)
        elif entry.is_folder:
            self._enter(self._folder / entry.name)
        else:
            self.answer(self._folder / entry.name)

    def _enter(self, folder: Path, at: str = "") -> None:
        """Go to a folder, the text empty again; `at` is the entry that the cursor stands on there."""
        self._entered, self._text, self._started_at = folder, "", at
        entry = self.query_one(PathInput)
        with entry.prevent(Input.Changed):
            entry.value = ""
        self._open(folder)

    def answer(self, path: Path) -> None:
        """Close with a path, or say why it cannot be taken."""
        problem = unusable_name(path.name) or unusable_name(str(path))
        if not problem and not path.exists():
            self._open(
                self._folder, tr("{name} no longer exists; the folder was read again.", name=plain_text(path.name, 200))
            )
        elif problem:
            self._say(problem)
        else:
            self.dismiss(path_text(path, self._here))

    @on(PathInput.Leave)
    def _leave(self, event: PathInput.Leave) -> None:
        event.stop()
        self.action_above()

    def action_above(self) -> None:
        """The folder above, with the cursor on the one that was left."""
        if self._folder.parent != self._folder:
            self._enter(self._folder.parent, self._folder.name)

    def action_complete(self) -> None:
        """Tab: into the folder under the cursor; never an answer."""
        entry = self.shown[self.place] if self.listing is not None and self.place is not None else ABOVE
        if entry.is_folder and entry not in (THIS_FOLDER, ABOVE):
            self._enter(self._folder / entry.name)

    def action_page(self, by: int) -> None:
        pages = by * max(2, self.options.scrollable_content_region.height - 1)
        if self.shown:
            self.options.highlighted = max(0, min((self.place or 0) + pages, len(self.shown) - 1))
