"""What happens to the run folder before each start of the training."""

from __future__ import annotations

import platform
import time
from pathlib import Path

from trainwiz.core.language import tr
from trainwiz.core.run.checkpoints import Checkpoint, inspect_checkpoint, list_checkpoints, set_aside
from trainwiz.core.run.folder import (
    ADAPTER,
    ATTEMPTS,
    BASE_MODEL,
    FINAL_MODEL,
    OUTCOME_JSON,
    PARTIAL,
    TOKENIZER,
    RunFolder,
)
from trainwiz.core.run.processid import machine_identity, this_process
from trainwiz.core.run.recovery import changes_now
from trainwiz.core.run.state import Attempt, RunState


class CannotResume(Exception):
    """One sentence for the user."""


def begin_attempt(
    run: RunFolder, state: RunState, resume: str | None, mark: str | None, because: str | None = None
) -> Path | None:
    """Prepare the folder for a start by this process and note it in `state` as `starting`; writes no state.

    `because`: the cause for which the keeper starts it by itself. Returns the checkpoint to go on from.
    Raises CannotResume and OSError.
    """
    number = len(state.attempts) + 1
    for attempt in state.attempts:
        attempt.status = attempt.status or "lost"
        attempt.ended_s = attempt.ended_s or state.heartbeat_s
    chosen, said = choose_checkpoint(run, resume)
    put_away_last_attempt(run, number - 1)
    now = time.time()
    attempt = Attempt(number, now, resume=chosen.path.name if chosen else None, set_aside=said, because=because)
    attempt.changes = changes_now(run)
    state.attempts.append(attempt)
    state.status = "starting"
    state.started_s = state.started_s or now
    state.ended_s = state.exit = state.stop = state.outcome = state.launcher = None
    state.workers = []
    state.engine = {key: value for key, value in state.engine.items() if key.startswith("planned")}
    state.engine["actual"] = None
    state.host, state.machine, state.mark = platform.node(), machine_identity(), mark
    state.supervisor = this_process()
    state.folder = str(run.path.resolve())
    state.heartbeat_s = now
    return chosen.path if chosen else None


def choose_checkpoint(run: RunFolder, resume: str | None) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint to start from, and a sentence for each one that was renamed out of the way.

    Broken ones become `broken-checkpoint-N`. When an older one is asked for, those after it become
    `later-checkpoint-N`, because the new training would write over them. Raises CannotResume.
    """
    if resume is None:
        return None, []
    checkpoints = list_checkpoints(run)
    complete = [found for found in checkpoints if found.problem is None]
    chosen: Checkpoint | None = complete[-1] if complete else None
    if resume != "auto":
        chosen = _named(run, resume, complete)
    said = []
    for found in checkpoints:
        if found.problem is not None:
            new = set_aside(found, "broken")
            said.append(
                tr(
                    "{name} is not complete ({problem}); it is now {new}.",
                    name=found.path.name,
                    problem=found.problem,
                    new=new.name,
                )
            )
        elif chosen is not None and found.step > chosen.step:
            new = set_aside(found, "later")
            said.append(
                tr("{name} comes after the one to resume from; it is now {new}.", name=found.path.name, new=new.name)
            )
    if chosen is None:
        said.append(tr("There is no complete checkpoint: the training starts from the beginning."))
    return chosen, said


def _named(run: RunFolder, resume: str, complete: list[Checkpoint]) -> Checkpoint:
    path = run.path / Path(resume).name if not Path(resume).is_absolute() else Path(resume)
    have = ", ".join(found.path.name for found in complete) or tr("none")
    if not path.is_dir():
        raise CannotResume(
            tr(
                "There is no checkpoint {name} in {path}; complete ones: {names}.",
                name=repr(resume),
                path=run.path,
                names=have,
            )
        )
    found = inspect_checkpoint(path)
    if found.problem is not None:
        raise CannotResume(
            tr(
                "{name} is not complete ({problem}); complete ones: {names}.",
                name=path.name,
                problem=found.problem,
                names=have,
            )
        )
    return found


def put_away_last_attempt(run: RunFolder, number: int) -> None:
    """Move what the last attempt said about itself to `attempts/<number>/`, so that it is not taken for news.

    What it was writing when it was killed (`final_model.partial`) goes there too: written again in the
    same place, old and new files would mix. What is whole stays: the tokenizer, the base of adapters,
    the rows on disk and the texts that were generated belong to the run, not to an attempt.
    """
    files = [run.engine_json, run.file(OUTCOME_JSON), *sorted(run.path.glob("failure-rank*.json"))]
    partial = [run.file(f"{name}{PARTIAL}") for name in (FINAL_MODEL, ADAPTER, BASE_MODEL, TOKENIZER)]
    present = [path for path in (*files, *partial) if path.exists()]
    if not present:
        return
    folder = run.path / ATTEMPTS / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    for path in present:
        target, again = folder / path.name, 2
        while target.exists():
            target, again = folder / f"{path.stem}-{again}{path.suffix}", again + 1
        path.rename(target)
