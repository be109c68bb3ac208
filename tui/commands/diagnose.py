"""`trainwiz diagnose WHAT`: why a training ended, what proves it, what can be done."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from trainwiz.core.diagnosis.cause import Diagnosis
from trainwiz.core.errors import usage_error
from trainwiz.core.files import at_home
from trainwiz.core.language import mark, tr
from trainwiz.core.run.folder import DEFAULT_ROOT, RUN_YAML, RunFolder
from trainwiz.core.text import plain_text
from trainwiz.tui.output import is_terminal, labelled, paint, say, say_json, say_rows, under

STDIN = "-"
CONFIDENCES: dict[str, str] = {
    "high": mark("high confidence"),
    "medium": mark("medium confidence"),
    "low": mark("low confidence"),
}
LONGEST_NAME = 200


def run_diagnose(what: str, *, as_json: bool) -> None:
    if as_json:
        say_json(document(what))
        return
    _, path, status, found = look(what)
    name = plain_text(path, LONGEST_NAME)
    known = tr("none") if found.cause is None else f"{found.cause} ({tr(CONFIDENCES[found.confidence])})"
    say_rows([(tr("Source"), name if status is None else f"{name} ({tr(status)})")])
    say_rows(under(tr("Cause"), known, found.message))
    if found.rank is not None:
        say_rows([(tr("Process"), tr("rank {rank} failed first", rank=found.rank))])
    places = [proof.source if proof.line is None else f"{proof.source}:{proof.line}" for proof in found.evidence]
    evidence = zip(places, found.evidence, strict=True)
    say_rows(under(tr("Evidence"), *(f"{plain_text(place, 80)}  {proof.text}" for place, proof in evidence)))
    for number, remedy in enumerate(found.remedies):
        say_rows([(tr("Fixes") if number == 0 else "", remedy.text)])
        if remedy.command:
            # One line whatever its length: it is there to be copied.
            say(labelled("", paint(f"  {remedy.command}", "strong")))


def document(what: str) -> dict[str, Any]:
    """The JSON of the command; its keys are stable. Raises UsageError as `look`."""
    source, path, status, found = look(what)
    return {"source": source, "path": path, "status": status, **found.to_json()}


def look(what: str) -> tuple[str, str, str | None, Diagnosis]:
    """(kind of source, its path, state of a run, diagnosis). Raises UsageError for what cannot be diagnosed."""
    from trainwiz.core.telemetry import diagnosed as of_path

    if what == STDIN:
        if is_terminal(sys.stdin):
            message = tr("`trainwiz diagnose -` reads a log from stdin, for example: cat FILE | trainwiz diagnose -")
            raise usage_error("no_input", "-", message)
        return "log", STDIN, None, of_path.diagnose_stream(sys.stdin.buffer, "stdin")
    path = at_home(Path(what))
    run = _run_at(what, path)
    if run is not None:
        from trainwiz.core.diagnosis.sources import diagnose_run

        status, found = diagnose_run(run)
        return "run", str(run.path), status, found
    if path.is_dir() or path.name == "trainer_state.json":
        return "folder" if path.is_dir() else "trainer", str(path), None, of_path.diagnose_folder(path)
    return "log", str(path), None, of_path.diagnose_log(path)


def _run_at(what: str, path: Path) -> RunFolder | None:
    """The run that is meant; None for a file or folder that is none. Raises UsageError where there is nothing at all."""
    from trainwiz.core.run.listing import find_run

    # The log of a run by its name: what else the run knows helps.
    around = [path.parent] if path.name in (RUN_YAML, "state.json", "train.log") else []
    if what and "\0" not in what:
        run = next(filter(RunFolder.is_run, map(RunFolder, (DEFAULT_ROOT / what, path, *around))), None)
        if run is not None or os.path.lexists(path):
            return run
    if path.name == what:
        return find_run(what)
    raise usage_error("no_such_path", what, tr("File or folder not found: {path}.", path=repr(what)))
