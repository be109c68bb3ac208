"""Part: the kept rows of one data file, read by their number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from trainwiz.core.data.reader import unreadable
from trainwiz.core.errors import UsageError
from trainwiz.core.language import tr

Row = tuple[str, str | None]
"""(text, target); no target where rows have none."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Kept rows that follow each other in a file."""

    rows: int
    bytes: int
    """UTF-8 bytes of their texts and targets."""
    group: int = 0
    """Row group of a parquet file; other files have none."""
    first: int = 0
    """Position of the first kept row in a parquet file."""

    @property
    def size(self) -> int:
        """Bytes of the unit as it lies in memory: Arrow keeps 8 bytes a text beside its letters."""
        return self.bytes + 16 * self.rows


class Part(ABC):
    """Safe in loader workers: files are opened by the process that reads them."""

    units: tuple[Unit, ...]

    @property
    def rows(self) -> int:
        return sum(unit.rows for unit in self.units)

    @abstractmethod
    def row(self, number: int) -> Row:
        """The kept row with this number, from 0. Raises UsageError where the file is not what it was."""


def changed(path: Path) -> UsageError:
    """The file has other rows than when they were counted."""
    return unreadable(
        str(path), tr("was changed while the run reads it; put the file back, or resume the run to read it anew.")
    )
