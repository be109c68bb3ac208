"""The start of an attempt: folder, files, launcher, the engine that runs; and the next one after a failure."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwiz.core.errors import Finding
from trainwiz.core.language import mark, tr
from trainwiz.core.run.attempts import Recovery, changes_now, read_recoveries, write_recoveries
from trainwiz.core.run.checkpoints import (
    Checkpoint,
    complete_checkpoints,
    inspect_checkpoint,
    list_checkpoints,
    set_aside,
)
from trainwiz.core.run.folder import (
    ADAPTER,
    ATTEMPTS,
    BASE_MODEL,
    FINAL_MODEL,
    OUTCOME_JSON,
    PARTIAL,
    RUN_MARK_VARIABLE,
    TOKENIZER,
    RunFolder,
    read_json,
)
from trainwiz.core.run.lost import machine_identity, this_process
from trainwiz.core.run.state import Attempt, RunState
from trainwiz.core.supervise.ending import Ended
from trainwiz.core.supervise.recovery import End, Retry, Situation, StartOrder, decide
from trainwiz.core.supervise.ties import KEEPER_VARIABLE, die_with_parent, keeper_value
from trainwiz.core.text import object_in

# Starting the launcher below the keeper.


def training_environment(mark: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of the launcher: the keeper's own, the run's variables, and the marks."""
    environment = {**os.environ, **variables}
    # The log is followed while it is written; a crash in native code leaves its stack there.
    environment["PYTHONUNBUFFERED"] = environment["PYTHONFAULTHANDLER"] = "1"
    # ninja and other tools that DeepSpeed compiles with lie beside the interpreter.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    environment[RUN_MARK_VARIABLE] = mark
    environment[KEEPER_VARIABLE] = keeper_value(this_process())
    return environment


def spawn_launcher(run: RunFolder, order: StartOrder, checkpoint: Path | None) -> subprocess.Popen[bytes]:
    """Start the launcher in the run folder, its output appended to train.log. Raises OSError.

    It dies with the keeper (SIGKILL), and takes signals in their default way even where the front end was started with
    some ignored (nohup, a shell's `&`): what the keeper handles becomes the default in a new program.
    """
    command = [*order.command, *(["--resume", str(checkpoint)] if checkpoint is not None else [])]
    command += ["--accept", ",".join(order.accept)] if order.accept else []
    keeper = os.getpid()
    with run.train_log.open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=run.path,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=training_environment(order.mark, order.environment),
            preexec_fn=lambda: die_with_parent(keeper),
        )


def mark_log(run: RunFolder, number: int, checkpoint: Path | None) -> int:
    """Write the line that separates attempts in train.log; returns the byte where this attempt begins."""
    origin = f"resumes from {checkpoint.name}" if checkpoint else "starts from the beginning"
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    with run.train_log.open("a", encoding="utf-8") as log:
        offset = log.tell()
        log.write(f"=== trainwiz: attempt {number}, {when}, {origin} ===\n")
    return offset


# Renewing: the child that writes the files of a run's next attempt and says how to start it.
#
# It loads the configuration, which the keeper must not; it may take long (a slow disk, a busy machine), so
# whoever waits for it looks after its own affairs again and again.

MAY_TAKE_S = 300
LOOK_EVERY_S = 0.25


class CannotStart(Exception):
    """One sentence: why an attempt cannot begin."""

    def __init__(self, why: str, code: str = "cannot_resume") -> None:
        super().__init__(why)
        self.code = code


def renew(
    command: Sequence[str], environment: Mapping[str, str], look: Callable[[], object] = lambda: None
) -> dict[str, Any]:
    """What the child says: {"command", "environment"}. `environment` is added to this process's own.

    `look` is called all the time, and ends the child by what it raises. Raises CannotStart and OSError.
    """
    us = os.getpid()

    def in_child() -> None:
        # It writes into the run folder: never beside the start that follows when we are killed.
        die_with_parent(us)
        signal.alarm(MAY_TAKE_S)

    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, **environment},
        preexec_fn=in_child,
    ) as child:
        try:
            while True:
                try:
                    said, complaints = child.communicate(timeout=LOOK_EVERY_S)
                    break
                except subprocess.TimeoutExpired:
                    look()
        except BaseException:
            child.kill()
            raise
    try:
        answer = dict(json.loads(said))
    except (ValueError, TypeError):
        last = (complaints.strip().splitlines() or [tr("no output")])[-1]
        raise CannotStart(not_written(last)) from None
    if "error" in answer:
        raise CannotStart(str(answer["error"]))
    return answer


def not_written(reason: str) -> str:
    """Why there is no next attempt: one sentence."""
    return tr("The files of the next attempt could not be written ({reason}); it is not started.", reason=reason)


# Retrying: what the keeper remembers and does between a failed attempt and the next one that it starts by itself.


class Retrying:
    """One for a keeper. Per failure: `after`, and where a retry follows, `prepare`."""

    def __init__(self, run: RunFolder, order: StartOrder) -> None:
        self.run = run
        self.order = order
        self._starts = 0
        self._gained_step = _newest_step(run)

    def after(self, ended: Ended) -> Retry | End | None:
        """What follows the failure; None where the order knows of no retries."""
        if self.order.setup is None:
            return None
        step = _newest_step(self.run)
        if step > self._gained_step:
            self._starts, self._gained_step = 0, step
        situation = Situation(
            self.order.setup, ended.during, ended.killed_by, self._starts, frozenset(changes_now(self.run))
        )
        return decide(ended.exit.cause or "unknown", situation)

    def prepare(self, attempt: int, because: str, retry: Retry, look: Callable[[], object]) -> StartOrder:
        """Write recovery.json and the exported files; the order of the next attempt.

        Raises CannotStart, OSError, and what `look` raises; recovery.json is as before then.
        """
        order, before, step = self.order, read_recoveries(self.run), _newest_step(self.run)
        changes = {**changes_now(self.run), **retry.changes}
        entry = Recovery(attempt, because, step if step >= 0 else None, time.time(), changes)
        write_recoveries(self.run, [*before, entry])
        try:
            answer = renew(order.renew, order.environment, look) if order.renew else {}
        except BaseException:
            write_recoveries(self.run, before)
            raise
        self._starts += int(retry.counts)
        self.order = dataclasses.replace(
            order,
            command=answer.get("command", order.command),
            environment=answer.get("environment", order.environment),
            setup=order.setup and order.setup.changed(retry.changes),
            resume="auto",
        )
        return self.order


def _newest_step(run: RunFolder) -> int:
    """Step of the newest complete checkpoint; -1 without one."""
    return max((found.step for found in complete_checkpoints(run)), default=-1)


# What happens to the run folder before each start of the training.


def begin_attempt(
    run: RunFolder, state: RunState, resume: str | None, mark: str | None, because: str | None = None
) -> Path | None:
    """Prepare the folder for a start by this process and note it in `state` as `starting`; writes no state.

    `because`: the cause for which the keeper starts it by itself. Returns the checkpoint to go on from.
    Raises CannotStart and OSError.
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


def close_attempt(state: RunState, ended: Ended, exit_code: int | None) -> None:
    """Once for each; what stands there of an attempt that has ended stays."""
    attempt = state.attempts[-1]
    state.workers = []
    if attempt.ended_s is None:
        attempt.ended_s = time.time()
        attempt.launcher_exit_code, attempt.status = exit_code, ended.status
        attempt.exit = {"code": ended.exit.code, "cause": ended.exit.cause, "message": ended.exit.message}


def close_run(run: RunFolder, state: RunState, ended: Ended, exit_code: int | None) -> None:
    """The last word in `state`, which is then to be written."""
    state.outcome = read_json(run.file(OUTCOME_JSON))
    state.status, state.exit, state.ended_s = ended.status, ended.exit, time.time()
    close_attempt(state, ended, exit_code)


def choose_checkpoint(run: RunFolder, resume: str | None) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint to start from, and a sentence for each one that was renamed out of the way.

    Broken ones become `broken-checkpoint-N`. When an older one is asked for, those after it become
    `later-checkpoint-N`, because the new training would write over them. Raises CannotStart.
    """
    if resume is None:
        return None, []
    checkpoints = list_checkpoints(run)
    complete = [found for found in checkpoints if found.problem is None]
    chosen = complete[-1] if complete else None
    if resume != "auto":
        path = Path(resume) if Path(resume).is_absolute() else run.path / Path(resume).name
        chosen = inspect_checkpoint(path)
        if chosen.problem is not None:
            names = ", ".join(found.path.name for found in complete) or tr("none")
            values = {"name": path.name, "problem": chosen.problem, "names": names}
            raise CannotStart(tr("{name} is incomplete ({problem}); complete checkpoints: {names}.", **values))
    said = []
    for found in checkpoints:
        if found.problem is not None:
            prefix, words = "broken", mark("{name} is incomplete ({problem}); it was renamed to {new}.")
        elif chosen is not None and found.step > chosen.step:
            prefix = "later"
            words = mark("{name} is later than the checkpoint to resume from; it was renamed to {new}.")
        else:
            continue
        new = set_aside(found, prefix).name
        said.append(tr(words, name=found.path.name, problem=found.problem, new=new))
    if chosen is None:
        said.append(tr("No complete checkpoint: training starts from the beginning."))
    return chosen, said


def put_away_last_attempt(run: RunFolder, number: int) -> None:
    """Move what the last attempt said about itself to `attempts/<number>/`, so that it is not taken for news.

    What it was writing when it was killed (`final_model.partial`) goes there too: written again in the
    same place, old and new files would mix. What is whole stays: the tokenizer, the base of adapters,
    the rows on disk and the texts that were generated belong to the run, not to an attempt.
    """
    partial = [run.file(f"{name}{PARTIAL}") for name in (FINAL_MODEL, ADAPTER, BASE_MODEL, TOKENIZER)]
    files = [run.engine_json, run.file(OUTCOME_JSON), *run.path.glob("failure-rank*.json"), *partial]
    folder = run.path / ATTEMPTS / str(number)
    for path in [path for path in files if path.exists()]:
        folder.mkdir(parents=True, exist_ok=True)
        target, again = folder / path.name, 2
        while target.exists():
            target, again = folder / f"{path.stem}-{again}{path.suffix}", again + 1
        path.rename(target)


# The engine that was planned and the one that runs: a difference is a finding.

NAMES = {
    "actual": mark("The engine"),
    "world_size": mark("The number of processes"),
    "device": mark("The device"),
    "precision": mark("The precision"),
    "attention": mark("The attention"),
    "compile": "torch.compile",
}
"""What may become another thing than was planned: a library that falls back, a file of the launcher. The optimizer and
the adapter are made as planned, or not at all."""


def take_engine(state: RunState, run: RunFolder) -> bool:
    """Copy engine.json into the state, with `findings` about what differs from the plan. False while it is not there."""
    engine = read_json(run.engine_json)
    if engine is None:
        return False
    state.engine.update({key: value for key, value in engine.items() if not key.startswith("planned")})
    steps = engine.get("max_steps")
    if isinstance(steps, int) and steps > 0:
        # Only the training process knows how many samples joined texts make with a tokenizer of their own.
        state.max_steps = steps
    state.engine["findings"] = [finding.to_json() for finding in engine_findings(state.engine)]
    return True


def engine_findings(engine: Mapping[str, Any]) -> tuple[Finding, ...]:
    """One warning for each difference between `planned`, `planned_values` and what runs; values not planned are no difference."""
    planned = {**object_in(engine.get("planned_values")), "actual": engine.get("planned")}
    findings = []
    for key, name in NAMES.items():
        was, now = planned.get(key), engine.get(key)
        if was is None or key not in engine:
            continue
        if key == "precision" and engine.get("zero_stage") is not None:
            # DeepSpeed holds half-precision weights, which is what bf16-true means, and calls it bf16.
            was = str(was).removesuffix("-true")
            now = str(now).removesuffix("-true")
        if key == "device":
            now = str(now).partition(":")[0]
        if now != was:
            message = tr(
                "{what} is {actual} but was planned as {planned}.", what=tr(name), actual=_said(now), planned=_said(was)
            )
            findings.append(Finding("engine_not_as_planned", "warning", f"engine.{key}", message))
    return tuple(findings)


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return tr("on") if value else tr("off")
    return tr("none") if value is None else str(value)
