"""Follow a run that has been started, until it ends or the user leaves."""

from __future__ import annotations

import time

from trainwiz.core.launch.stop import stop_run
from trainwiz.core.run.folder import RunFolder
from trainwiz.tui.headless.ending import ending_of
from trainwiz.tui.headless.progress import ProgressReader
from trainwiz.tui.headless.reporters import Reporter
from trainwiz.tui.headless.signals import StopSignals

POLL_S = 0.2
EXIT_HUNG_UP = 129

STOPPING = "Stopping after this step, with a checkpoint. Ctrl-C again ends it at once, without one."
STOPPING_NOW = "Ending it at once."


def follow(folder: RunFolder, reporter: Reporter, signals: StopSignals, *, resumed: bool = False) -> int:
    """Show the run until it has ended; returns its exit code (129 when the terminal went away)."""
    reader = ProgressReader(folder, resumed=resumed)
    asked = 0
    while True:
        progress = reader.read()
        reporter.progress(progress)
        if progress.state.has_ended:
            ending = ending_of(folder, progress.state)
            reporter.end(ending)
            return ending.exit_code
        if signals.hung_up:
            return EXIT_HUNG_UP
        if signals.stops > asked:
            asked = min(signals.stops, 2) if asked < 2 else signals.stops
            reporter.note(STOPPING if asked == 1 else STOPPING_NOW)
            stop_run(folder, now=asked > 1, wait_s=0.0)
        time.sleep(POLL_S)
