"""FolderView: the entries of a folder that are shown, and how each of them reads."""

from __future__ import annotations

from trainwiz.core.language import tr, trn
from trainwiz.tui.figures import size
from trainwiz.tui.widgets.entry_list import EntryLine
from trainwiz.tui.widgets.folder_entries import Entry, Listing, matching_entries

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
