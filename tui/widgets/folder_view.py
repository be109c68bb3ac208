"""What is in a folder, for a list to choose from."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwiz.core.language import tr, trn
from trainwiz.tui.text import size
from trainwiz.tui.widgets.lists import EntryLine

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
                        "{folder} holds more than {n} entries; these are some of them. Type the whole name of another.",
                        folder=str(folder), n=f"{MOST_ENTRIES:,}",
                    )  # fmt: skip
                    break
                entries.append(_entry(item, endings))
    except OSError as error:
        problem = tr("{folder} cannot be read: {reason}.", folder=str(folder), reason=error.strerror or str(error))
    entries.sort(key=lambda entry: (not entry.is_folder, not entry.is_wanted, entry.folded))
    return Listing(folder, tuple(entries), problem, sum(entry.is_wanted for entry in entries))


def _entry(item: os.DirEntry[str], endings: tuple[str, ...]) -> Entry:
    try:
        is_folder = item.is_dir()
    except OSError:  # A link that goes round in circles.
        is_folder = False
    folded = item.name.lower()
    return Entry(item.name, is_folder, not is_folder and bool(endings) and folded.endswith(endings), folded)


def sizes_of(listing: Listing, is_cancelled: Callable[[], bool] = lambda: False) -> dict[str, int]:
    """Name -> bytes of the first files of a listing. One that is gone or cannot be asked is left out."""
    sizes: dict[str, int] = {}
    files = (entry.name for entry in listing.entries if not entry.is_folder)
    for number, name in enumerate(files):
        if number >= MOST_SIZES or is_cancelled():
            break
        try:
            sizes[name] = (listing.folder / name).stat().st_size
        except OSError:
            continue
    return sizes


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
        self.sizes: dict[str, int] = {}
        self.shown: tuple[Entry, ...] = ()

    def take(self, listing: Listing | None) -> None:
        """Another folder, or the same one read again; None while it is read."""
        self.listing, self.sizes, self._narrowed = listing, {}, ("", ())

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
            note = trn("{n} file that fits", "{n} files that fit", wanted, n=f"{wanted:,}") if self._with_kinds else ""
            return EntryLine(tr("this folder"), note, quiet=not wanted)
        if entry is ABOVE:
            return EntryLine("..", tr("folder above"), quiet=True)
        if entry.is_folder:
            return EntryLine(f"{entry.name}/")
        note = size(self.sizes[entry.name]) if entry.name in self.sizes else ""
        return EntryLine(entry.name, note, quiet=self._with_kinds and not entry.is_wanted)
