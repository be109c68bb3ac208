"""`trainwiz runs list|show|stop|resume|compare|remove`."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import Any

from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED
from trainwiz.core.language import mark, tr
from trainwiz.core.moments import moment_words
from trainwiz.core.plain import plain_text
from trainwiz.core.run.checkpoints import list_checkpoints
from trainwiz.core.run.compare import RESULTS, compare_runs
from trainwiz.core.run.listing import RunSummary, find_run, list_runs, summarize_run
from trainwiz.core.run.names import DEFAULT_ROOT, name_for_commands
from trainwiz.core.run.notes import read_notes
from trainwiz.core.run.state import RunState, read_state
from trainwiz.tui.cells import pad
from trainwiz.tui.figures import count, duration
from trainwiz.tui.metric_words import engine_problems, evaluation_parts
from trainwiz.tui.output import paint, say, say_json
from trainwiz.tui.table_text import aligned

MARKS: dict[str, tuple[str, str]] = {
    "prepared": ("·", "quiet"),
    "starting": ("●", "note"),
    "running": ("●", "note"),
    "stopping": ("●", "warning"),
    "finished": ("✓", "good"),
    "stopped": ("!", "warning"),
    "failed": ("✗", "error"),
    "lost": ("✗", "error"),
}
HEADINGS = (mark("name"), mark("status"), mark("step"), mark("loss"), mark("model"), mark("started"))
WIDEST_NAME = 48
WIDEST_VALUE = 36
LABEL_WIDTH = 12


def run_list(*, as_json: bool) -> int:
    """All runs in ./runs, the newest first."""
    runs = list_runs(DEFAULT_ROOT)
    if as_json:
        say_json({"runs": [run.to_json() for run in runs]})
        return EXIT_FINISHED
    if not runs:
        say(tr("There are no runs in runs/ yet. `trainwiz --profile cpu-demo --yes` makes one."))
        return EXIT_FINISHED
    rows = [tuple(map(tr, HEADINGS))]
    rows += [_row(run) for run in runs]
    for number, row in enumerate(aligned(rows, right=(2, 3))):
        if number:
            sign, style = MARKS[runs[number - 1].status]
            row[1] = paint(f"{sign} {row[1]}", style, sys.stdout)
        else:
            row[1] = f"  {row[1]}"
        say("  ".join(row).rstrip())
    return EXIT_FINISHED


def _row(run: RunSummary) -> tuple[str, str, str, str, str, str]:
    return (
        plain_text(run.name, WIDEST_NAME),
        tr(run.status),
        _steps(run),
        "-" if run.loss is None else f"{run.loss:.3f}",
        plain_text(run.model or "-", WIDEST_VALUE),
        _moment(run.started_s),
    )


def _steps(run: RunSummary) -> str:
    if run.step is None:
        return "-"
    if not run.max_steps:
        return count(run.step)
    return tr("{amount} of {whole}", amount=count(run.step), whole=count(run.max_steps))


def _moment(time_s: float | None) -> str:
    return "-" if time_s is None else moment_words(time_s)


def run_show(run: str, *, as_json: bool) -> int:
    """One run: state, progress, attempts, checkpoints, how it ended."""
    folder = find_run(run)
    state, summary, checkpoints = read_state(folder), summarize_run(folder), list_checkpoints(folder)
    if as_json:
        listed = [{**asdict(found), "path": found.path.name} for found in checkpoints]
        notes = [note.to_json() for note in read_notes(folder.path)]
        say_json({**summary.to_json(), "state": state.to_json(), "checkpoints": listed, "notes": notes})
        return EXIT_FINISHED
    sign, style = MARKS[state.status]
    _label(tr("Run"), plain_text(summary.name))
    _label(
        tr("State"),
        f"{paint(f'{sign} {tr(state.status)}', style, sys.stdout)}   {tr('{count} steps', count=_steps(summary))}",
    )
    if state.exit is not None:
        _label("", plain_text(state.exit.message))
        for line in state.exit.evidence[:3]:
            _label("", plain_text(line))
        if state.exit.remedy:
            _label(tr("Next"), plain_text(state.exit.remedy))
    _label(
        tr("Model"),
        f"{plain_text(state.model or tr('unknown'))} · {tr('profile {name}', name=plain_text(state.profile or tr('none')))}",
    )
    _label(tr("Engine"), _engine(state))
    for problem in engine_problems(state.engine):
        _label("", paint(f"! {plain_text(problem)}", "warning", sys.stdout))
    if summary.loss is not None:
        _label(tr("Loss"), f"{summary.loss:.4g}")
    measured = evaluation_parts(state.outcome or {})
    if measured:
        _label(tr("Held out"), tr(", ").join(measured))
    for attempt in state.attempts:
        ended = attempt.ended_s or (time.time() if state.is_active else attempt.started_s)
        origin = plain_text(attempt.resume or tr("the beginning"))
        words = tr(
            "{moment}, from {origin}, {time}: {status}",
            moment=_moment(attempt.started_s),
            origin=origin,
            time=duration(ended - attempt.started_s),
            status=plain_text(tr(attempt.status or state.status)),
        )
        _label(tr("Attempt {number}", number=attempt.number), words)
        for sentence in attempt.set_aside:
            _label("", plain_text(sentence))
    for found in checkpoints:
        good = tr("complete") if found.problem is None else tr("broken: {reason}", reason=plain_text(found.problem))
        _label(tr("Checkpoint"), f"{plain_text(found.path.name)}   {good}")
    for words in (*state.notes, *(note.words for note in read_notes(folder.path))):
        _label(tr("Note"), plain_text(words))
    if folder.final_model.is_dir():
        _label(tr("Model lies"), plain_text(folder.final_model))
    _label(tr("Folder"), plain_text(folder.path))
    return EXIT_FINISHED


def _label(name: str, text: str) -> None:
    say(pad(name, LABEL_WIDTH) + text)


def _engine(state: RunState) -> str:
    planned, actual = state.engine.get("planned"), state.engine.get("actual")
    if actual is None:
        return tr("{engine} planned", engine=plain_text(planned or tr("unknown")))
    return plain_text(actual)


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


def run_resume(run: str, *, detach: bool) -> int:
    """Go on from the newest complete checkpoint, followed like a new run."""
    from trainwiz.tui.headless.reporters import new_reporter
    from trainwiz.tui.headless.run import start_and_follow

    folder = find_run(run)
    reporter = new_reporter(as_json=False, plain=False)
    try:
        return start_and_follow(folder, reporter, detach=detach, checkpoint="auto")
    finally:
        reporter.close()


def run_compare(runs: list[str], *, as_json: bool) -> int:
    """Settings that differ, and results, side by side."""
    document = compare_runs([find_run(run) for run in runs])
    if as_json:
        say_json(document)
        return EXIT_FINISHED
    rows: list[list[str]] = [["", *(plain_text(name, WIDEST_VALUE) for name in document["runs"])]]
    rows += [[plain_text(key), *map(_value, values)] for key, values in document["settings"].items()]
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


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return plain_text(f"{value:.6g}" if isinstance(value, float) else value, WIDEST_VALUE)
