"""Whether the range of nvidia-smi's figure holds what was measured, by row, and with what the other sources alone would say.

Judged are rows of which nvidia-smi's figure or torch's reserved memory was published. How far the allocator goes beyond its
replay is taken with the code that was measured, where that was traced: what was allocated is then right to a few percent. A
spread is the smallest tenth that holds nine of ten rows of a kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainwiz.core.estimate.peak import BEYOND_ALONE, BEYOND_SHARDED, BEYOND_VARIED, overheads

from tools.benchmarks.published.compare import Comparison, Figure, stated
from tools.benchmarks.published.rows import PublishedRow

KINDS = {BEYOND_ALONE: "one process, one length", BEYOND_VARIED: "varied lengths", BEYOND_SHARDED: "shared out"}
HELD = 0.9


@dataclass(frozen=True)
class Covered:
    """One row: what was measured beside the product's range, and beside ranges with another spread."""

    row: PublishedRow
    source: str
    beyond: float
    """The product's spread for rows of its kind."""
    measured: int
    today: Figure
    explained: Figure
    """With the code that was measured, where that was traced."""
    outside: int
    """Bytes of the range's upper end that are no memory of torch: the context at most."""

    @property
    def needed(self) -> float:
        """The spread with which the range would just hold it."""
        return (self.measured - self.outside) / ((self.explained.high - self.outside) / (1 + self.beyond)) - 1

    @property
    def holds(self) -> bool:
        return self.today.low <= self.measured <= self.today.high

    @property
    def width(self) -> float:
        return (self.today.high - self.today.low) / self.today.point


def covered(compared: Sequence[Comparison]) -> list[Covered]:
    found = []
    for one in compared:
        row = one.row
        if row.work is None or (row.figure not in ("device used", "reserved") and not row.smi):
            continue
        work = stated(row.id, row.work)
        beside, by_smi = overheads(work), row.figure == "device used" or row.smi > 0
        today = one.smi or one.as_stated
        outside = beside.context + beside.spread if by_smi else 0
        figures = (row.smi or row.measured, today, one.shown_as_measured or today, outside)
        found.append(Covered(row, row.source.replace(",", "").split()[0], beside.beyond, *figures))
    return found


def spread_of(rows: Sequence[Covered]) -> float:
    """The smallest tenth that holds nine of ten of these; 0.1 at least."""
    needs = sorted(row.needed for row in rows)
    place = math.ceil(HELD * len(needs)) - 1
    return max(0.1, math.ceil(round(10 * needs[place], 3)) / 10)


def left_out_spread(rows: Sequence[Covered], row: Covered) -> float | None:
    """What the rows of its kind from all other sources say; None where there are none."""
    others = [one for one in rows if one.beyond == row.beyond and one.source != row.source]
    return spread_of(others) if others else None


def coverage_table(compared: Sequence[Comparison]) -> str:
    rows = covered(compared)
    lines = [
        "| row | source | kind | figure | measured | shown | range | width | holds it | needs a spread of | other sources say | holds it |",
        "|---" * 12 + "|",
    ]
    for row in sorted(rows, key=lambda one: (list(KINDS).index(one.beyond), one.row.id)):
        other = left_out_spread(rows, row)
        cells = [
            row.row.id, row.source, KINDS[row.beyond], "reserved" if row.outside == 0 else "nvidia-smi",
            f"{row.measured / 1e9:.2f} GB", f"{row.today.point / 1e9:.2f} GB",
            f"{row.today.low / 1e9:.2f} to {row.today.high / 1e9:.2f}", f"{row.width:.0%}", _yes(row.holds),
            f"{row.needed:+.0%}", "" if other is None else f"{other:.1f}", "" if other is None else _yes(row.needed <= other),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def coverage_words(rows: Sequence[Covered]) -> str:
    """The sums of the table, for the benchmark's last lines."""
    judged = [(row, left_out_spread(rows, row)) for row in rows]
    held = sum(other is not None and row.needed <= other for row, other in judged)
    kinds = ", ".join(f"{KINDS[one]} {spread_of([row for row in rows if row.beyond == one]):.1f}" for one in KINDS)
    return f"with each source left out {held} of {sum(other is not None for _, other in judged)}; by all rows: {kinds}"


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"
