"""Follow a run that has been started, until it ends or the user leaves."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainwiz.core.errors import EXIT_TRAINING_FAILED
from trainwiz.core.language import mark, tr
from trainwiz.core.launch.stop import stop_run
from trainwiz.core.plain import plain_text
from trainwiz.core.run.attempt_words import attempt_words
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import Attempt, RunExit, RunState, read_state
from trainwiz.core.run.stop_cost import stop_cost
from trainwiz.tui.headless.ending import ending_of, planned_batch
from trainwiz.tui.headless.progress import ProgressReader
from trainwiz.tui.headless.reporters import Reporter
from trainwiz.tui.headless.signals import StopSignals
from trainwiz.tui.stop_words import is_long, wait_sentences
from trainwiz.tui.wrapping import sentence_gap

POLL_S = 0.2
EXIT_HUNG_UP = 129
KEEPER_LEAVES_S = 10.0

STOPPING = mark("Stopping after this step, with a checkpoint. Ctrl-C again ends it at once, without one.")
STOPPING_NOW = mark("Ending it at once.")


def follow(folder: RunFolder, reporter: Reporter, signals: StopSignals, *, resumed: bool = False) -> int:
    """Show the run until it has ended; returns its exit code (129 when the terminal went away)."""
    reader = ProgressReader(folder, resumed=resumed)
    asked, told = 0, len(read_state(folder).attempts) - 1
    while True:
        progress = reader.read()
        if not folder.path.is_dir():
            # The keeper ends the training of a folder that was removed; nobody can write there how.
            reporter.end(ending_of(folder, _gone(folder, progress.state)))
            return EXIT_TRAINING_FAILED
        for sentence in attempt_notes(folder, progress.state.attempts[max(0, told) :]):
            reporter.note(sentence)
        told = len(progress.state.attempts)
        reporter.progress(progress)
        if progress.state.has_ended:
            ending = ending_of(folder, progress.state)
            reporter.end(ending)
            _await_keeper(progress.state)
            return ending.exit_code
        if signals.hung_up:
            stop_run(folder, wait_s=0.0)
            return EXIT_HUNG_UP
        if signals.stops > asked:
            asked = signals.stops
            reporter.note(tr(STOPPING if asked == 1 else STOPPING_NOW))
            if asked == 1:
                _say_long_wait(folder, reporter)
            stop_run(folder, now=asked > 1, wait_s=0.0)
        time.sleep(POLL_S)


def _await_keeper(state: RunState) -> None:
    """After its last word it closes files and ends its guard: what follows this command finds nothing of the run."""
    deadline = time.monotonic() + KEEPER_LEAVES_S
    while state.supervisor is not None and state.supervisor.is_alive() and time.monotonic() < deadline:
        time.sleep(0.02)


def _gone(folder: RunFolder, state: RunState) -> RunState:
    message = tr("{path} is gone: it was removed or moved, or its disk is not there now.", path=folder.path)
    return replace(state, status="lost", exit=RunExit(EXIT_TRAINING_FAILED, "unknown", message))


def _say_long_wait(folder: RunFolder, reporter: Reporter) -> None:
    """How long the checkpoint may take, where that is worth a word."""
    cost = stop_cost(folder)
    if is_long(cost):
        reporter.note(sentence_gap().join(wait_sentences(cost)))


def attempt_notes(folder: RunFolder, attempts: Sequence[Attempt]) -> Iterator[str]:
    """Why each attempt began, where trainwiz began it by itself, and which checkpoints were renamed before it."""
    for attempt in attempts:
        if attempt.because is not None:
            yield tr("It goes on by itself: {attempt}.", attempt=attempt_words(attempt, planned_batch(folder)))
        yield from map(plain_text, attempt.set_aside)
