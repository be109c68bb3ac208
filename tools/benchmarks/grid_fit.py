"""What the rows of the GPU grid say: four constants fitted to one half, and the errors of the other half.

Fitted are the CUDA context (used minus reserved), the reserved factor (reserved over allocated,
with the traced replay beside it), and the pace: seconds of a step = accumulation x (flops / (e1 x
peak) + bytes / (e2 x bandwidth) + kernels x launch), with e1, e2 and launch by least squares of the
relative error. Figures of a cell are medians of its repeats.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tools.benchmarks.measured_rows import Row

Figures = dict[str, float]
MIB = 2**20


@dataclass(frozen=True)
class Fit:
    """None where no row of the half has the figures."""

    context_bytes: float | None
    reserved_factor: float | None
    flops_efficiency: float | None
    bandwidth_efficiency: float | None
    launch_s: float | None
    """Seconds of one kernel."""

    def step_s(self, cell: Figures) -> float | None:
        """Seconds of a step; None where nothing was fitted or traced."""
        terms = pace_terms(cell)
        if terms is None or self.flops_efficiency is None:
            return None
        inverse = (self.flops_efficiency, self.bandwidth_efficiency)
        parts = [term / rate for term, rate in zip(terms, inverse, strict=False) if rate]
        return sum(parts) + terms[2] * (self.launch_s or 0.0)


def figures_of(rows: Sequence[Row], half: str) -> dict[str, Figures]:
    """Cell -> the median of each figure over its repeats; cells of `half` that were measured as planned."""
    found: dict[str, Figures] = {}
    good = [row for row in rows if row["half"] == half and row["step_s"] and not row["problem"]]
    for cell, group in itertools.groupby(sorted(good, key=lambda row: row["cell"]), key=lambda row: row["cell"]):
        repeats = list(group)
        columns = {
            name: [number for row in repeats if (number := _number(row[name])) is not None] for name in repeats[0]
        }
        found[cell] = {name: statistics.median(values) for name, values in columns.items() if values}
        found[cell]["repeats"] = len(repeats)
    return found


def fit(cells: dict[str, Figures]) -> Fit:
    context = list(_ratios(cells, lambda one: one["used_bytes"] - one["reserved_bytes"]))
    reserved = list(_ratios(cells, lambda one: one["reserved_bytes"] / one["allocated_bytes"]))
    pace = _fit_pace(list(cells.values()))
    return Fit(
        statistics.median(context) if context else None,
        statistics.median(reserved) if reserved else None,
        *pace,
    )


def pace_terms(cell: Figures) -> tuple[float, float, float] | None:
    """Seconds at the card's full arithmetic and at its full bandwidth, and kernels, of one step."""
    try:
        times = cell["accumulation"]
        arithmetic = times * cell["flops"] / cell["peak_flops"]
        return arithmetic, times * cell["moved_bytes"] / cell["bandwidth_bytes_per_s"], times * cell["kernels"]
    except KeyError:
        return None


def _fit_pace(cells: list[Figures]) -> tuple[float | None, float | None, float | None]:
    """Non-negative least squares of the relative error, over every choice of the three terms."""
    rows = [(terms, cell["step_s"]) for cell in cells if (terms := pace_terms(cell)) is not None]
    if len(rows) < 3:
        return None, None, None
    matrix = np.array([[value / seconds for value in terms] for terms, seconds in rows])
    best, least = np.zeros(3), float("inf")
    for size in (1, 2, 3):
        for chosen in itertools.combinations(range(3), size):
            solved, *_ = np.linalg.lstsq(matrix[:, chosen], np.ones(len(rows)), rcond=None)
            error = float(((matrix[:, chosen] @ solved - 1) ** 2).sum())
            if (solved >= 0).all() and error < least:
                best, least = np.zeros(3), error
                best[list(chosen)] = solved
    slow_flops, slow_bytes, launch = (float(value) for value in best)
    return (1 / slow_flops if slow_flops else None, 1 / slow_bytes if slow_bytes else None, launch)


def report(rows: Sequence[Row]) -> list[str]:
    """Lines: what was fitted to one half, then each cell of the other, measured beside predicted."""
    fitted, held = fit(figures_of(rows, "fit")), figures_of(rows, "report")
    lines = [
        f"{len(rows)} probes; fitted to {len(figures_of(rows, 'fit'))} cells, reported on {len(held)}",
        f"context {_mib(fitted.context_bytes)}, reserved / allocated {_figure(fitted.reserved_factor)}, "
        f"share of peak arithmetic {_figure(fitted.flops_efficiency)}, of bandwidth "
        f"{_figure(fitted.bandwidth_efficiency)}, a kernel {_figure(fitted.launch_s, 1e6)} us",
    ]
    for name, cell in held.items():
        lines += [f"  {name} ({cell['repeats']:.0f} repeats)", *_memory_lines(cell, fitted), *_time_lines(cell, fitted)]
    failed = {row["cell"]: row["problem"] for row in rows if row["problem"]}
    return lines + [f"  not measured: {name}: {problem}" for name, problem in failed.items()]


def _memory_lines(cell: Figures, fitted: Fit) -> Iterator[str]:
    if "allocated_bytes" not in cell:
        return
    allocated = cell["allocated_bytes"]
    for what, key in (("trace", "traced_allocated_bytes"), ("plan", "planned_allocated_bytes")):
        if key in cell:
            said = cell[key]
            yield f"    allocated {_mib(allocated)}, {what} {_mib(said)} ({said / allocated - 1:+.1%})"
    if "used_bytes" in cell and fitted.context_bytes is not None and fitted.reserved_factor is not None:
        said = cell.get("traced_allocated_bytes", allocated) * fitted.reserved_factor + fitted.context_bytes
        yield f"    used {_mib(cell['used_bytes'])}, fitted {_mib(said)} ({said / cell['used_bytes'] - 1:+.1%})"
    if "used_bytes" in cell and "planned_low_bytes" in cell:
        low, high = cell["planned_low_bytes"], cell["planned_high_bytes"]
        yield f"    the plan's interval {_mib(low)} to {_mib(high)} {_word(low <= cell['used_bytes'] <= high)}"


def _time_lines(cell: Figures, fitted: Fit) -> Iterator[str]:
    seconds, said = cell["step_s"], fitted.step_s(cell)
    if said is not None:
        yield f"    step {seconds:.4f} s, fitted {said:.4f} s ({said / seconds - 1:+.1%})"
    if "planned_step_low_s" in cell:
        low, high = cell["planned_step_low_s"], cell["planned_step_high_s"]
        yield f"    step {seconds:.4f} s, the plan's range {low:.4f} to {high:.4f} s {_word(low <= seconds <= high)}"


def _word(inside: bool) -> str:
    return "holds it" if inside else "DOES NOT HOLD IT"


def _ratios(cells: dict[str, Figures], ratio: Callable[[Figures], float]) -> Iterator[float]:
    for cell in cells.values():
        try:
            yield ratio(cell)
        except KeyError:
            continue


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _mib(value: float | None) -> str:
    return "unknown" if value is None else f"{value / MIB:,.0f} MiB"


def _figure(value: float | None, scale: float = 1.0) -> str:
    return "unknown" if value is None else f"{value * scale:.3g}"
