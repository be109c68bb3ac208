"""A glance at a data source: its columns and first rows as the file has them, also where the rows cannot be used yet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwiz.core.config import DataSource, RunConfig
from trainwiz.core.config.values import Task
from trainwiz.core.data.columns import chooses_by_position, find_columns
from trainwiz.core.data.formats import open_reader
from trainwiz.core.data.reader import Column, Reader
from trainwiz.core.data.rows import has_target
from trainwiz.core.data.sources import all_sources, find_files
from trainwiz.core.errors import TrainwizError
from trainwiz.core.telemetry.paths import at_home

GLANCE_ROWS = 8
LONGEST_CELL = 2_000
"""Characters of a cell; more are on no screen."""
NAME_LIKE = re.compile(r"[^\W\d][\w ./()-]{0,38}[\w)]|[^\W\d]")
"""A name that can be typed, and that no reader takes for the first row of a file without a header."""


@dataclass(frozen=True, slots=True)
class Glance:
    """What stands at the beginning of the first file of the first source."""

    path: Path
    """The file that was looked into."""
    files: int
    """How many files the source has."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[str | None, ...], ...]
    """One cell for each column, as text; None where the file has no value, "" where it has an empty text."""
    text: int | None = None
    """Position of the column that is learnt from; None where nobody has said and no name tells."""
    target: int | None = None
    """Position of the column to answer with; None where rows have none, or it is not known."""
    has_target: bool = False
    """Whether the rows are to have a target."""

    def setting_of(self, position: int) -> str:
        """How text_column or target_column names a column: by its name, by its position where the name may mean another."""
        name = self.columns[position].name
        names = [column.name for column in self.columns]
        return name if names.count(name) == 1 and NAME_LIKE.fullmatch(name) else str(position)


def glance_at(config: RunConfig, folder: Path | None = None) -> Glance | None:
    """The beginning of the first training source; relative paths are from `folder` (default: here).

    Asks nothing of the hub and raises nothing: None where no file is here or none of it can be read, which
    `summarize_data` explains.
    """
    if not config.data.sources:
        return None
    key, source = all_sources(config)[0][0]
    try:
        found = find_files(source, key, folder or Path.cwd(), task=config.task, ask=False)
        path = found.files[0]
        reader = open_reader(path, found.kind, by_position=chooses_by_position(source))
        rows = _first_rows(reader)
    except (TrainwizError, OSError, IndexError):
        return None
    text, target = _mapped(reader.columns, source, config.task)
    return Glance(path, len(found.files), reader.columns, rows, text, target, has_target(source, config.task))


def stamp_of(config: RunConfig, folder: Path | None = None) -> str:
    """What changes when somebody writes to a source: size and time of its file, or of its folder."""
    stamps = []
    for _, source in (*all_sources(config)[0], *all_sources(config)[1]):
        try:
            state = ((folder or Path.cwd()) / at_home(Path(source.name))).stat()
            stamps.append(f"{state.st_size} {state.st_mtime_ns}")
        except (OSError, RuntimeError, ValueError):
            stamps.append("-")
    return ", ".join(stamps)


def _first_rows(reader: Reader) -> tuple[tuple[str | None, ...], ...]:
    """As many rows as can be read: a broken one ends them."""
    for count in (GLANCE_ROWS, 4, 2, 1):
        try:
            return tuple(tuple(cell and cell[:LONGEST_CELL] for cell in row) for row in reader.head(count))
        except TrainwizError:
            continue
    return ()


def _mapped(columns: Sequence[Column], source: DataSource, task: Task) -> tuple[int | None, int | None]:
    """Positions of text and target, each by itself where one of them cannot be found."""
    wants_target = has_target(source, task)
    try:
        found = find_columns(columns, source, "", "", task, wants_target)
    except TrainwizError:
        return _named(columns, source.text_column), _named(columns, source.target_column) if wants_target else None
    return found[0], found[1] if wants_target else None


def _named(columns: Sequence[Column], wanted: str | int | None) -> int | None:
    names = [column.name for column in columns]
    if isinstance(wanted, str) and wanted in names:
        return names.index(wanted)
    if wanted is not None and str(wanted).isdecimal() and int(wanted) < len(columns):
        return int(wanted)
    return None
