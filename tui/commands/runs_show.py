"""`trainwiz runs show`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator

from trainwiz.core.errors import EXIT_FINISHED
from trainwiz.core.history.benchmark import benchmark_of, is_benchmark
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.core.run.attempt_words import cause_words, change_words
from trainwiz.core.run.description import RunDescription, SetAside, describe_run
from trainwiz.core.run.find import find_run
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.names import name_for_commands
from trainwiz.core.run.phase_words import phase_words
from trainwiz.core.run.state import Attempt, RunState
from trainwiz.core.run.stop_cost import stop_cost
from trainwiz.core.telemetry.recorded_advice import advice_of
from trainwiz.tui.cells import pad
from trainwiz.tui.commands.runs_words import MARKS, moment, steps
from trainwiz.tui.figures import duration
from trainwiz.tui.headless.benchmark_text import benchmark_rows
from trainwiz.tui.metric_words import engine_problems, evaluation_parts
from trainwiz.tui.output import paint, say, say_json
from trainwiz.tui.stop_words import verified_text, wait_sentences
from trainwiz.tui.wrapping import sentence_gap

LABEL_WIDTH = 12
MOST_EVIDENCE = 3
MOST_ADVICE = 5
LEVEL_STYLES = {"error": "error", "warning": "warning"}

Row = tuple[str, str]
"""A label, empty on lines that go on with the one above, and a text without control characters."""


def run_show(run: str, *, as_json: bool) -> int:
    """One run: state, progress, attempts, checkpoints, how it ended."""
    folder = find_run(run)
    described = describe_run(folder)
    if as_json:
        say_json(described.to_json())
        return EXIT_FINISHED
    for label, text in _rows(folder, described):
        say(pad(label, LABEL_WIDTH) + text)
    return EXIT_FINISHED


def _rows(folder: RunFolder, run: RunDescription) -> Iterator[Row]:
    yield tr("Run"), plain_text(run.summary.name)
    yield from _state(run)
    yield from _stop(folder, run.state)
    yield from _setup(run)
    if is_benchmark(folder) and not run.state.is_active:
        yield from benchmark_rows(benchmark_of(folder))
    for attempt in run.state.attempts:
        yield from _attempt(attempt, run)
    for found in run.checkpoints:
        good = tr("complete") if found.problem is None else tr("broken: {reason}", reason=plain_text(found.problem))
        yield tr("Checkpoint"), f"{plain_text(found.path.name)}   {good}"
    for aside in run.set_aside:
        yield tr("Set aside"), f"{plain_text(aside.name)}   {_why_aside(aside)}"
    for words in run.state.notes:
        yield tr("Note"), plain_text(words)
    if folder.final_model.is_dir():
        yield tr("Model lies"), plain_text(folder.final_model)
    yield tr("Folder"), plain_text(folder.path)


def _state(run: RunDescription) -> Iterator[Row]:
    """How it stands: its state, what it does now, how it ended, and what watchers have to say."""
    state = run.state
    sign, style = MARKS[state.status]
    painted = paint(f"{sign} {tr(state.status)}", style, sys.stdout)
    yield tr("State"), f"{painted}   {tr('{count} steps', count=steps(run.summary))}"
    if run.phase is not None:
        yield "", tr("{phase}, for {time}", phase=phase_words(run.phase), time=_since(run.phase.since_s))
    if state.exit is not None:
        yield "", plain_text(state.exit.message)
        yield from _below(state.exit.evidence[:MOST_EVIDENCE])
        last = state.attempts[-1].not_retried if state.attempts else None
        if last:
            yield "", plain_text(last)
        yield from _below(filter(None, [verified_text(state)]))
        if state.exit.remedy:
            yield tr("Next"), plain_text(state.exit.remedy)
    for advice in list(advice_of((*state.advice, *run.advice)))[-MOST_ADVICE:]:
        yield tr("Advice"), paint(advice.text, LEVEL_STYLES.get(advice.level, "note"), sys.stdout)
        if advice.remedy:
            yield "", advice.remedy


def _stop(folder: RunFolder, state: RunState) -> Iterator[Row]:
    """What a stop with a checkpoint would take."""
    sentences = wait_sentences(stop_cost(folder)) if state.is_active else []
    if sentences:
        yield tr("To stop it"), sentence_gap().join(sentences)
        if state.status == "stopping":
            yield "", f"trainwiz runs stop {plain_text(name_for_commands(folder.path))} --now"


def _setup(run: RunDescription) -> Iterator[Row]:
    """What is trained, with what, and what came out so far."""
    state = run.state
    profile = tr("profile {name}", name=plain_text(state.profile or tr("none")))
    yield tr("Model"), f"{plain_text(state.model or tr('unknown'))} · {profile}"
    yield tr("Engine"), _engine(state)
    for problem in engine_problems(state.engine):
        yield "", paint(f"! {plain_text(problem)}", "warning", sys.stdout)
    if run.summary.loss is not None:
        yield tr("Loss"), f"{run.summary.loss:.4g}"
    measured = evaluation_parts(state.outcome or {})
    if measured:
        yield tr("Held out"), tr(", ").join(measured)


def _attempt(attempt: Attempt, run: RunDescription) -> Iterator[Row]:
    """One start: when, from where, for how long; why trainwiz made it, what it changed, how it ended."""
    state = run.state
    is_last = attempt is state.attempts[-1]
    last_sign_s = (time.time() if state.is_active else state.ended_s) if is_last else None
    ended_s = attempt.ended_s or last_sign_s or attempt.started_s
    yield (
        tr("Attempt {number}", number=attempt.number),
        tr(
            "{moment}, from {origin}, {time}: {status}",
            moment=moment(attempt.started_s),
            origin=plain_text(attempt.resume or tr("the beginning")),
            time=duration(max(0.0, ended_s - attempt.started_s)),
            status=plain_text(tr(attempt.status or state.status)),
        ),
    )
    if attempt.because is not None:
        yield "", tr("started by trainwiz itself: {cause}", cause=cause_words(attempt))
    yield from _below(change_words(attempt.changes, run.batch))
    yield from _below(attempt.set_aside)
    message = (attempt.exit or {}).get("message")
    if isinstance(message, str) and not (is_last and state.exit is not None):
        yield "", plain_text(message)
    if attempt.not_retried and not (is_last and state.exit is not None):
        yield "", plain_text(attempt.not_retried)


def _below(sentences: Iterable[str]) -> Iterator[Row]:
    for sentence in sentences:
        yield "", plain_text(sentence)


def _why_aside(aside: SetAside) -> str:
    if aside.why == "broken":
        return tr("not complete")
    return tr("left behind when the training went on from an earlier one")


def _since(time_s: float) -> str:
    return duration(max(0.0, time.time() - time_s))


def _engine(state: RunState) -> str:
    planned, actual = state.engine.get("planned"), state.engine.get("actual")
    if actual is None:
        return tr("{engine} planned", engine=plain_text(planned or tr("unknown")))
    return plain_text(actual)
