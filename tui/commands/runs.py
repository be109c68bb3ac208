"""`trainwiz runs list`."""

from __future__ import annotations

import sys

from trainwiz.core.errors import EXIT_FINISHED
from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text
from trainwiz.core.run.listing import RunSummary, list_runs
from trainwiz.core.run.names import DEFAULT_ROOT
from trainwiz.tui.commands.runs_words import MARKS, WIDEST_VALUE, moment, steps
from trainwiz.tui.output import paint, say, say_json
from trainwiz.tui.table_text import aligned

HEADINGS = (mark("name"), mark("status"), mark("step"), mark("loss"), mark("model"), mark("started"))
WIDEST_NAME = 48


def run_list(*, as_json: bool) -> int:
    """All runs in ./runs, the newest first."""
    runs = list_runs(DEFAULT_ROOT)
    if as_json:
        say_json({"runs": [run.to_json() for run in runs]})
        return EXIT_FINISHED
    if not runs:
        say(tr("There are no runs in runs/ yet. `trainwiz --profile cpu-demo --yes` makes one."))
        return EXIT_FINISHED
    rows = [tuple(map(tr, HEADINGS))]
    rows += [_row(run) for run in runs]
    for number, row in enumerate(aligned(rows, right=(2, 3))):
        if number:
            sign, style = MARKS[runs[number - 1].status]
            row[1] = paint(f"{sign} {row[1]}", style, sys.stdout)
        else:
            row[1] = f"  {row[1]}"
        say("  ".join(row).rstrip())
    return EXIT_FINISHED


def _row(run: RunSummary) -> tuple[str, str, str, str, str, str]:
    return (
        plain_text(run.name, WIDEST_NAME),
        tr(run.status),
        steps(run),
        "-" if run.loss is None else f"{run.loss:.3f}",
        plain_text(run.model or "-", WIDEST_VALUE),
        moment(run.started_s),
    )
