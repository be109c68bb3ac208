"""`trainwiz monitor [RUN]`: the live screen, one look, or a line every few seconds."""

from __future__ import annotations

import sys
import time

from trainwiz.core.errors import usage_error
from trainwiz.core.plain import plain_text
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.listing import find_run, list_runs
from trainwiz.core.run.names import DEFAULT_ROOT
from trainwiz.core.run.status import ACTIVE, ENDED
from trainwiz.tui.output import is_terminal, say, say_json


def run_monitor(
    target: str | None, *, once: bool, as_json: bool, plain: bool, readonly: bool, interval_s: float = 1.0
) -> int:
    """Watch the run that `target` names; None takes the one active run, else the newest.

    `as_json` alone is one look; with `plain` it is one JSON document a line. Returns the exit code 0:
    watching went well, whatever became of the run. Raises UsageError for a target that is no run.
    """
    folder = choose_run(target)
    if plain and not once:
        return follow_plainly(folder, as_json=as_json, interval_s=interval_s)
    if once or as_json:
        return look_once(folder, as_json=as_json)
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise usage_error(
            "no_terminal", "terminal", "The live monitor needs a terminal; without one use --once, --plain or --json."
        )
    from trainwiz.core.telemetry.target import Target
    from trainwiz.tui.app import TrainwizApp
    from trainwiz.tui.screens.monitor import MonitorScreen

    return TrainwizApp(lambda: MonitorScreen(Target.of_run(folder), readonly, interval_s=interval_s)).run() or 0


def choose_run(target: str | None) -> RunFolder:
    """The run that is meant. Raises UsageError with the nearest names when there is none."""
    if target is not None:
        return find_run(target)
    runs = list_runs()
    active = [run for run in runs if run.status in ACTIVE]
    for run in (active or runs)[:1]:
        return RunFolder(DEFAULT_ROOT / run.name)
    raise usage_error(
        "no_runs",
        str(DEFAULT_ROOT),
        f"There are no runs in {DEFAULT_ROOT}/ yet; `trainwiz --profile cpu-demo --yes` makes one, and "
        "`trainwiz monitor FOLDER` opens one that lies elsewhere.",
    )


def look_once(folder: RunFolder, *, as_json: bool) -> int:
    from trainwiz.core.telemetry.run_source import RunSource

    snapshot = RunSource(folder).read_all()
    if as_json:
        say_json(snapshot.to_json())
        return 0
    from trainwiz.tui.commands.monitor_text import summary_lines

    for line in summary_lines(snapshot):
        say(line)
    return 0


def follow_plainly(folder: RunFolder, *, as_json: bool, interval_s: float) -> int:
    """A line every `interval_s` seconds until the run has ended; Ctrl-C only ends the watching."""
    from trainwiz.core.telemetry.run_source import RunSource
    from trainwiz.tui.commands.monitor_text import plain_line

    source = RunSource(folder)
    try:
        while True:
            snapshot = source.read_all()
            if as_json:
                say_json(snapshot.to_json(), compact=True)
            else:
                say(plain_line(snapshot))
            if snapshot.status in ENDED:
                if snapshot.ending is not None and not as_json:
                    say(plain_text(snapshot.ending.text))
                    if snapshot.ending.remedy:
                        say(f"Next: {plain_text(snapshot.ending.remedy)}")
                return 0
            time.sleep(max(0.1, interval_s))
    except KeyboardInterrupt:
        return 0
