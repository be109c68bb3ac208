"""Rows of files that cannot be read in the middle (gzip, JSON arrays, CSV with quotes): copied once."""

from __future__ import annotations

from trainwiz.core.data.streamed.part import Part, Row, Unit
from trainwiz.core.data.text_store import TextStore


class CopiedPart(Part):
    """The rows of one file as texts of their own."""

    def __init__(self, texts: TextStore, targets: TextStore | None, units: tuple[Unit, ...]) -> None:
        self.units = units
        self._texts = texts
        self._targets = targets

    def row(self, number: int) -> Row:
        return self._texts[number], None if self._targets is None else self._targets[number]
