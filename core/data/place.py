"""Where in a data file something stands, in words."""

from __future__ import annotations

from pathlib import Path

from trainwiz.core.language import mark, tr

PLACES = {
    "line": mark("{path}, line {number}"),
    "row": mark("{path}, row {number}"),
    "byte": mark("{path}, byte {number}"),
}
"""By the unit that a reader counts its positions in."""


def place_of(path: Path, unit: str, number: int) -> str:
    """ "rows.csv, line 12"; numbers are from 1."""
    return tr(PLACES[unit], path=path, number=number)
