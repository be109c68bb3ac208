"""`trainwiz --yes`: plan, write, start, follow. Never asks."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from types import FrameType

from trainwiz.core.defaults import DEFAULT_PROFILE
from trainwiz.core.errors import (
    EXIT_CANNOT_RUN,
    EXIT_FINISHED,
    EXIT_TRAINING_FAILED,
    UsageError,
    sort_findings,
)
from trainwiz.core.hardware.install import need
from trainwiz.core.language import mark, tr
from trainwiz.core.launch.actions import stop_cost
from trainwiz.core.launch.prepare import prepare_run, travel_notes
from trainwiz.core.launch.start import read_run_config, start_run, stop_run
from trainwiz.core.plan.gather import gather
from trainwiz.core.plan.result import Plan
from trainwiz.core.run.attempts import attempt_words
from trainwiz.core.run.folder import RunFolder, name_for_commands
from trainwiz.core.run.listing import find_run
from trainwiz.core.run.state import RunExit, RunState
from trainwiz.tui.choices import Choices, wrong
from trainwiz.tui.commands.plan import improved, refining
from trainwiz.tui.headless.ending import exit_code, planned_batch
from trainwiz.tui.headless.reporters import Progress, Reporter, form_of
from trainwiz.tui.options import OTHER_MACHINE, wanted_tier
from trainwiz.tui.output import Waiting, handling
from trainwiz.tui.run_words import is_long, wait_words

# What works here when a run cannot be started: whole commands, each with what it does.


def commands_that_work(choices: Choices) -> dict[str, str]:
    profile = choices.request.profile
    commands: dict[str, str] = {}
    if choices.request.mode != "smoke":
        named = f" --profile {shlex.quote(profile)}" if profile else ""
        commands[f"trainwiz{named} --smoke --yes"] = tr("the same run with a tiny model, on this machine")
    if profile != DEFAULT_PROFILE:
        commands[f"trainwiz --profile {DEFAULT_PROFILE} --yes"] = tr("the demo (runs on any machine)")
    return commands


# StopSignals: what the user's signals mean while a run is followed.


class StopSignals:
    """Counts instead of interrupting: the follower acts on them between two readings.

    SIGINT (Ctrl-C) and SIGTERM ask for a stop: once with a checkpoint, twice at once. SIGHUP (the
    terminal is gone) asks for the stop with a checkpoint, and nobody is left to be told.
    """

    def __init__(self) -> None:
        self.stops = 0
        self.hung_up = False

    def heard(self) -> AbstractContextManager[None]:
        return handling(self._hear, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.stops += 1
        self.hung_up = self.hung_up or number == signal.SIGHUP


# Follow a run that has been started, until it ends or the user leaves.

POLL_S = 0.2
EXIT_HUNG_UP = 129
KEEPER_LEAVES_S = 10.0

STOPPING = mark("Stopping after this step, with a checkpoint. Press Ctrl-C again to stop immediately, without one.")
STOPPING_NOW = mark("Stopping immediately.")


def follow(folder: RunFolder, reporter: Reporter, signals: StopSignals, *, resumed: bool = False) -> int:
    """Show the run until it has ended; returns its exit code (129 when the terminal went away)."""
    progress = Progress(folder, resumed=resumed)
    asked, told = 0, max(0, len(progress.state.attempts) - 1)
    while True:
        state = progress.read().state
        if not folder.path.is_dir():
            # The keeper ends the training of a folder that was removed; nobody can write there how.
            message = tr("{path} is missing: it was removed or moved, or its disk is unavailable.", path=folder.path)
            state = replace(state, status="lost", exit=RunExit(EXIT_TRAINING_FAILED, "unknown", message))
            reporter.end(folder, state)
            return EXIT_TRAINING_FAILED
        for attempt in state.attempts[told:]:
            # Why it began, where trainwiz began it by itself, and which checkpoints were renamed before it.
            if attempt.because is not None:
                words = attempt_words(attempt, planned_batch(folder))
                reporter.note(tr("Continuing automatically: {attempt}.", attempt=words))
            for sentence in attempt.set_aside:
                reporter.note(sentence)
        told = len(state.attempts)
        reporter.progress(progress)
        if state.has_ended:
            reporter.end(folder, state)
            _await_keeper(state)
            return exit_code(state)
        if signals.hung_up:
            stop_run(folder, wait_s=0.0)
            return EXIT_HUNG_UP
        if signals.stops > asked:
            asked = signals.stops
            reporter.note(tr(STOPPING if asked == 1 else STOPPING_NOW))
            if asked == 1 and is_long(cost := stop_cost(folder)):
                # How long the checkpoint may take is worth a word then.
                reporter.note(wait_words(cost))
            stop_run(folder, now=asked > 1, wait_s=0.0)
        time.sleep(POLL_S)


def _await_keeper(state: RunState) -> None:
    """After its last word it closes files and ends its guard: what follows this command finds nothing of the run."""
    deadline = time.monotonic() + KEEPER_LEAVES_S
    while state.supervisor is not None and state.supervisor.is_alive() and time.monotonic() < deadline:
        time.sleep(0.02)


RESUME_CHOICES = frozenset(
    {"--resume", "--output-dir", "--profile", "--yes", "--detach", "--json", "--plain", "--debug", "--lang"}
)
TRACE_LIMIT_S = 20.0
"""A start waits no longer for better figures, unless a tier was asked for."""


def run_headless(choices: Choices) -> int:
    """The whole run; returns the exit code of the command."""
    with closing(Reporter(form_of(as_json=choices.json, plain=choices.plain))) as reporter:
        return new_run(choices, reporter) if choices.resume is None else resume(choices, reporter)


def new_run(choices: Choices, reporter: Reporter) -> int:
    request = choices.request
    elsewhere = [flag for flag in OTHER_MACHINE if flag in choices.given]
    if elsewhere and not choices.dry_run:
        words = tr("this plans for another machine; use it with `trainwiz plan` or --dry-run")
        raise UsageError([wrong(flag, words) for flag in elsewhere])
    if not choices.dry_run:
        need()
    plan = plan_to_start(choices)
    findings = sort_findings(plan.findings)
    if plan.errors and not (choices.dry_run or request.force):
        reporter.refused(findings, commands_that_work(choices))
        return EXIT_CANNOT_RUN
    with Waiting(tr("writing the run folder")):
        folder = prepare_run(plan, None if request.output_dir is None else Path(request.output_dir))
    reporter.plan(plan, findings)
    if choices.dry_run:
        files = (path.name for path in folder.path.iterdir() if path.is_file() and not path.name.startswith("."))
        reporter.prepared(folder, sorted(files))
        for sentence in travel_notes(read_run_config(folder), folder.path):
            reporter.note(sentence)
        return EXIT_FINISHED
    return start_and_follow(folder, reporter, detach=choices.detach)


def plan_to_start(choices: Choices) -> Plan:
    """The plan of a run. What a GPU is to train for real is traced first, so that it does not end out of memory.

    Formulas do for a CPU and for the modes that only try: they end in a minute either way.
    """
    request = choices.request
    with Waiting(tr("reading machine, model and data")):
        gathered = gather(request)
    with refining("analytic") as refiner:
        plan = refiner.plan(gathered)
    on_gpu = plan.work is not None and plan.work.device == "cuda"
    tier = wanted_tier(choices.tier, "layers" if on_gpu and request.mode in ("train", "benchmark") else "analytic")
    # Errors that no better estimate takes away.
    hopeless = any(not error.code.endswith("does_not_fit") for error in plan.errors)
    if tier == "analytic" or (not choices.dry_run and not request.force and hopeless):
        return plan
    with refining(tier) as refiner:
        return improved(refiner, gathered, tier, limit_s=None if choices.tier else TRACE_LIMIT_S)


def resume(choices: Choices, reporter: Reporter) -> int:
    others = [flag for flag in choices.given if flag not in RESUME_CHOICES]
    if others:
        words = tr("a resumed run keeps the settings in its run.yaml; remove this")
        raise UsageError([wrong(flag, words) for flag in others])
    folder = find_run(choices.request.output_dir or ".", whole=True)
    return start_and_follow(folder, reporter, detach=choices.detach, checkpoint=choices.resume)


def start_and_follow(
    folder: RunFolder,
    reporter: Reporter,
    *,
    detach: bool,
    checkpoint: str | None = None,
    accept: Sequence[str] = (),
) -> int:
    """Start the keeper of the run; then leave, or stay until the end.

    A run that is followed belongs to this command: were it to vanish (killed, terminal closed), the
    keeper saves a checkpoint and stops. `detach` is for runs that outlive it.
    """
    signals = StopSignals()
    with signals.heard():
        with Waiting(tr("starting the run")):
            start_run(folder, resume=checkpoint, tied_to_caller=not detach, accept=accept)
        reporter.prepared(folder, [])
        from trainwiz.core.nodes.node import asked_of_others

        for sentence in asked_of_others(folder):
            reporter.note(sentence)
        if detach:
            reporter.note(tr("Started. Monitor it: trainwiz monitor {path}", path=name_for_commands(folder.path)))
            return EXIT_FINISHED
        return follow(folder, reporter, signals, resumed=checkpoint is not None)
