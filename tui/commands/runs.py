"""`trainwiz runs ...`: list, compare, join, remove, resume, show, stop."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from typing import Any

from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED, CannotRunError, Finding, usage_error
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
    check_removable,
    compare_runs,
    describe_run,
    find_run,
    list_runs,
    list_runs_elsewhere,
    remove_run,
)
from trainwiz.core.run.state import Attempt, read_state
from trainwiz.core.text import moment_words, plain_text
from trainwiz.tui.choices import checked
from trainwiz.tui.commands.profiles import say_table
from trainwiz.tui.headless.ending import benchmark_rows
from trainwiz.tui.output import Row, Waiting, agreed, say, say_json, say_rows, under
from trainwiz.tui.run_words import PHASE_SENTENCES, is_long, painted_status, verified_text, wait_words
from trainwiz.tui.text import duration, size

# `trainwiz runs list [--all]`.


def run_list(*, as_json: bool, everywhere: bool = False) -> None:
    """All runs in ./runs, the newest first; with `everywhere` also those of this user that lie in other folders."""
    from trainwiz.core.telemetry.discovery import found_run
    from trainwiz.tui.commands.monitor import say_targets

    if DEFAULT_ROOT.is_dir():
        # A closed folder is refused: it would look like one without runs.
        next(DEFAULT_ROOT.iterdir(), None)
    runs = [*list_runs(DEFAULT_ROOT), *(list_runs_elsewhere(DEFAULT_ROOT) if everywhere else ())]
    if as_json:
        say_json({"runs": [asdict(run) for run in runs]})
    elif not runs:
        say(tr("No runs in runs/ yet. `trainwiz --profile cpu-demo --yes` creates one; --all lists other folders too."))
    else:
        say_targets([found_run(run) for run in runs])


# `trainwiz runs compare`.

WIDEST_VALUE = 36


def run_compare(runs: list[str], *, as_json: bool) -> None:
    document = compare_runs([find_run(run) for run in runs])
    if as_json:
        say_json(document)
        return
    names, results = document["runs"], document["results"]
    settings = [[key, *map(_value, values)] for key, values in document["settings"].items()]
    settings = settings or [[tr("settings"), *(tr("the same") for _ in names)]]
    any_told = {key: any(value is not None for value in values) for key, values in results.items()}
    results["status"] = map(tr, results["status"])
    outcome = [[tr(label), *map(_value, results[key])] for key, label in RESULTS if any_told[key]]
    say_table([["", *(plain_text(name, WIDEST_VALUE) for name in names)], *settings, *outcome])


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return plain_text(f"{value:.6g}" if isinstance(value, float) else value, WIDEST_VALUE)


# `trainwiz runs remove`: a run's folder goes, after asking.


def run_remove(run: str, *, yes: bool) -> None:
    folder = find_run(run, whole=yes)
    check_removable(folder)
    parts = [size(bytes_below(folder.path, on_disk=True))]
    if checkpoints := len(list_checkpoints(folder)):
        parts.append(trn("{n} checkpoint", "{n} checkpoints", checkpoints))
    if folder.final_model.is_dir():
        parts.append(tr("the final model"))
    what = tr("{folder} ({parts})", folder=plain_text(folder.path), parts=tr(", ").join(parts))
    question = tr("Permanently remove {what}? [y/N] ", what=what)
    if not yes and not agreed(question, tr("Removing {what} needs confirmation; add --yes.", what=what)):
        say(tr("Nothing was removed."))
        return
    remove_run(folder)
    say(tr("Removed {what}.", what=what))


# `trainwiz runs resume`.


def run_resume(run: str, *, detach: bool, accept: Sequence[str] = ()) -> int:
    """Go on from the newest complete checkpoint, followed like a new run."""
    named = ",".join(accept).split(",") if accept else []
    parts = [checked("--accept", part.strip(), (*PARTS, "all")) for part in named]
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
    nodes = config.engine.nodes
    if node is None:
        # As Slurm says; a run of one machine has only the first.
        given = "0" if nodes == 1 else os.environ.get(SLURM_NODE, "")
        node = int(given) if given.isdigit() else None
    if node is None:
        said = mark(
            "Specify which node of the run this is: --node 0 for the one with the supervisor, --node 1 for the next."
        )
        raise usage_error("missing_choice", "--node", tr(said))
    if not 0 <= node < nodes:
        said = mark("--node is {node}, but this run has {nodes} nodes, numbered 0 to {last}.")
        raise usage_error("bad_choice", "--node", tr(said, node=node, nodes=nodes, last=nodes - 1))
    if main is not None:
        os.environ[MAIN_VARIABLE] = str(parse_address(main))
    elif node > 0 and not os.environ.get(MAIN_VARIABLE):
        said = mark(
            "Set the address of node 0: --main HOST:PORT. `trainwiz export RUN --script` prints the whole command."
        )
        raise usage_error("missing_choice", "--main", tr(said))
    status = read_state(folder).status
    if status == "finished":
        say(tr("{name} has finished; nothing to do.", name=plain_text(folder.path.name)))
        return EXIT_FINISHED
    if node == 0:
        return _follow_in_terminal(folder, None if status == "prepared" else "auto")
    from trainwiz.core.hardware.install import need
    from trainwiz.core.nodes.node import WorkerNode

    need()
    return WorkerNode(folder, config, node, main_address(folder.path)).take_part()


# `trainwiz runs show`.

LABEL_WIDTH = 12


def run_show(run: str, *, as_json: bool) -> None:
    folder = find_run(run)
    described = describe_run(folder)
    if as_json:
        say_json(described.to_json())
        return
    status = described.state.status
    name = plain_text(described.summary.name)
    say_rows([(tr("Run"), name), (tr("State"), painted_status(status, tr(status)))], LABEL_WIDTH)
    say_rows([(label, plain_text(text)) for label, text in _rows(folder, described)], LABEL_WIDTH)


def _rows(folder: RunFolder, run: RunDescription) -> Iterator[Row]:
    from trainwiz.core.telemetry.target import Target
    from trainwiz.tui.commands.monitor import look, summary_rows

    state = run.state
    profile = tr("profile {name}", name=state.profile or tr("none"))
    yield tr("Model"), f"{state.model or tr('unknown')} · {profile}"
    yield from summary_rows(look(Target.of_run(folder)))
    if is_benchmark(folder) and not state.is_active:
        yield from benchmark_rows(benchmark_of(folder))
    for attempt in state.attempts:
        yield from under(tr("Attempt {number}", number=attempt.number), *_attempt(attempt, run))
    for found in run.checkpoints:
        good = tr("complete") if found.problem is None else tr("broken: {reason}", reason=found.problem)
        yield tr("Checkpoint"), f"{found.path.name}   {good}"
    yield from under(tr("Note"), *state.notes)
    if folder.final_model.is_dir():
        yield tr("Model path"), str(folder.final_model)
    yield tr("Folder"), str(folder.path)


def _attempt(attempt: Attempt, run: RunDescription) -> Iterator[str]:
    """When it was and how it ended, and what was done by trainwiz; of the last one the end of the run is told elsewhere."""
    state = run.state
    ended_s = attempt.ended_s or state.ended_s or time.time()
    yield tr(
        "{moment}, from {origin}, {time}: {status}",
        moment=moment_words(attempt.started_s),
        origin=attempt.resume or tr("the beginning"),
        time=duration(max(0.0, ended_s - attempt.started_s)),
        status=tr(attempt.status or state.status),
    )
    if attempt.because is not None:
        yield tr("started automatically by trainwiz: {cause}", cause=cause_words(attempt))
    yield from change_words(attempt.changes, run.batch)
    yield from attempt.set_aside
    if state.exit is None or attempt is not state.attempts[-1]:
        yield str((attempt.exit or {}).get("message") or "")
        yield attempt.not_retried or ""


# `trainwiz runs stop`.


def run_stop(runs: Sequence[str], *, now: bool) -> int:
    """Stop runs and wait for their end; Ctrl-C leaves the wait, not the stop.

    All are found before the first is asked, and all are asked before the first is waited for. Raises
    CannotRunError at the end, with what could not be stopped.
    """
    from trainwiz.core.launch.start import wait_for_end

    folders = {folder.path.resolve(): folder for folder in map(find_run, runs)}.values()
    asked: list[RunFolder] = []
    refused: list[Finding] = []
    for folder in folders:
        try:
            asked += [folder] if _ask(folder, now=now) else []
        except CannotRunError as error:
            refused += error.findings
    doing = tr("stopping immediately") if now else tr("finishing the step and saving a checkpoint")
    with suppress(KeyboardInterrupt), Waiting(doing):
        for folder in asked:
            wait_for_end(folder, force=now)
    ended = [_say_end(folder) for folder in asked]
    if refused:
        raise CannotRunError(refused)
    return EXIT_FINISHED if all(ended) else EXIT_STOPPED


def _ask(folder: RunFolder, *, now: bool) -> bool:
    """Whether it stops; before somebody waits for long it is said how long that may be, and how it is over at once."""
    from trainwiz.core.launch.start import stop_run

    name, state = plain_text(folder.path.name), read_state(folder)
    if not state.is_active:
        say(tr("{name} is not running ({status}).", name=name, status=tr(state.status)))
        return False
    cost = stop_cost(folder)
    if not now and (is_long(cost) or cost.phase in PHASE_SENTENCES):
        _say_how_to_end(f"{name}: {wait_words(cost)}", folder)
    stop_run(folder, now=now, wait_s=0.0)
    return True


def _say_end(folder: RunFolder) -> bool:
    """Whether it has ended."""
    state = read_state(folder)
    if not state.has_ended:
        still = tr("{name} is still {status}.", name=plain_text(folder.path.name), status=tr(state.status))
        _say_how_to_end(still, folder)
        return False
    message, remedy = (state.exit.message, state.exit.remedy or "") if state.exit else (tr(state.status), "")
    say(painted_status(state.status, plain_text(message)))
    for text in filter(None, (verified_text(state), plain_text(remedy))):
        say(f"  {text}")
    return True


def _say_how_to_end(sentence: str, folder: RunFolder) -> None:
    say(sentence)
    say("  " + tr("To stop it immediately, without a checkpoint:"))
    say(f"  trainwiz runs stop {plain_text(name_for_commands(folder.path))} --now")
