"""`trainwiz runs list [--all]`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trainwiz.core.errors import EXIT_FINISHED, usage_error
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plain import plain_text
from trainwiz.core.run.listing import RunSummary, list_runs, list_runs_elsewhere
from trainwiz.core.run.names import DEFAULT_ROOT
from trainwiz.tui.cells import cells
from trainwiz.tui.commands.runs_words import MARKS, WIDEST_VALUE, moment, steps
from trainwiz.tui.output import paint, say, say_json, width_of
from trainwiz.tui.table_text import aligned

HEADINGS = (mark("name"), mark("status"), mark("step"), mark("loss"), mark("model"), mark("started"))
WIDEST_NAME = 48
NARROWEST_NAME, SHORTEST_NAME = 26, 10
"""Columns go until a name has the first; a terminal that is narrower still cuts it down to the second."""
LEAST_TOLD_FIRST = (4, 5, 3)
"""Columns that go, in this order, where a terminal is too narrow for all: model, started, loss."""
GAP = 2


def run_list(*, as_json: bool, everywhere: bool = False) -> int:
    """All runs in ./runs, the newest first; with `everywhere` also those of this user that lie in other folders.

    Raises UsageError when runs/ may not be read.
    """
    if DEFAULT_ROOT.is_dir() and not os.access(DEFAULT_ROOT, os.R_OK | os.X_OK):
        reason = tr("Permission denied")
        message = tr("{path} cannot be read: {reason}.", path=DEFAULT_ROOT, reason=reason)
        raise usage_error("not_readable", str(DEFAULT_ROOT), message)
    here = list_runs(DEFAULT_ROOT)
    elsewhere = list_runs_elsewhere(DEFAULT_ROOT) if everywhere or not (here or as_json) else []
    runs = here + elsewhere if everywhere else here
    if as_json:
        say_json({"runs": [run.to_json() for run in runs]})
        return EXIT_FINISHED
    if not runs:
        say(_nothing(len(elsewhere)))
        return EXIT_FINISHED
    rows = [[*map(tr, HEADINGS), *([tr("folder")] if everywhere else [])]]
    rows += [[*_row(run), *([plain_text(Path(run.path).parent)] if everywhere else [])] for run in runs]
    for number, row in enumerate(aligned(*_fitted(rows, width_of(sys.stdout)))):
        if number:
            sign, style = MARKS[runs[number - 1].status]
            row[1] = paint(f"{sign} {row[1]}", style, sys.stdout)
        else:
            row[1] = f"  {row[1]}"
        say("  ".join(row).rstrip())
    return EXIT_FINISHED


def _fitted(rows: list[list[str]], width: int | None) -> tuple[list[list[str]], tuple[int, ...]]:
    """The rows as a terminal of so many cells holds them, and which columns are numbers."""
    columns = list(range(len(rows[0])))
    widths = [max(cells(row[column]) for row in rows) for column in columns]
    widths[1] += GAP
    for least in (None, *LEAST_TOLD_FIRST):
        columns = [column for column in columns if column != least]
        room = 0 if width is None else width - sum(widths[column] + GAP for column in columns[1:])
        if width is None or room >= min(widths[0], NARROWEST_NAME):
            break
    kept = [[row[column] for column in columns] for row in rows]
    if width is not None:
        kept = [[plain_text(name, max(room, SHORTEST_NAME)), *others] for name, *others in kept]
    return kept, tuple(place for place, column in enumerate(columns) if column in (2, 3))


def _nothing(elsewhere: int) -> str:
    if elsewhere:
        return trn(
            "There are no runs in runs/ here; {n} run lies elsewhere: trainwiz runs list --all",
            "There are no runs in runs/ here; {n} runs lie elsewhere: trainwiz runs list --all",
            elsewhere,
        )
    return tr("There are no runs in runs/ yet. `trainwiz --profile cpu-demo --yes` makes one.")


def _row(run: RunSummary) -> tuple[str, str, str, str, str, str]:
    return (
        plain_text(run.name, WIDEST_NAME),
        tr(run.status),
        steps(run),
        "-" if run.loss is None else f"{run.loss:.3f}",
        plain_text(run.model or "-", WIDEST_VALUE),
        moment(run.started_s),
    )
