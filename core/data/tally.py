"""SourceTally: what was counted and noticed over one source while its rows were read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from trainwiz.core.config import DataSource
from trainwiz.core.data.place import place_of
from trainwiz.core.findings import Finding
from trainwiz.core.language import tr, trn

HUGE_CHARACTERS = 1_000_000
"""A row this long is seldom meant to be one row."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where some rows stand."""

    path: Path
    unit: str
    positions: np.ndarray
    """(n,) int64, from 1."""

    def of(self, row: int) -> str:
        return place_of(self.path, self.unit, int(self.positions[row]))


@dataclass(slots=True)
class SourceTally:
    """Counts over one source, filled while its rows are read."""

    rows: int = 0
    """Rows after filters: exact or extrapolated from the rows that were read."""
    exact: bool = True
    sampled: bool = False
    """Rows were left out that the reader jumped over."""
    seen: int = 0
    kept: int = 0
    empty: int = 0
    bytes_on_disk: int = 0
    columns: tuple[str, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    _first_empty: str = ""
    _longest: int = 0
    _longest_place: str = ""

    def add_empty(self, place: Place, empty: np.ndarray) -> None:
        """`empty` (n,) bool: rows without a text or without a target."""
        count = int(empty.sum())
        if count and not self.empty:
            self._first_empty = place.of(int(np.argmax(empty)))
        self.empty += count

    def add_lengths(self, place: Place, characters: np.ndarray) -> None:
        """`characters` (n,) int: the longer side of each kept row, 0 for a row that is left out."""
        longest = int(characters.argmax()) if len(characters) else 0
        if len(characters) and int(characters[longest]) > self._longest:
            self._longest = int(characters[longest])
            self._longest_place = place.of(longest)

    def add_broken(self, source: DataSource, key: str, files: int) -> None:
        """Files that cannot be read, beside those that have a finding each."""
        message = trn(
            "{n} more file of {name} cannot be read.",
            "{n} more files of {name} cannot be read.",
            files,
            name=source.name,
        )
        self._error("broken_data", key, message)

    def conclude(self, source: DataSource, key: str) -> None:
        """Errors for a source without rows, warnings for rows that hold nothing or far too much."""
        if self.findings:
            return
        name = source.name
        if self.seen == 0:
            self._error("empty_data", key, tr("{name} holds no rows.", name=name))
        elif self.kept == 0 and self.empty == self.seen:
            self._error(
                "empty_data",
                key,
                tr(
                    "all {seen} rows of {name} are empty (the first: {first}).",
                    seen=self.seen,
                    name=name,
                    first=self._first_empty,
                ),
            )
        elif self.kept == 0:
            low, high = source.min_characters or 0, source.max_characters
            span = (
                tr("{low} to {high} characters", low=low, high=high)
                if high is not None
                else tr("at least {low} characters", low=low)
            )
            self._error(
                "all_filtered",
                f"{key}.min_characters" if high is None else f"{key}.max_characters",
                tr(
                    "all {seen} rows of {name} are filtered away: none has {span}; widen min_characters and "
                    "max_characters.",
                    seen=self.seen,
                    name=name,
                    span=span,
                ),
            )
        else:
            self._warn(name, key)

    def _warn(self, name: str, key: str) -> None:
        if self.empty:
            message = trn(
                "{n} empty row of {name} is left out (the first: {first}).",
                "{n} empty rows of {name} are left out (the first: {first}).",
                self.empty,
                name=name,
                first=self._first_empty,
            )
            self.findings.append(Finding("empty_rows", "warning", key, message))
        if self._longest >= HUGE_CHARACTERS:
            message = tr(
                "{place} holds {longest} characters in one row; split it into several rows, or leave "
                "it out with {key}.max_characters.",
                place=self._longest_place,
                longest=f"{self._longest:,}",
                key=key,
            )
            self.findings.append(Finding("huge_row", "warning", key, message))

    def _error(self, code: str, where: str, message: str) -> None:
        self.findings.append(Finding(code=code, severity="error", where=where, message=message))
