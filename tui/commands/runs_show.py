"""`trainwiz runs show`."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict

from trainwiz.core.errors import EXIT_FINISHED
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.core.run.checkpoints import list_checkpoints
from trainwiz.core.run.listing import find_run, summarize_run
from trainwiz.core.run.notes import read_notes
from trainwiz.core.run.state import RunState, read_state
from trainwiz.tui.cells import pad
from trainwiz.tui.commands.runs_words import MARKS, moment, steps
from trainwiz.tui.figures import duration
from trainwiz.tui.metric_words import engine_problems, evaluation_parts
from trainwiz.tui.output import paint, say, say_json

LABEL_WIDTH = 12


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
        f"{paint(f'{sign} {tr(state.status)}', style, sys.stdout)}   {tr('{count} steps', count=steps(summary))}",
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
            moment=moment(attempt.started_s),
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
