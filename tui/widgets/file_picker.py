"""FilePicker: a file or folder of the disk, found by typing a path or walking through folders."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static
from textual.worker import Worker, WorkerState, get_current_worker
from trainwiz.core.language import tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import bindings
from trainwiz.tui.text import cut, size
from trainwiz.tui.theme import UNICODE_MARKS, Marks
from trainwiz.tui.widgets.frame import Window
from trainwiz.tui.widgets.lists import EntryLine, EntryList
from trainwiz.tui.widgets.step_part import unforeseen_words

# What is in a folder, for a list to choose from: folders, then the files that are looked for, then the others.

MOST_ENTRIES = 200_000
"""Of one folder. Who has more types the name."""
MOST_SIZES = 20_000
"""Files whose size is asked for; the others show none."""


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
                if len(entries) >= MOST_ENTRIES:
                    problem = tr(
                        "{folder} has more than {n} entries; only some are listed. For another one, type its whole "
                            "name.",
                        folder=str(folder), n=f"{MOST_ENTRIES:,}",
                    )  # fmt: skip
                    break
                entries.append(_entry(item, endings, with_size=len(entries) < MOST_SIZES))
    except OSError as error:
        problem = tr("Can't read {folder}: {reason}.", folder=str(folder), reason=error.strerror or str(error))
    entries.sort(key=lambda entry: (not entry.is_folder, not entry.is_wanted, entry.folded))
    return Listing(folder, tuple(entries), problem, sum(entry.is_wanted for entry in entries))


def _entry(item: os.DirEntry[str], endings: tuple[str, ...], *, with_size: bool) -> Entry:
    size = None
    try:
        is_folder = item.is_dir()
    except OSError:  # A link that goes round in circles.
        is_folder = False
    if with_size and not is_folder:
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


# FolderView: the entries of a folder that are shown, and how each of them reads.

THIS_FOLDER = Entry(".", is_folder=True)
ABOVE = Entry("..", is_folder=True)


class FolderView:
    """One listing at a time, narrowed by a text."""

    def __init__(self, *, with_kinds: bool, with_folders: bool) -> None:
        """`with_kinds`: some files are looked for, the others are quiet. `with_folders`: this folder can be chosen."""
        self._with_kinds = with_kinds
        self._with_folders = with_folders
        self._narrowed: tuple[str, tuple[Entry, ...]] = ("", ())
        self._above = 0
        self.listing: Listing | None = None
        self.shown: tuple[Entry, ...] = ()

    def take(self, listing: Listing | None) -> None:
        """Another folder, or the same one read again; None while it is read."""
        self.listing, self._narrowed = listing, ("", ())

    def narrow(self, text: str) -> bool:
        """Show the entries that match; False where there are none. A text that goes on is looked for in what matched."""
        if self.listing is None:
            return False
        before, found = self._narrowed
        found = matching_entries(found if before and text.startswith(before) else self.listing.entries, text)
        self._narrowed = text, found
        is_top = self.listing.folder == self.listing.folder.parent
        extra = () if text else (*((THIS_FOLDER,) if self._with_folders else ()), *(() if is_top else (ABOVE,)))
        self._above = len(extra)
        self.shown = (*extra, *found)
        return bool(found)

    def place_of(self, name: str) -> int | None:
        """Where an entry stands."""
        return next((place for place, entry in enumerate(self.shown) if entry.name == name), None)

    def usual_place(self) -> int:
        """The first file that is looked for, else the first entry of the folder."""
        wanted = (place for place, entry in enumerate(self.shown) if entry.is_wanted)
        return next(wanted, max(0, min(self._above, len(self.shown) - 1)))

    def line(self, place: int) -> EntryLine:
        """An entry as it reads."""
        entry = self.shown[place]
        if entry is THIS_FOLDER:
            wanted = self.listing.wanted if self.listing is not None else 0
            note = trn("{n} matching file", "{n} matching files", wanted, n=f"{wanted:,}") if self._with_kinds else ""
            return EntryLine(tr("this folder"), note, quiet=not wanted)
        if entry is ABOVE:
            return EntryLine("..", tr("parent folder"), quiet=True)
        if entry.is_folder:
            return EntryLine(f"{entry.name}/")
        note = "" if entry.bytes is None else size(entry.bytes)
        return EntryLine(entry.name, note, quiet=self._with_kinds and not entry.is_wanted)


# Paths as people type them, and as a field writes them. Pure but for the folders that are asked for.


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


# FilePicker: a file or a folder from the disk. Typing narrows the list, a path goes there; reading is done in a thread.


class PathInput(Input):
    """What is typed over the list. Backspace in the empty field leaves the folder."""

    class Leave(Message):
        """Backspace, with nothing left to delete."""

    def action_delete_left(self) -> None:
        if self.value:
            super().action_delete_left()
        else:
            self.post_message(self.Leave())


class FilePicker(Window[str]):
    """Returns the path as a field writes it (from the working folder where it lies in it), or None."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("browse")]

    DEFAULT_CSS = """
    FilePicker > Vertical { width: 88; height: 26; }
    FilePicker .title { height: 1; }
    FilePicker .folder { height: 1; color: $muted; }
    FilePicker .problem { max-height: 4; color: $warning; }
    FilePicker .hint { color: $muted; }
    """

    @dataclass
    class Listed(Message):
        """A folder was read."""

        listing: Listing

    def __init__(
        self,
        title: str,
        start: str | Path = "",
        kinds: Sequence[str] = (),
        *,
        with_folders: bool = True,
        marks: Marks = UNICODE_MARKS,
    ) -> None:
        """`start`: a file, whose folder is opened, or a folder; else the working folder is.

        `kinds`: endings of names, in lower case, of the files that come first ("config.json", ".csv.gz"); others
        are quiet. `with_folders`: a folder can be the answer too.
        """
        super().__init__()
        self._title = title
        self._kinds = tuple(kinds)
        self._marks = marks
        self._here = Path.cwd()
        self._folder, self._started_at = first_folder(start, self._here)
        self._entered = self._folder
        """The folder that was gone to last: what a typed path starts from."""
        self._text = ""
        self._wants_to_take = False
        """Enter was pressed before the folder was read."""
        self._view = FolderView(with_kinds=bool(kinds), with_folders=with_folders)
        self._notice = ""

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content.styled(self._title, "bold"), classes="title", markup=False)
            yield Static("", classes="folder", markup=False)
            entry = PathInput(placeholder=tr("type to search, or enter a path"), max_length=4096, compact=True)
            entry.cursor_blink = False
            yield entry
            yield EntryList(self._marks.here)
            yield Static("", classes="problem", markup=False)
            yield Static(
                tr("enter open or select   ↑↓ move   backspace folder above   esc close"), classes="hint", markup=False
            )

    def on_mount(self) -> None:
        self.query_one(PathInput).focus()
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
            self.post_message(self.Listed(listing))

    @on(Worker.StateChanged)
    def _worker_failed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self._say(unforeseen_words(event.worker.error))

    @on(Listed)
    def _listed(self, event: Listed) -> None:
        event.stop()
        if event.listing.folder == self._folder:
            self._view.take(event.listing)
            self._fill()
            if self._wants_to_take:
                self._take()

    # Drawing.

    def _fill(self) -> None:
        """The entries that match; the cursor stands on the one that is most likely meant."""
        view = self._view
        if view.listing is None:
            return
        has_some = view.narrow(self._text)
        self.query_one(EntryList).show(len(view.shown), view.line, self._place())
        nothing = tr("No matches. Press backspace to show all.") if self._text and not has_some else ""
        self._say(view.listing.problem or self._notice or nothing)
        self._show_folder()

    def _place(self) -> int:
        """Where the cursor stands in a list that is new."""
        at = self._view.place_of(self._started_at) if self._started_at and not self._text else None
        # A folder that was typed to its end is meant itself; of one that was entered, a file.
        is_typed = bool(self.query_one(PathInput).value.strip())
        return at if at is not None else 0 if is_typed else self._view.usual_place()

    def _show_folder(self) -> None:
        for line in self.query(".folder").results(Static):
            line.update(cut(plain_text(str(self._folder), 4000)[::-1], max(8, line.size.width))[::-1])

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._show_folder)

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
            self._view.take(None)
            self._open(folder)
        else:
            self._fill()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._take()

    @on(EntryList.Pressed)
    def _pressed(self, event: EntryList.Pressed) -> None:
        event.stop()
        self._take()

    def _take(self) -> None:
        """Enter the folder under the cursor, or answer with the file."""
        listing = self._view.listing
        self._wants_to_take = listing is None or listing.folder != self._folder
        if self._wants_to_take:
            return
        typed = self.query_one(PathInput).value.strip()
        if typed and not self._view.shown:
            self._say(tr("{name} does not exist.", name=plain_text(typed, 200)))
            return
        if not self._view.shown:
            return
        entry = self._view.shown[self.query_one(EntryList).cursor]
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
        place = self.query_one(EntryList).cursor
        if self._view.listing is not None and place < len(self._view.shown):
            entry = self._view.shown[place]
            if entry.is_folder and entry not in (THIS_FOLDER, ABOVE):
                self._enter(self._folder / entry.name)

    def action_move(self, by: int) -> None:
        self.query_one(EntryList).move(by)

    def action_page(self, by: int) -> None:
        entries = self.query_one(EntryList)
        entries.move(by * max(2, entries.page))
