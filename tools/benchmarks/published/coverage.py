"""Whether the range of nvidia-smi's figure holds what was measured, by row, and with what the other sources alone would say.

Judged are rows of which nvidia-smi's figure or torch's reserved memory was published. How far the allocator goes beyond its
replay is taken with the code that was measured, where that was traced: what was allocated is then right to a few percent. A
spread is the smallest tenth that holds nine of ten rows of a kind whose code was read: of the others nobody knows how much is
the allocator's. Rows of varied lengths have no such row that was not replayed; their spread is that of replays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainwiz.core.estimate.peak import BEYOND_ALONE, BEYOND_SHARDED, BEYOND_VARIED, VARIED, beyond, overheads
from trainwiz.core.tracing.request import TraceRequest, TraceResult
from trainwiz.core.tracing.worker import TraceWorker

from tools.benchmarks.published.compare import TIMEOUT_S, Comparison, Figure, stated
from tools.benchmarks.published.rows import PublishedRow, quantiles

KINDS = {
    BEYOND_ALONE: "one process, replayed",
    BEYOND_VARIED: "varied lengths, not replayed",
    BEYOND_SHARDED: "shared out",
}
HELD = 0.9
NOT_READ = ("ms-swift", "DeepLearningExamples", "ChatGLM3")
"""Parts of sources and frameworks whose code was not read: what it allocates is not known."""


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
    read: bool
    """The code that ran was read."""
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
    def holds_as_measured(self) -> bool:
        """With the code that ran: what the range is about."""
        return self.explained.low <= self.measured <= self.explained.high

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
        read = not any(name in f"{row.framework} {row.source}" for name in NOT_READ)
        figures = (row.smi or row.measured, today, one.shown_as_measured or today, read, outside)
        of_kind = beyond(work, replayed=one.tier == "traced" and not one.problem)
        found.append(Covered(row, row.source.replace(",", "").split()[0], of_kind, *figures))
    return found


def spread_of(rows: Sequence[Covered]) -> float:
    """The smallest tenth that holds nine of ten of these whose code was read; 0.1 at least, and where there are none."""
    needs = sorted(row.needed for row in rows if row.read)
    if not needs:
        return 0.1
    place = math.ceil(HELD * len(needs)) - 1
    return max(0.1, math.ceil(round(10 * needs[place], 3)) / 10)


def left_out_spread(rows: Sequence[Covered], row: Covered) -> float | None:
    """What the rows of its kind from all other sources say; None where there are none."""
    others = [one for one in rows if one.beyond == row.beyond and one.source != row.source and one.read]
    return spread_of(others) if others else None


def coverage_table(compared: Sequence[Comparison]) -> str:
    rows = covered(compared)
    lines = [
        "| row | source | code | kind | figure | measured | shown | range | width | in range | needed spread | spread from other sources | in range |",
        "|---" * 13 + "|",
    ]
    for row in sorted(rows, key=lambda one: (list(KINDS).index(one.beyond), not one.read, one.row.id)):
        other = left_out_spread(rows, row)
        cells = [
            row.row.id, row.source, "read" if row.read else "not read", KINDS[row.beyond], "reserved" if row.outside == 0 else "nvidia-smi",
            f"{row.measured / 1e9:.2f} GB", f"{row.today.point / 1e9:.2f} GB",
            f"{row.today.low / 1e9:.2f} to {row.today.high / 1e9:.2f}", f"{row.width:.0%}", _yes(row.holds),
            f"{row.needed:+.0%}", "" if other is None else f"{other:.1f}", "" if other is None else _yes(row.needed <= other),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def coverage_words(rows: Sequence[Covered]) -> str:
    """The sums of the table, for the benchmark's last lines."""
    judged = [(row, left_out_spread(rows, row)) for row in rows if row.read]
    held = sum(other is not None and row.needed <= other for row, other in judged)
    by_kind = {words: [row for row in rows if row.beyond == one and row.read] for one, words in KINDS.items()}
    kinds = ", ".join(f"{words} {spread_of(of_kind):.1f}" for words, of_kind in by_kind.items() if of_kind)
    return f"with each source left out {held} of {sum(other is not None for _, other in judged)}; by all rows: {kinds}"


# Rows of varied lengths: what replays say where no published figure does.

REPLAYED = ("M001", "M136", "M137", "T1", "T3", "T14a")
MIXTURES = {"even, from an eighth": tuple(range(8, 65)), "as chats": quantiles(20, 14)}
"""Quantiles of the lengths of rows, in 64ths of the longest."""


@dataclass(frozen=True)
class Mixed:
    """One run replayed on rows of varied lengths, over what it allocates."""

    name: str
    mixture: str
    low: float
    likely: float
    high: float
    held: float


def mixed(rows: Sequence[PublishedRow], worker: TraceWorker) -> Iterator[Mixed]:
    """The workloads of some rows, as if their rows were of such lengths."""
    for row in rows:
        if row.id not in REPLAYED or row.work is None:
            continue
        length = max(row.work.length, 512)
        for name, shares in MIXTURES.items():
            lengths = tuple(min(length, max(1, share * length // 64)) for share in shares)
            work = replace(row.work, length=length, target_length=length, padded=True, row_lengths=lengths)
            request = TraceRequest.of(work)
            assert request is not None
            answer = worker.ask(request, TIMEOUT_S)
            if isinstance(answer, TraceResult) and answer.replay:
                replay, whole = answer.replay, answer.replay.allocated
                sizes = (replay.low, replay.likely, replay.high, replay.held)
                yield Mixed(f"{row.words}, up to {length}", name, *(size / whole for size in sizes))


def mixed_table(found: Sequence[Mixed]) -> str:
    lines = [
        "| run | lengths | least | middle | most | most / formulas' likely | in use at most |",
        "|---" * 7 + "|",
    ]
    for one in found:
        sizes = [f"{size:.2f}" for size in (one.low, one.likely, one.high, one.high / VARIED.likely, one.held)]
        lines.append("| " + " | ".join([one.name, one.mixture, *sizes]) + " |")
    return "\n".join(lines)


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"
