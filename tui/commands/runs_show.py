"""`trainwiz runs show` and `trainwiz runs stop`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator

from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED, CannotRunError
from trainwiz.core.history.run import benchmark_of, is_benchmark
from trainwiz.core.language import tr
from trainwiz.core.launch.actions import stop_cost
from trainwiz.core.run.attempts import advice_of, cause_words, change_words, phase_words
from trainwiz.core.run.folder import RunFolder, name_for_commands
from trainwiz.core.run.listing import RunDescription, SetAside, describe_run, find_run
from trainwiz.core.run.state import Attempt, RunState, read_state
from trainwiz.core.text import plain_text
from trainwiz.tui.commands.runs import moment
from trainwiz.tui.headless.ending import benchmark_rows
from trainwiz.tui.output import paint, say, say_json
from trainwiz.tui.run_words import (
    engine_problems,
    evaluation_parts,
    is_long,
    painted_status,
    steps_of,
    verified_text,
    wait_sentences,
)
from trainwiz.tui.text import duration, pad, sentence_gap

# `trainwiz runs show`.

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
    done = tr("{count} steps", count=steps_of(run.summary.step, run.summary.max_steps))
    yield tr("State"), f"{painted_status(state.status, tr(state.status))}   {done}"
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


# `trainwiz runs stop`.


def run_stop(*runs: str, now: bool) -> int:
    """Stop runs and wait for their end; Ctrl-C leaves the wait, not the stop.

    All are found before the first is asked, and all are asked before the first is waited for. Raises
    CannotRunError at the end, with what could not be stopped.
    """
    folders = list({folder.path.resolve(): folder for folder in map(find_run, runs)}.values())
    refused: list[CannotRunError] = []
    asked = [folder for folder in folders if _ask(folder, refused, now=now)]
    code = EXIT_FINISHED
    try:
        for number, folder in enumerate(asked):
            code = max(code, _wait_for(folder, now=now, others=len(asked) - number - 1))
    except KeyboardInterrupt:
        for folder in asked:
            if read_state(folder).is_active:
                _say_how_to_end(tr("{name} goes on stopping.", name=_name(folder)), folder)
        code = EXIT_STOPPED
    if refused:
        raise CannotRunError([finding for error in refused for finding in error.findings])
    return code


def _ask(folder: RunFolder, refused: list[CannotRunError], *, now: bool) -> bool:
    """Ask one run; False where there is nothing to wait for."""
    from trainwiz.core.launch.start import is_suspended, stop_run

    state = read_state(folder)
    if not state.is_active:
        say(tr("{name} is not running ({status}).", name=_name(folder), status=tr(state.status)))
        return False
    if not now:
        _say_what_it_takes(folder, state)
    suspended = state.supervisor is not None and is_suspended(state.supervisor)
    try:
        stop_run(folder, now=now, wait_s=0.0)
        if suspended:
            say(
                tr("{name}: its keeper was suspended; it is continued, so that it can end the run.", name=_name(folder))
            )
    except CannotRunError as error:
        refused.append(error)
        return False
    return True


def _say_what_it_takes(folder: RunFolder, state: RunState) -> None:
    """Before somebody waits for long: how long it may be, why, and how it is over at once."""
    cost = stop_cost(folder)
    sentences = wait_sentences(cost)
    requested_s = (state.stop or {}).get("requested_s")
    if isinstance(requested_s, int | float):
        ago = duration(max(0.0, time.time() - requested_s))
        sentences = [tr("It was asked to stop {time} ago.", time=ago), *sentences]
    elif not is_long(cost) and cost.phase in (None, "training", "compiling"):
        return
    _say_how_to_end(f"{_name(folder)}: {sentence_gap().join(sentences)}", folder)


def _wait_for(folder: RunFolder, *, now: bool, others: int) -> int:
    from trainwiz.core.launch.start import wait_for_end
    from trainwiz.tui.headless.waiting import Waiting

    doing = tr("ending it at once") if now else tr("finishing the step and saving a checkpoint")
    if others:
        doing = tr("{name}: {doing}; others wait: {n}", name=_name(folder), doing=doing, n=others)
    with Waiting(doing):
        state = wait_for_end(folder, force=now)
    if not state.has_ended:
        _say_how_to_end(tr("{name} is still {status}.", name=_name(folder), status=tr(state.status)), folder)
        return EXIT_STOPPED
    _say_end(state)
    return EXIT_FINISHED


def _name(folder: RunFolder) -> str:
    return plain_text(folder.path.name)


def _say_how_to_end(sentence: str, folder: RunFolder) -> None:
    say(sentence)
    say("  " + tr("To end it at once, without a checkpoint:"))
    say(f"  trainwiz runs stop {plain_text(name_for_commands(folder.path))} --now")


def _say_end(state: RunState) -> None:
    message = state.exit.message if state.exit else tr(state.status)
    say(painted_status(state.status, plain_text(message)))
    verified = verified_text(state)
    if verified:
        say(f"  {verified}")
    if state.exit and state.exit.remedy:
        say(f"  {plain_text(state.exit.remedy)}")
