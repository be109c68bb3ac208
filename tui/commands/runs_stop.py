"""`trainwiz runs stop`."""

from __future__ import annotations

import sys

from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.core.run.listing import find_run
from trainwiz.core.run.names import name_for_commands
from trainwiz.core.run.state import RunState, read_state
from trainwiz.tui.commands.runs_words import MARKS
from trainwiz.tui.output import paint, say


def run_stop(run: str, *, now: bool) -> int:
    """Stop a run and wait for its end; Ctrl-C leaves the wait, not the stop."""
    from trainwiz.core.launch.stop import stop_run
    from trainwiz.tui.headless.waiting import Waiting

    folder = find_run(run)
    state = read_state(folder)
    name = plain_text(folder.path.name)
    if not state.is_active:
        say(tr("{name} is not running: it is {status}.", name=name, status=tr(state.status)))
        return EXIT_FINISHED
    try:
        with Waiting(tr("ending it at once") if now else tr("finishing the step and saving a checkpoint")):
            state = stop_run(folder, now=now)
    except KeyboardInterrupt:
        say(
            tr(
                "{name} goes on stopping. To end it at once: trainwiz runs stop {run} --now",
                name=name,
                run=name_for_commands(folder.path),
            )
        )
        return EXIT_STOPPED
    if not state.has_ended:
        say(
            tr(
                "{name} is still {status}. To end it at once: trainwiz runs stop {run} --now",
                name=name,
                status=tr(state.status),
                run=name_for_commands(folder.path),
            )
        )
        return EXIT_STOPPED
    _say_end(state)
    return EXIT_FINISHED


def _say_end(state: RunState) -> None:
    sign, style = MARKS[state.status]
    message = state.exit.message if state.exit else tr(state.status)
    say(f"{paint(sign, style, sys.stdout)} {plain_text(message)}")
    if state.exit and state.exit.remedy:
        say(f"  {plain_text(state.exit.remedy)}")
