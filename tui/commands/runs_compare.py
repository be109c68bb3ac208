"""`trainwiz runs compare`."""

from __future__ import annotations

from typing import Any

from trainwiz.core.errors import EXIT_FINISHED
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.core.run.compare import RESULTS, compare_runs
from trainwiz.core.run.find import find_run
from trainwiz.tui.commands.runs_words import WIDEST_VALUE
from trainwiz.tui.output import say, say_json
from trainwiz.tui.table_text import aligned


def run_compare(runs: list[str], *, as_json: bool) -> int:
    """Settings that differ, and results, side by side."""
    document = compare_runs([find_run(run) for run in runs])
    if as_json:
        say_json(document)
        return EXIT_FINISHED
    rows: list[list[str]] = [["", *(plain_text(name, WIDEST_VALUE) for name in document["runs"])]]
    planned = document["planned"]
    rows += [
        [plain_text(key), *map(_setting, values, planned.get(key, values))]
        for key, values in document["settings"].items()
    ]
    if len(rows) == 1:
        rows.append([tr("settings"), *(tr("the same") for _ in document["runs"])])
    split = len(rows)
    for key, label in RESULTS:
        values = map(_value, document["results"][key])
        rows.append([tr(label), *(map(tr, values) if key == "status" else values)])
    for number, row in enumerate(aligned(rows)):
        if number == split:
            say()
        say("  ".join(row).rstrip())
    return EXIT_FINISHED


def _setting(value: Any, planned: Any) -> str:
    """The value of the newest attempt, with the planned one where recovery changed it."""
    if value == planned:
        return _value(value)
    return tr("{value} (planned {planned})", value=_value(value), planned=_value(planned))


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return plain_text(f"{value:.6g}" if isinstance(value, float) else value, WIDEST_VALUE)
