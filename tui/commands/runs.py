"""`trainwiz runs ...`: list, compare, join, remove, resume."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.errors import EXIT_FINISHED, usage_error
from trainwiz.core.files import bytes_below
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.run.checkpoints import list_checkpoints
from trainwiz.core.run.folder import DEFAULT_ROOT, RunFolder
from trainwiz.core.run.identity import PARTS
from trainwiz.core.run.listing import (
    RESULTS,
    RunSummary,
    check_removable,
    compare_runs,
    find_run,
    list_runs,
    list_runs_elsewhere,
    remove_run,
)
from trainwiz.core.run.state import read_state
from trainwiz.core.text import moment_words, plain_text
from trainwiz.tui.output import is_terminal, say, say_json, width_of
from trainwiz.tui.run_words import painted_status, steps_of
from trainwiz.tui.text import aligned, cells, size

# What the commands about runs have in common: steps and moments in words.

WIDEST_VALUE = 36


def moment(time_s: float | None) -> str:
    return "-" if time_s is None else moment_words(time_s)


# `trainwiz runs list [--all]`.

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
            row[1] = painted_status(runs[number - 1].status, row[1])
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
        steps_of(run.step, run.max_steps),
        "-" if run.loss is None else f"{run.loss:.3f}",
        plain_text(run.model or "-", WIDEST_VALUE),
        moment(run.started_s),
    )


# `trainwiz runs compare`.


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


# `trainwiz runs remove`: a run's folder goes, after asking.


def run_remove(run: str, *, yes: bool) -> int:
    """Delete a run's folder, after asking; `--yes` answers."""
    folder = find_run(run, whole=yes)
    check_removable(folder)
    what = _what_goes(folder)
    if not yes:
        if not is_terminal(sys.stdin):
            raise usage_error("needs_answer", "--yes", tr("Removing {what} needs an answer; add --yes.", what=what))
        try:
            answer = input(tr("Remove {what} for good? [y/N] ", what=what))
        except (EOFError, KeyboardInterrupt):
            answer = ""
            say()
        if answer.strip().lower() not in ("y", "yes", "是"):
            say(tr("Nothing was removed."))
            return EXIT_FINISHED
    remove_run(folder)
    say(tr("Removed {what}.", what=what))
    return EXIT_FINISHED


def _what_goes(folder: RunFolder) -> str:
    checkpoints = len(list_checkpoints(folder))
    parts = [size(bytes_below(folder.path, on_disk=True))]
    if checkpoints:
        parts.append(trn("{n} checkpoint", "{n} checkpoints", checkpoints))
    if folder.final_model.is_dir():
        parts.append(tr("the final model"))
    return tr("{folder} ({parts})", folder=plain_text(folder.path), parts=tr(", ").join(parts))


# `trainwiz runs resume`.


def run_resume(run: str, *, detach: bool, accept: Sequence[str] = ()) -> int:
    """Go on from the newest complete checkpoint, followed like a new run.

    `accept`: parts of its identity, also joined by commas. Raises UsageError for a part that there is not.
    """
    parts = [part.strip() for given in accept for part in given.split(",") if part.strip()]
    unknown = [part for part in parts if part not in (*PARTS, "all")]
    if unknown:
        message = tr(
            "--accept {given}: there is no such part; it can be {parts} or all.",
            given=plain_text(", ".join(unknown), 40),
            parts=", ".join(PARTS),
        )
        raise usage_error("bad_choice", "--accept", message)
    return _follow_in_terminal(find_run(run), "auto", detach=detach, accept=parts)


def _follow_in_terminal(
    folder: RunFolder, checkpoint: str | None, *, detach: bool = False, accept: Sequence[str] = ()
) -> int:
    from trainwiz.tui.headless.reporters import new_reporter
    from trainwiz.tui.headless.run import start_and_follow

    reporter = new_reporter(as_json=False, plain=False)
    try:
        return start_and_follow(folder, reporter, detach=detach, checkpoint=checkpoint, accept=accept)
    finally:
        reporter.close()


# `trainwiz runs join`: this machine as one of several that train a run.

SLURM_NODE = "SLURM_NODEID"


def run_join(run: str, *, node: int | None, main: str | None) -> int:
    """Start, or go on with, the run as node 0; take part in it as another. Raises UsageError."""
    from trainwiz.core.launch.start import changed_config
    from trainwiz.core.nodes.address import MAIN_VARIABLE, main_address, parse_address

    folder = find_run(run)
    config = changed_config(folder)
    number = _checked(node if node is not None else _own_number(config), config)
    if main is not None:
        os.environ[MAIN_VARIABLE] = str(parse_address(main))
    elif number > 0 and not os.environ.get(MAIN_VARIABLE):
        message = tr("Say where node 0 is: --main HOST:PORT. `trainwiz export RUN --script` has the whole command.")
        raise usage_error("missing_choice", "--main", message)
    status = read_state(folder).status
    if status == "finished":
        say(tr("{name} has finished; there is nothing to do.", name=plain_text(folder.path.name)))
        return EXIT_FINISHED
    if number == 0:
        return _follow_in_terminal(folder, None if status == "prepared" else "auto")
    from trainwiz.core.nodes.node import WorkerNode

    return WorkerNode(folder, config, number, main_address(folder.path)).take_part()


def _checked(node: int, config: RunConfig) -> int:
    nodes = config.engine.nodes
    if not 0 <= node < nodes:
        message = tr(
            "--node is {node}; this run has {nodes} machines, numbered 0 to {last}.",
            node=node,
            nodes=nodes,
            last=nodes - 1,
        )
        raise usage_error("bad_choice", "--node", message)
    return node


def _own_number(config: RunConfig) -> int:
    """As Slurm says; a run of one machine has only the first."""
    text = "0" if config.engine.nodes == 1 else os.environ.get(SLURM_NODE, "")
    if not text.isdigit():
        message = tr("Say which machine of the run this is: --node 0 for the one that keeps it, --node 1 for the next.")
        raise usage_error("missing_choice", "--node", message)
    return int(text)
