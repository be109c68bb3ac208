"""Follow a run that has been started, until it ends or the user leaves."""

from __future__ import annotations

import time

from trainwiz.core.language import mark, tr
from trainwiz.core.launch.stop import stop_run
from trainwiz.core.plain import plain_text
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import read_state
from trainwiz.tui.headless.ending import ending_of
from trainwiz.tui.headless.progress import ProgressReader
from trainwiz.tui.headless.reporters import Reporter
from trainwiz.tui.headless.signals import StopSignals

POLL_S = 0.2
EXIT_HUNG_UP = 129

STOPPING = mark("Stopping after this step, with a checkpoint. Ctrl-C again ends it at once, without one.")
STOPPING_NOW = mark("Ending it at once.")


def follow(folder: RunFolder, reporter: Reporter, signals: StopSignals, *, resumed: bool = False) -> int:
    """Show the run until it has ended; returns its exit code (129 when the terminal went away)."""
    reader = ProgressReader(folder, resumed=resumed)
    asked = 0
    for sentence in set_aside(folder):
        reporter.note(sentence)
    while True:
        progress = reader.read()
        reporter.progress(progress)
        if progress.state.has_ended:
            ending = ending_of(folder, progress.state)
            reporter.end(ending)
            return ending.exit_code
        if signals.hung_up:
            stop_run(folder, wait_s=0.0)
            return EXIT_HUNG_UP
        if signals.stops > asked:
            asked = signals.stops
            reporter.note(tr(STOPPING if asked == 1 else STOPPING_NOW))
            stop_run(folder, now=asked > 1, wait_s=0.0)
        time.sleep(POLL_S)


def set_aside(folder: RunFolder) -> list[str]:
    """What the keeper said about checkpoints that it renamed before this start."""
    attempts = read_state(folder).attempts
    return [plain_text(sentence) for sentence in attempts[-1].set_aside] if attempts else []
