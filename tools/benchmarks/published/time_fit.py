"""Fits the constants of core/estimate/time.py to the published paces, and judges each source without its own rows:

python -m tools.benchmarks.published.time_fit             # what a fit says, beside what the product has
python -m tools.benchmarks.published.time_fit --write     # the tables of docs/estimator.md

A source counts as the root of its rows, and rows that lie far off pull by their distance only (Huber). The shares of single families
stay near that of their format (a deviation of 15 %).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any

from trainwiz.core.estimate import time
from trainwiz.core.estimate.flops import Cost, cost_of
from trainwiz.core.estimate.time import EFFICIENCIES, Rate, cell_of
from trainwiz.core.estimate.workload import Workload

from tools.benchmarks.published.report import PAGE, replaced
from tools.benchmarks.published.time_rows import TimeRow, loop_s, planned, rate_of, read_time_rows

FORMATS = {"half": 0.64, "tf32": 0.60, "fp32": 0.50}
SINGLE_ONES = {"launch": 15.5e-6, "optimizer": 1.7, "exposed": 0.35, "bytes": 1.0}
NEAR = {"half": 0.3, "tf32": 0.3, "fp32": 0.3, "launch": 0.3, "optimizer": 0.4, "exposed": 0.7, "bytes": 0.3}
"""Deviation, in logarithms, that each may have from what it began with."""
OF_A_FAMILY = 0.15
NAMES = {"": "others", "Ampere": "Ampere (workstation, A10)"}
ONE_ROW, FAR = 0.15, 1.5


@dataclass(frozen=True)
class Known:
    """A row with what its micro-batch costs."""

    row: TimeRow
    work: Workload
    cost: Cost
    cell: tuple[str, str]
    rate: Rate
    optimizer_s: float
    exchanged_s: float
    loop_s: float


def known_rows() -> list[Known]:
    found = []
    for row in read_time_rows():
        if row.work is None or row.card is None:
            continue
        cell, rate, work = cell_of(row.card, row.precision), rate_of(row), row.work
        parts = time._optimizer(work, rate) / time.OPTIMIZER, time._communication(work, rate), loop_s(row.id, work)
        found.append(Known(row, work, cost_of(work), cell, rate, *parts))
    return found


Constants = dict[Any, float]
"""Logarithms: of a format's share, a cell's factor upon it, and the single ones."""


def start(rows: Sequence[Known]) -> Constants:
    shares = {name: log(share) for name, share in FORMATS.items()}
    cells = {one.cell: 0.0 for one in rows if one.cell[0]}
    return {**shares, **{name: log(value) for name, value in SINGLE_ONES.items()}, **cells}


def predicted(known: Known, constants: Constants) -> float:
    """Seconds of a step with other constants: the sum of core/estimate/time.py, whose code is slower."""
    share = exp(constants[known.cell[1]] + constants.get(known.cell, 0.0))
    computed = known.cost.flops / (share * known.rate.flops)
    moved = exp(constants["bytes"]) * known.cost.moved_bytes / known.rate.bandwidth
    busy = known.work.accumulation * max(computed + moved, exp(constants["launch"]) * known.cost.kernels)
    seen = max(exp(constants["exposed"]) * known.exchanged_s, known.exchanged_s - busy)
    return busy + exp(constants["optimizer"]) * known.optimizer_s + seen + known.loop_s


def fit(rows: Sequence[Known]) -> Constants:
    """Coordinate descent: a dozen values, all of them smooth."""
    first = start(rows)
    here, step = dict(first), 0.2
    best = _loss(rows, here, first)
    while step > 2e-3:
        improved = False
        for name in here:
            for change in (step, -step):
                tried = {**here, name: here[name] + change}
                loss = _loss(rows, tried, first)
                if loss < best - 1e-9:
                    here, best, improved = tried, loss, True
        step = step if improved else step / 2
    return here


def _loss(rows: Sequence[Known], constants: Constants, first: Constants) -> float:
    sources = Counter(one.row.source for one in rows)
    total = sum(((constants[name] - first[name]) / NEAR.get(name, OF_A_FAMILY)) ** 2 for name in constants)
    for one in rows:
        away = abs(log(predicted(one, constants) / one.row.step_s)) / ONE_ROW
        huber = away**2 if away < FAR else 2 * FAR * away - FAR**2
        total += 2 / sqrt(sources[one.row.source]) * huber
    return total


def judged(rows: Sequence[Known]) -> dict[str, float]:
    """Row -> seconds by constants that its source had no part in."""
    found = {}
    for source in sorted({one.row.source for one in rows}):
        constants = {**start(rows), **fit([one for one in rows if one.row.source != source])}
        found.update({one.row.id: predicted(one, constants) for one in rows if one.row.source == source})
    return found


def table(rows: Sequence[Known], others: dict[str, float]) -> Iterator[str]:
    yield "| row | source | run | measured | by formulas | range | width | in range | without its source | in range |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for one in rows:
        row, range_ = one.row, planned(one.row)
        factor = range_.high / range_.likely
        other = others[row.id]
        yield (
            f"| {row.id} | {row.source} | {row.words} | {row.step_s:.3g} s | {range_.likely:.3g} s | "
            f"{range_.low:.3g} to {range_.high:.3g} | "
            f"{range_.high / range_.low:.1f} | {_word(range_.low <= row.step_s <= range_.high)} | {other:.3g} s | "
            f"{_word(1 / factor <= row.step_s / other <= factor)} |"
        )


def cells(rows: Sequence[Known], fitted: Constants) -> Iterator[str]:
    yield "| cards | format | share of the peak | refitted today | rows |"
    yield "|---|---|---|---|---|"
    for (family, format), share in EFFICIENCIES.items():
        said = exp(fitted[format] + fitted.get((family, format), 0.0))
        own = [one.row.id for one in rows if one.cell == (family, format)]
        yield f"| {NAMES.get(family, family)} | {format} | {share} | {said:.3f} | {', '.join(own) or 'none'} |"


def _word(holds: bool) -> str:
    return "yes" if holds else "no"


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks.published.time_fit")
    parser.add_argument("--write", action="store_true", help="into docs/estimator.md")
    choices = parser.parse_args(words)
    rows = known_rows()
    if not rows:
        sys.exit("The table of published paces is not here: ../shared/data/measurements/throughput.csv.")
    fitted, others = fit(rows), judged(rows)
    for name in SINGLE_ONES:
        print(f"{name}: {exp(fitted[name]):.3g}")
    tables = {"time": [*table(rows, others)], "efficiency": [*cells(rows, fitted)]}
    for name, lines in tables.items():
        if choices.write:
            page = replaced(PAGE.read_text(encoding="utf-8"), name, "\n".join(lines))
            PAGE.write_text(page, encoding="utf-8")
        print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
