"""What is in a folder, for a list to choose from: folders, then the files that are looked for, then the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwiz.core.language import tr

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
