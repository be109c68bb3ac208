"""Rows of text in columns, aligned by cells."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trainwiz.tui.cells import cells, pad


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[list[str]]:
    """Each text filled up to the width of its column; the columns in `right` end at the same place."""
    widths = [max(cells(text) for text in column) for column in zip(*rows, strict=True)]
    return [
        [pad(text, width, right=number in right) for number, (text, width) in enumerate(zip(row, widths, strict=True))]
        for row in rows
    ]
