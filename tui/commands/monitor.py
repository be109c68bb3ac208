"""`trainwiz monitor [WHAT]`: the live screen, one look, or a line every few seconds."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwiz.core.errors import usage_error
from trainwiz.core.language import mark, tr
from trainwiz.core.run.folder import DEFAULT_ROOT
from trainwiz.core.run.state import ENDED
from trainwiz.core.text import moment_words, plain_text
from trainwiz.tui.output import Row, is_terminal, say, say_json, say_rows, under
from trainwiz.tui.run_words import EVALUATION_WORDS, first_choice, measured, ordered_names, say_runs, steps_of
from trainwiz.tui.text import duration, gib, value_label
from trainwiz.tui.widgets.machine_panels import device_parts, host_parts
from trainwiz.tui.widgets.monitor_panel import answer_label, answer_text
from trainwiz.tui.widgets.run_header import phase_part, progress_words, step_parts, token_parts

if TYPE_CHECKING:
    from textual.content import Content
    from trainwiz.core.telemetry.discovery import Found
    from trainwiz.core.telemetry.snapshot import Snapshot
    from trainwiz.core.telemetry.target import Target


# What can be watched as a table: for `trainwiz monitor` where there is more than one thing, in pipes and in the picker,
# and for `trainwiz runs list`.

HEADINGS = (mark("name"), mark("status"), mark("step"), mark("loss"), mark("what"), mark("started"))
LEAST_TOLD_FIRST = (4, 5, 3)
"""Columns that go, in this order, where a terminal is too narrow for all: what, started, loss."""
WIDEST_WHAT = 60
SOURCES = {"trainer": "Trainer", "tensorboard": "TensorBoard", "process": mark("process")}


def say_targets(found: Sequence[Found]) -> None:
    """A line each, with a heading."""
    rows = [tuple(map(tr, HEADINGS)), *(row_of(target, time.time()) for target in found)]
    say_runs(rows, [target.status for target in found], LEAST_TOLD_FIRST)


def row_of(found: Found, now_s: float) -> tuple[str, str, str, str, str, str]:
    cards = f"GPU {', '.join(map(str, found.gpus))}" if found.gpus else ""
    since = duration(max(0.0, now_s - (found.started_s or now_s)))
    what = " · ".join(filter(None, (tr(SOURCES.get(found.target.kind, "")), found.what, cards)))
    return (
        plain_text(name_to_give(found)),
        tr(found.status),
        steps_of(found.step, found.max_steps),
        "-" if found.loss is None else f"{found.loss:.4g}",
        plain_text(what, WIDEST_WHAT) or "-",
        # A run that was written and never started has the time of its folder.
        "-" if found.started_s is None or found.status == "prepared" else tr("{time} ago", time=since),
    )


def name_to_give(found: Found) -> str:
    """What `trainwiz monitor` takes for it: a run below runs/ by its name, a process by its number, else the path."""
    target = found.target
    if target.kind == "process":
        return str(target.pid)
    if target.kind == "run" and target.path.parent.name == "runs" and not target.path.is_absolute():
        return target.path.name
    return str(target.path)


# A snapshot as lines of text: for `monitor --once` and `--plain`, for pipes and screen readers.

MEASURED = dict(EVALUATION_WORDS[1:])
ELSEWHERE = frozenset(
    {"tokens", "real_tokens", "tokens_per_s", "real_tokens_per_s", "step_s", "data_wait_s", "peak_allocated_bytes"}
    | {"peak_reserved_bytes"}
)
"""Metrics that the lines about pace and memory speak of."""
MOST_METRICS = 8
LONGEST_NAME = 48
MOST_FILES = 3
MOST_ANSWERS, LONGEST_ANSWER = 3, 200
ADVICE_WORDS = {"error": mark("urgent: {text}"), "warning": mark("warning: {text}")}
GAP = "   "


def summary_rows(snapshot: Snapshot) -> list[Row]:
    """What is known of each subject, in the order of reading; what others wrote is plain."""
    return [(label, plain_text(text)) for label, text in _rows(snapshot) if text]


def _rows(snapshot: Snapshot) -> Iterator[Row]:
    yield tr("Progress"), GAP.join(progress_words(snapshot))
    yield tr("Now"), GAP.join(work_parts(snapshot))
    metrics = [metric_text(name, value) for name, value in known_metrics(snapshot).items()]
    if beyond := metrics[MOST_METRICS:]:
        metrics[MOST_METRICS:] = [tr("{count} more with --json", count=f"{len(beyond):,}")]
    yield tr("Metrics"), GAP.join(metrics)
    for prompt in snapshot.answers[:MOST_ANSWERS]:
        yield tr("Prompt"), plain_text(prompt.source, LONGEST_ANSWER)
        answer = plain_text(answer_text(prompt.newest), LONGEST_ANSWER)
        yield "", f"{answer_label(prompt.newest)}{GAP}{answer}"
    yield tr("Speed"), _joined((*step_parts(snapshot), *token_parts(snapshot)))
    yield tr("Engine"), str(snapshot.engine.get("actual") or "")
    if snapshot.host.sample or snapshot.used_gpus:
        yield from ((label, _joined(parts)) for label, parts in device_parts(snapshot))
        yield tr("Host"), _joined(host_parts(snapshot))
    yield from under(tr("Problem"), *snapshot.problems)
    for advice in snapshot.advice:
        text = tr(ADVICE_WORDS.get(advice.level, "{text}"), text=advice.text)
        yield from under(tr("Advice"), text, advice.remedy)
    if snapshot.source != "run":
        yield from under(tr("Read from"), *snapshot.read_from[:MOST_FILES])
    if snapshot.ending is not None:
        yield from under(tr("End"), snapshot.ending.text, snapshot.not_retried)
        yield tr("Next"), snapshot.ending.remedy or ""


def _joined(parts: Iterable[Content]) -> str:
    return GAP.join(part.plain for part in parts)


def plain_line(snapshot: Snapshot) -> str:
    """One line: the moment of a replay, status, progress, loss, pace, GPU memory, the worst advice."""
    parts = [tr(snapshot.status), *work_parts(snapshot), *progress_words(snapshot)]
    if snapshot.replayed_s is not None:
        parts.insert(0, moment_words(snapshot.replayed_s, "%Y-%m-%d %H:%M:%S"))
    known = known_metrics(snapshot)
    if name := first_choice(known):
        parts.append(metric_text(name, known[name]))
    if pace := snapshot.pace.real_tokens_per_s or snapshot.pace.tokens_per_s:
        parts.append(tr("{count} tokens/s", count=f"{pace:,.0f}"))
    parts += [
        f"GPU {gpu.index} {gib(gpu.memory_used_bytes)} GiB" for gpu in snapshot.used_gpus if gpu.memory_used_bytes
    ]
    urgent = [advice.text for advice in snapshot.advice if advice.level in ADVICE_WORDS]
    parts += [*urgent, *snapshot.problems][:1]
    if snapshot.ending is not None and snapshot.status not in ENDED:
        parts.append(snapshot.ending.text)
    return plain_text(GAP.join(parts))


def known_metrics(snapshot: Snapshot) -> dict[str, float]:
    """The last value of each metric that no other line speaks of, the telling ones first."""
    names = dict.fromkeys((*ordered_names(snapshot.metrics), *snapshot.metrics))
    values = ((name, snapshot.metrics[name].last) for name in names if name not in ELSEWHERE)
    return {name: value for name, value in values if value is not None}


def metric_text(name: str, value: float) -> str:
    """A metric by the name that it has in its files."""
    shown = plain_text(name)
    shown = shown if len(shown) <= LONGEST_NAME else f"…{shown[1 - LONGEST_NAME :]}"
    return f"{shown} {measured(name, value) if name in MEASURED else value_label(value)}"


def work_parts(snapshot: Snapshot) -> list[str]:
    """What is done while no steps are made, and an attempt that is not the first."""
    return [words for words in (phase_part(snapshot), snapshot.attempt_words) if words]


# `trainwiz monitor --plain`: a line every few seconds, for pipes and screen readers.


def follow(target: Target, *, as_json: bool, interval_s: float) -> int:
    """A line every `interval_s` seconds in which something has changed, until the job has ended; Ctrl-C only ends the
    watching. Returns 0."""
    from trainwiz.core.telemetry.target import open_source

    said = ""
    with suppress(KeyboardInterrupt), closing(open_source(target)) as source:
        while True:
            began = time.monotonic()
            snapshot = source.read_all()
            if as_json:
                say_json(snapshot.to_json(), compact=True)
            elif (line := plain_line(snapshot)) != said:
                say(line)
                said = line
            if snapshot.status in ENDED:
                break
            time.sleep(max(0.0, interval_s - (time.monotonic() - began)))
        if not as_json and snapshot.ending is not None:
            say(plain_text(snapshot.ending.text))
            if snapshot.ending.remedy:
                say(tr("Next: {remedy}", remedy=plain_text(snapshot.ending.remedy)))
    return 0


SCREEN_INTERVAL_S = 1.0
PLAIN_INTERVAL_S = 5.0


def run_monitor(
    text: str | None,
    *,
    once: bool,
    as_json: bool,
    plain: bool,
    readonly: bool,
    interval_s: float | None = None,
    replay: str | None = None,
) -> int:
    """Watch what `text` means; None takes what is running, or shows the list where that is not one thing.

    `as_json` alone is one look; with `plain` it is one JSON document a line. `replay` is a speed as typed.
    Returns the exit code 0: watching went well, whatever became of the run. Raises UsageError for what
    cannot be watched.
    """
    looks_once = once or (as_json and not plain)
    target, found = choose(text, ended=replay is not None)
    if target is not None and replay is not None:
        if looks_once:
            message = tr("--replay only works in the live monitor or with --plain; --once shows how the run ended.")
            raise usage_error("replay_once", "--replay", message)
        target = replayed(target, replay)
    if not (looks_once or plain):
        if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
            message = tr("The live monitor needs a terminal; without one use --once, --plain or --json.")
            raise usage_error("no_terminal", "terminal", message)
        return show_screen(target, readonly=readonly, interval_s=interval_s or SCREEN_INTERVAL_S, replay=replay)
    if target is None:
        if as_json:
            say_json({"targets": [one.to_json() for one in found]})
        else:
            say_targets(found)
        return 0
    if plain and not once:
        return follow(target, as_json=as_json, interval_s=interval_s or PLAIN_INTERVAL_S)
    snapshot = look(target)
    if as_json:
        say_json(snapshot.to_json())
    else:
        say(f"{plain_text(snapshot.name)}{GAP}{tr(snapshot.status)}")
        say_rows(summary_rows(snapshot))
    return 0


def choose(text: str | None, *, ended: bool = False) -> tuple[Target | None, list[Found]]:
    """(what is meant, all there is where nothing was named); no target where a choice is needed.

    `ended`: among the runs that can be replayed. Raises UsageError where `text` names nothing, or
    where there is nothing to watch at all.
    """
    from trainwiz.core.telemetry.discovery import default_target, find_target, list_targets

    if text is not None:
        return find_target(text), []
    found = [one for one in list_targets() if not ended or (one.target.kind == "run" and one.status in ENDED)]
    if not found:
        message = tr(
            "No run in {folder}/ to monitor or replay. `trainwiz --profile cpu-demo --yes` creates one; `trainwiz "
            "monitor FOLDER` opens one in another place.",
            folder=DEFAULT_ROOT,
        )
        raise usage_error("no_runs", str(DEFAULT_ROOT), message)
    return default_target(found), found


def replayed(target: Target, speed: str) -> Target:
    """The target as a replay. Raises UsageError where it cannot be one."""
    from trainwiz.core.run.folder import RunFolder
    from trainwiz.core.run.state import read_state
    from trainwiz.core.telemetry.run_source import parse_speed, spans_of

    if target.kind != "run":
        message = tr(
            "{name} is not a trainwiz run. Only trainwiz runs record the times that a replay needs.", name=target.name
        )
        raise usage_error("replay_foreign", "--replay", message)
    folder = RunFolder(target.path)
    spans_of(folder, read_state(folder))
    return replace(target, replay_speed=parse_speed(speed))


def look(target: Target) -> Snapshot:
    from trainwiz.core.telemetry.target import open_source

    with closing(open_source(target)) as source:
        return source.read_all()


def show_screen(target: Target | None, *, readonly: bool, interval_s: float, replay: str | None) -> int:
    """The live screen of the target; without one that of the picker, whose runs are replayed too where `replay` is given."""
    from textual.screen import Screen
    from trainwiz.tui.app import TrainwizApp
    from trainwiz.tui.screens.monitor import MonitorScreen

    def watch(chosen: Target) -> MonitorScreen:
        return MonitorScreen(chosen, readonly, interval_s=interval_s)

    def first() -> Screen[None]:
        if target is not None:
            return watch(target)
        from trainwiz.tui.screens.run_picker import RunPicker

        if replay is None:
            return RunPicker(watch)
        return RunPicker(lambda chosen: watch(replayed(chosen, replay)), find=lambda: choose(None, ended=True)[1])

    app = TrainwizApp(first)
    # What is loaded by now stays: the collector of garbage need not look through it again and again.
    gc.freeze()
    app.run()
    return app.return_code or 0
