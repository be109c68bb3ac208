"""`trainwiz runs remove`: a run's folder goes, after asking."""

from __future__ import annotations

import sys

from trainwiz.core.errors import EXIT_FINISHED, usage_error
from trainwiz.core.language import tr, trn
from trainwiz.core.plain import plain_text
from trainwiz.core.run.checkpoints import list_checkpoints
from trainwiz.core.run.find import find_run
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.remove import check_removable, remove_run, size_bytes
from trainwiz.tui.figures import size
from trainwiz.tui.output import is_terminal, say


def run_remove(run: str, *, yes: bool) -> int:
    """Delete a run's folder, after asking; `--yes` answers."""
    folder = find_run(run, whole=yes)
    check_removable(folder)
    what = _what_goes(folder)
    if not yes:
        if not is_terminal(sys.stdin):
            raise usage_error("needs_answer", "--yes", tr("Removing {what} needs an answer; add --yes.", what=what))
        try:
            answer = input(tr("Remove {what} for good? [y/N] ", what=what))
        except (EOFError, KeyboardInterrupt):
            answer = ""
            say()
        if answer.strip().lower() not in ("y", "yes", "是"):
            say(tr("Nothing was removed."))
            return EXIT_FINISHED
    remove_run(folder)
    say(tr("Removed {what}.", what=what))
    return EXIT_FINISHED


def _what_goes(folder: RunFolder) -> str:
    checkpoints = len(list_checkpoints(folder))
    parts = [size(size_bytes(folder.path))]
    if checkpoints:
        parts.append(trn("{n} checkpoint", "{n} checkpoints", checkpoints))
    if folder.final_model.is_dir():
        parts.append(tr("the final model"))
    return tr("{folder} ({parts})", folder=plain_text(folder.path), parts=tr(", ").join(parts))
