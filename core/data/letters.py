"""Letters that the protein alphabet does not have: where they stand, in one sentence a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from trainwiz.core.data.place import place_of
from trainwiz.core.data.proteins import LETTERS, OUTSIDE, EncodedProteins
from trainwiz.core.data.rows import KeptRows
from trainwiz.core.findings import Finding
from trainwiz.core.language import tr, trn

SHOWN_LETTERS = 5


@dataclass(slots=True)
class _InFile:
    position: int
    unit: str
    letters: set[str] = field(default_factory=set)
    rows: int = 0


def _is_outside(letter: str) -> bool:
    return ord(letter) > 127 or bool(LETTERS[ord(letter)] == OUTSIDE)


@dataclass(slots=True)
class LetterCheck:
    """Collects what is outside the alphabet, and how many letters are read as <unk>."""

    unknown: int = 0
    _files: dict[Path, _InFile] = field(default_factory=dict)

    def add(self, rows: KeptRows, proteins: EncodedProteins) -> None:
        self.unknown += proteins.unknown_letters()
        outside = proteins.letters_outside()
        if len(outside) == 0:
            return
        first = int(outside[0])
        text = rows.texts[first].as_py()
        found = self._files.get(rows.path)
        if found is None:
            letter = next(index for index, ch in enumerate(text) if _is_outside(ch))
            position = rows.line_of(int(rows.positions[first]), letter)
            found = self._files[rows.path] = _InFile(position, rows.unit)
        found.rows += len(outside)
        if len(found.letters) < SHOWN_LETTERS:
            found.letters.update(ch for ch in text if _is_outside(ch))

    def findings(self, key: str) -> list[Finding]:
        """One error a file; one warning when letters are read as <unk>."""
        found = []
        for path, place in self._files.items():
            letters = ", ".join(repr(letter) for letter in sorted(place.letters)[:SHOWN_LETTERS])
            where = place_of(path, place.unit, place.position)
            more = where
            if place.rows > 1:
                others = place.rows - 1
                more = trn(
                    "{place} and {n} more row", "{place} and {n} more rows", others, place=where, n=f"{others:,}"
                )
            message = tr(
                "{place}: letters outside the protein alphabet: {letters}; choose another column "
                "({key}.text_column), a model that reads text, or clean the file.",
                place=more,
                letters=letters,
                key=key,
            )
            found.append(Finding("not_protein", "error", where, message))
        if self.unknown and not found:
            found.append(
                Finding(
                    "unknown_letters",
                    "warning",
                    key,
                    tr("{unknown} letters J or j are read as <unk>.", unknown=self.unknown),
                )
            )
        return found
