"""`trainwiz runs ...`: list, compare, join, remove, resume, show, stop."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED, CannotRunError, usage_error
from trainwiz.core.files import bytes_below
from trainwiz.core.history.run import benchmark_of, is_benchmark
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.launch.actions import stop_cost
from trainwiz.core.run.attempts import cause_words, change_words
from trainwiz.core.run.checkpoints import list_checkpoints
from trainwiz.core.run.folder import DEFAULT_ROOT, RunFolder, name_for_commands
from trainwiz.core.run.identity import PARTS
from trainwiz.core.run.listing import (
    RESULTS,
    RunDescription,
    RunSummary,
    check_removable,
    compare_runs,
    describe_run,
    find_run,
    list_runs,
    list_runs_elsewhere,
    remove_run,
)
from trainwiz.core.run.state import Attempt, RunState, read_state
from trainwiz.core.text import moment_words, plain_text
from trainwiz.tui.headless.ending import benchmark_rows
from trainwiz.tui.output import Row, Waiting, agreed, say, say_json, say_rows
from trainwiz.tui.run_words import (
    PHASE_SENTENCES,
    is_long,
    painted_status,
    say_runs,
    steps_of,
    verified_text,
    wait_words,
)
from trainwiz.tui.text import aligned, duration, sentence_gap, size

WIDEST_VALUE = 36


# `trainwiz runs list [--all]`.

HEADINGS = (mark("name"), mark("status"), mark("step"), mark("loss"), mark("model"), mark("started"))
WIDEST_NAME = 40
LEAST_TOLD_FIRST = (4, 5, 3)
"""Columns that go, in this order, where a terminal is too narrow for all: model, started, loss."""


def run_list(*, as_json: bool, everywhere: bool = False) -> int:
    """All runs in ./runs, the newest first; with `everywhere` also those of this user that lie in other folders."""
    if DEFAULT_ROOT.is_dir() and not os.access(DEFAULT_ROOT, os.R_OK | os.X_OK):
        reason = tr("Permission denied")
        message = tr("Cannot read {path}: {reason}.", path=DEFAULT_ROOT, reason=reason)
        raise usage_error("not_readable", str(DEFAULT_ROOT), message)
    here = list_runs(DEFAULT_ROOT)
    runs = here + list_runs_elsewhere(DEFAULT_ROOT) if everywhere else here
    if as_json:
        say_json({"runs": [asdict(run) for run in runs]})
    elif not runs:
        say(tr("No runs in runs/ yet. `trainwiz --profile cpu-demo --yes` creates one; --all lists other folders too."))
    else:
        rows = [[*map(tr, HEADINGS), *([tr("folder")] if everywhere else [])]]
        rows += [[*_row(run), *([plain_text(Path(run.path).parent)] if everywhere else [])] for run in runs]
        say_runs(rows, [run.status for run in runs], LEAST_TOLD_FIRST)
    return EXIT_FINISHED


def _row(run: RunSummary) -> tuple[str, str, str, str, str, str]:
    return (
        plain_text(run.name, WIDEST_NAME),
        tr(run.status),
        steps_of(run.step, run.max_steps),
        "-" if run.loss is None else f"{run.loss:.3f}",
        plain_text(run.model or "-", WIDEST_VALUE),
        "-" if run.started_s is None else moment_words(run.started_s),
    )


# `trainwiz runs compare`.


def run_compare(runs: list[str], *, as_json: bool) -> int:
    document = compare_runs([find_run(run) for run in runs])
    if as_json:
        say_json(document)
        return EXIT_FINISHED
    rows: list[list[str]] = [["", *(plain_text(name, WIDEST_VALUE) for name in document["runs"])]]
    planned = document["planned"]
    rows += [
        [plain_text(key), *map(_setting, values, planned.get(key, values))]
        for key, values in document["settings"].items()
    ]
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


def _setting(value: Any, planned: Any) -> str:
    if value == planned:
        return _value(value)
    return tr("{value} (planned {planned})", value=_value(value), planned=_value(planned))


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return plain_text(f"{value:.6g}" if isinstance(value, float) else value, WIDEST_VALUE)


# `trainwiz runs remove`: a run's folder goes, after asking.


def run_remove(run: str, *, yes: bool) -> int:
    folder = find_run(run, whole=yes)
    check_removable(folder)
    what = _what_goes(folder)
    question = tr("Permanently remove {what}? [y/N] ", what=what)
    if not yes and not agreed(question, tr("Removing {what} needs confirmation; add --yes.", what=what)):
        say(tr("Nothing was removed."))
        return EXIT_FINISHED
    remove_run(folder)
    say(tr("Removed {what}.", what=what))
    return EXIT_FINISHED


def _what_goes(folder: RunFolder) -> str:
    checkpoints = len(list_checkpoints(folder))
    parts = [size(bytes_below(folder.path, on_disk=True))]
    if checkpoints:
        parts.append(trn("{n} checkpoint", "{n} checkpoints", checkpoints))
    if folder.final_model.is_dir():
        parts.append(tr("the final model"))
    return tr("{folder} ({parts})", folder=plain_text(folder.path), parts=tr(", ").join(parts))


# `trainwiz runs resume`.


def run_resume(run: str, *, detach: bool, accept: Sequence[str] = ()) -> int:
    """Go on from the newest complete checkpoint, followed like a new run."""
    parts = [part.strip() for given in accept for part in given.split(",") if part.strip()]
    unknown = [part for part in parts if part not in (*PARTS, "all")]
    if unknown:
        message = tr(
            "--accept {given}: unknown part. Choose from {parts} or all.",
            given=plain_text(", ".join(unknown), 40),
            parts=", ".join(PARTS),
        )
        raise usage_error("bad_choice", "--accept", message)
    return _follow_in_terminal(find_run(run), "auto", detach=detach, accept=parts)


def _follow_in_terminal(
    folder: RunFolder, checkpoint: str | None, *, detach: bool = False, accept: Sequence[str] = ()
) -> int:
    from trainwiz.tui.headless.reporters import Reporter, form_of
    from trainwiz.tui.headless.run import start_and_follow

    with closing(Reporter(form_of(as_json=False, plain=False))) as reporter:
        return start_and_follow(folder, reporter, detach=detach, checkpoint=checkpoint, accept=accept)


# `trainwiz runs join`: this machine as one of several that train a run.

SLURM_NODE = "SLURM_NODEID"


def run_join(run: str, *, node: int | None, main: str | None) -> int:
    """Start, or go on with, the run as node 0; take part in it as another. Raises UsageError."""
    from trainwiz.core.launch.start import changed_config
    from trainwiz.core.nodes.address import MAIN_VARIABLE, main_address, parse_address

    folder = find_run(run)
    config = changed_config(folder)
    number, nodes = node if node is not None else _own_number(config), config.engine.nodes
    if not 0 <= number < nodes:
        said = mark("--node is {node}, but this run has {nodes} nodes, numbered 0 to {last}.")
        raise usage_error("bad_choice", "--node", tr(said, node=number, nodes=nodes, last=nodes - 1))
    if main is not None:
        os.environ[MAIN_VARIABLE] = str(parse_address(main))
    elif number > 0 and not os.environ.get(MAIN_VARIABLE):
        message = tr(
            "Set the address of node 0: --main HOST:PORT. `trainwiz export RUN --script` prints the whole command."
        )
        raise usage_error("missing_choice", "--main", message)
    status = read_state(folder).status
    if status == "finished":
        say(tr("{name} has finished; nothing to do.", name=plain_text(folder.path.name)))
        return EXIT_FINISHED
    if number == 0:
        return _follow_in_terminal(folder, None if status == "prepared" else "auto")
    from trainwiz.core.hardware.install import need
    from trainwiz.core.nodes.node import WorkerNode

    need()
    return WorkerNode(folder, config, number, main_address(folder.path)).take_part()


def _own_number(config: RunConfig) -> int:
    """As Slurm says; a run of one machine has only the first."""
    text = "0" if config.engine.nodes == 1 else os.environ.get(SLURM_NODE, "")
    if not text.isdigit():
        message = tr(
            "Specify which node of the run this is: --node 0 for the one with the supervisor, --node 1 for the next."
        )
        raise usage_error("missing_choice", "--node", message)
    return int(text)


# `trainwiz runs show`.

LABEL_WIDTH = 12


def run_show(run: str, *, as_json: bool) -> int:
    folder = find_run(run)
    described = describe_run(folder)
    if as_json:
        say_json(described.to_json())
        return EXIT_FINISHED
    say_rows(_rows(folder, described), LABEL_WIDTH)
    return EXIT_FINISHED


def _rows(folder: RunFolder, run: RunDescription) -> Iterator[Row]:
    from trainwiz.core.telemetry.target import Target
    from trainwiz.tui.commands.monitor import look, summary_rows

    state = run.state
    yield tr("Run"), plain_text(run.summary.name)
    yield tr("State"), painted_status(state.status, tr(state.status))
    profile = tr("profile {name}", name=plain_text(state.profile or tr("none")))
    yield tr("Model"), f"{plain_text(state.model or tr('unknown'))} · {profile}"
    yield from summary_rows(look(Target.of_run(folder)))
    if is_benchmark(folder) and not run.state.is_active:
        yield from benchmark_rows(benchmark_of(folder))
    for attempt in run.state.attempts:
        yield from _attempt(attempt, run)
    for found in run.checkpoints:
        good = tr("complete") if found.problem is None else tr("broken: {reason}", reason=plain_text(found.problem))
        yield tr("Checkpoint"), f"{plain_text(found.path.name)}   {good}"
    for aside in run.set_aside:
        later = tr("left over when training resumed from an earlier one")
        yield tr("Set aside"), f"{plain_text(aside.name)}   {tr('incomplete') if aside.why == 'broken' else later}"
    for words in run.state.notes:
        yield tr("Note"), plain_text(words)
    if folder.final_model.is_dir():
        yield tr("Model path"), plain_text(folder.final_model)
    yield tr("Folder"), plain_text(folder.path)


def _attempt(attempt: Attempt, run: RunDescription) -> Iterator[Row]:
    state = run.state
    is_last = attempt is state.attempts[-1]
    last_sign_s = (time.time() if state.is_active else state.ended_s) if is_last else None
    ended_s = attempt.ended_s or last_sign_s or attempt.started_s
    yield (
        tr("Attempt {number}", number=attempt.number),
        tr(
            "{moment}, from {origin}, {time}: {status}",
            moment=moment_words(attempt.started_s),
            origin=plain_text(attempt.resume or tr("the beginning")),
            time=duration(max(0.0, ended_s - attempt.started_s)),
            status=plain_text(tr(attempt.status or state.status)),
        ),
    )
    if attempt.because is not None:
        yield "", tr("started automatically by trainwiz: {cause}", cause=cause_words(attempt))
    yield from _below(change_words(attempt.changes, run.batch))
    yield from _below(attempt.set_aside)
    if not (is_last and state.exit is not None):
        message = (attempt.exit or {}).get("message")
        yield from _below(text for text in (message, attempt.not_retried) if text and isinstance(text, str))


def _below(sentences: Iterable[str]) -> Iterator[Row]:
    for sentence in sentences:
        yield "", plain_text(sentence)


# `trainwiz runs stop`.


def run_stop(runs: Sequence[str], *, now: bool) -> int:
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
                _say_how_to_end(tr("{name} is still stopping.", name=plain_text(folder.path.name)), folder)
        code = EXIT_STOPPED
    if refused:
        raise CannotRunError([finding for error in refused for finding in error.findings])
    return code


def _ask(folder: RunFolder, refused: list[CannotRunError], *, now: bool) -> bool:
    """Ask one run; False where there is nothing to wait for."""
    from trainwiz.core.launch.start import stop_run

    state = read_state(folder)
    if not state.is_active:
        say(tr("{name} is not running ({status}).", name=plain_text(folder.path.name), status=tr(state.status)))
        return False
    if not now:
        _say_what_it_takes(folder, state)
    try:
        stop_run(folder, now=now, wait_s=0.0)
    except CannotRunError as error:
        refused.append(error)
        return False
    return True


def _say_what_it_takes(folder: RunFolder, state: RunState) -> None:
    """Before somebody waits for long: how long it may be, why, and how it is over at once."""
    cost = stop_cost(folder)
    said = wait_words(cost)
    requested_s = (state.stop or {}).get("requested_s")
    if isinstance(requested_s, int | float):
        ago = duration(max(0.0, time.time() - requested_s))
        said = sentence_gap().join(filter(None, [tr("A stop was requested {time} ago.", time=ago), said]))
    elif not is_long(cost) and cost.phase not in PHASE_SENTENCES:
        return
    _say_how_to_end(f"{plain_text(folder.path.name)}: {said}", folder)


def _wait_for(folder: RunFolder, *, now: bool, others: int) -> int:
    from trainwiz.core.launch.start import wait_for_end

    doing = tr("stopping immediately") if now else tr("finishing the step and saving a checkpoint")
    if others:
        doing = tr("{name}: {doing}; {n} more waiting", name=plain_text(folder.path.name), doing=doing, n=others)
    with Waiting(doing):
        state = wait_for_end(folder, force=now)
    if not state.has_ended:
        _say_how_to_end(
            tr("{name} is still {status}.", name=plain_text(folder.path.name), status=tr(state.status)), folder
        )
        return EXIT_STOPPED
    say(painted_status(state.status, plain_text(state.exit.message if state.exit else tr(state.status))))
    for text in filter(None, (verified_text(state), plain_text(state.exit.remedy or "") if state.exit else "")):
        say(f"  {text}")
    return EXIT_FINISHED


def _say_how_to_end(sentence: str, folder: RunFolder) -> None:
    say(sentence)
    say("  " + tr("To stop it immediately, without a checkpoint:"))
    say(f"  trainwiz runs stop {plain_text(name_for_commands(folder.path))} --now")
