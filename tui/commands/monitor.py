"""`trainwiz monitor [WHAT]`: the live screen, one look, or a line every few seconds."""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwiz.core.errors import usage_error
from trainwiz.core.language import mark, tr
from trainwiz.core.run.folder import DEFAULT_ROOT
from trainwiz.core.run.state import ENDED
from trainwiz.core.text import plain_text
from trainwiz.tui.commands.monitor_text import plain_line, summary_lines
from trainwiz.tui.output import is_terminal, say, say_json, say_labelled
from trainwiz.tui.run_words import painted_status, steps_of
from trainwiz.tui.text import aligned, duration

if TYPE_CHECKING:
    from trainwiz.core.telemetry.discovery import Found
    from trainwiz.core.telemetry.snapshot import Snapshot
    from trainwiz.core.telemetry.target import Target


# What can be watched as a table: for `trainwiz monitor` where there is more than one thing, in pipes and in the picker.

HEADINGS = (mark("name"), mark("status"), mark("step"), mark("loss"), mark("what"), mark("began"))
RIGHT = (2, 3)
WIDEST_WHAT = 60
SOURCES = {"trainer": "Trainer", "tensorboard": "TensorBoard", "process": mark("process")}


def say_targets(found: Sequence[Found], *, as_json: bool, now_s: float | None = None) -> None:
    """The list on stdout: JSON {targets: [...]}, else one line each with a heading."""
    if as_json:
        say_json({"targets": [target.to_json() for target in found]})
        return
    now_s = time.time() if now_s is None else now_s
    rows = [tuple(map(tr, HEADINGS)), *(row_of(target, now_s) for target in found)]
    for number, row in enumerate(aligned(rows, RIGHT)):
        row[1] = painted_status(found[number - 1].status, row[1]) if number else f"  {row[1]}"
        say("  ".join(row).rstrip())


def row_of(found: Found, now_s: float) -> tuple[str, str, str, str, str, str]:
    """One row as plain text, in the order of HEADINGS."""
    kind = tr(SOURCES.get(found.target.kind, ""))
    cards = f"GPU {', '.join(map(str, found.gpus))}" if found.gpus else ""
    what = " · ".join(part for part in (kind, found.what, cards) if part)
    ago_s = None if found.started_s is None else max(0.0, now_s - found.started_s)
    return (
        plain_text(name_to_give(found)),
        tr(found.status),
        steps_of(found.step, found.max_steps),
        "-" if found.loss is None else f"{found.loss:.4g}",
        plain_text(what, WIDEST_WHAT) or "-",
        "-" if ago_s is None else tr("{time} ago", time=duration(ago_s)),
    )


def name_to_give(found: Found) -> str:
    """What `trainwiz monitor` takes for it: a run below runs/ by its name, a process by its number, else the path."""
    target = found.target
    if target.kind == "process":
        return str(target.pid)
    if target.kind == "run" and target.path.parent.name == "runs" and not target.path.is_absolute():
        return target.path.name
    return str(target.path)


# `trainwiz monitor --plain`: a line every few seconds, for pipes and screen readers.

SAY_AGAIN_S = 60.0
"""A line that says what the line before said is held back, for this long at most."""


def follow(
    target: Target,
    *,
    as_json: bool,
    interval_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """A line every `interval_s` seconds until the job has ended; Ctrl-C only ends the watching. Returns 0."""
    from trainwiz.core.telemetry.target import open_source

    source = open_source(target)
    said, said_at = "", -SAY_AGAIN_S
    try:
        while True:
            began = clock()
            snapshot = source.read_all()
            ended = snapshot.status in ENDED
            if as_json:
                say_json(snapshot.to_json(), compact=True)
            elif (line := plain_line(snapshot)) != said or ended or began - said_at >= SAY_AGAIN_S:
                say(line)
                said, said_at = line, began
            if ended:
                if not as_json:
                    say_ending(snapshot)
                return 0
            sleep(max(0.0, interval_s - (clock() - began)))
    except KeyboardInterrupt:
        return 0
    finally:
        source.close()


def say_ending(snapshot: Snapshot) -> None:
    """How it ended, and what to do next."""
    if snapshot.ending is None:
        return
    say(plain_text(snapshot.ending.text))
    if snapshot.ending.remedy:
        say(tr("Next: {remedy}", remedy=plain_text(snapshot.ending.remedy)))


# `trainwiz monitor [WHAT]`: the live screen, one look, or a line every few seconds.

SCREEN_INTERVAL_S = 1.0
PLAIN_INTERVAL_S = 5.0
SHORTEST_INTERVAL_S = 0.1
LONGEST_INTERVAL_S = 86_400.0


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
    check_interval(interval_s)
    target, found = choose(text) if replay is None or text is not None else choose_ended()
    if not (looks_once or plain or (is_terminal(sys.stdin) and is_terminal(sys.stdout))):
        message = tr("The live monitor needs a terminal; without one use --once, --plain or --json.")
        raise usage_error("no_terminal", "terminal", message)
    if target is None and not (looks_once or plain):
        return show_screen(None, readonly=readonly, interval_s=interval_s, replay=replay)
    if target is None:
        say_targets(found, as_json=as_json)
        return 0
    if replay is not None:
        target = replayed(target, replay, once=looks_once)
    if looks_once:
        return look_once(target, as_json=as_json)
    if plain:
        return follow(target, as_json=as_json, interval_s=PLAIN_INTERVAL_S if interval_s is None else interval_s)
    return show_screen(target, readonly=readonly, interval_s=interval_s)


def check_interval(interval_s: float | None) -> None:
    """Raises UsageError for an interval that no look can keep."""
    if interval_s is None or SHORTEST_INTERVAL_S <= interval_s <= LONGEST_INTERVAL_S:
        return
    given = tr("not a number") if math.isnan(interval_s) else f"{interval_s:g}"
    message = tr(
        "--every takes seconds from {least} to {most}; {given} is none.",
        least=f"{SHORTEST_INTERVAL_S:g}",
        most=f"{LONGEST_INTERVAL_S:,.0f}",
        given=given,
    )
    raise usage_error("bad_interval", "--every", message)


def choose(text: str | None, find: Callable[[], list[Found]] | None = None) -> tuple[Target | None, list[Found]]:
    """(what is meant, all there is where nothing was named); no target where a choice is needed.

    `find` lists what can be watched; None asks this machine. Raises UsageError where `text` names
    nothing, or where there is nothing to watch at all.
    """
    from trainwiz.core.telemetry.discovery import default_target, find_target, list_targets

    if text is not None:
        return find_target(text), []
    found = (find or list_targets)()
    if not found:
        raise usage_error(
            "no_runs",
            str(DEFAULT_ROOT),
            tr(
                "Nothing trains here now, and there are no runs in {folder}/ yet; `trainwiz --profile cpu-demo --yes` makes one, and `trainwiz monitor FOLDER` opens one that lies elsewhere.",
                folder=DEFAULT_ROOT,
            ),
        )
    return default_target(found), found


def choose_ended(find: Callable[[], list[Found]] | None = None) -> tuple[Target | None, list[Found]]:
    """As `choose` without a name, among the runs that can be replayed."""
    from trainwiz.core.telemetry.discovery import default_target, list_targets

    found = [run for run in (find or list_targets)() if run.target.kind == "run" and run.status in ENDED]
    if not found:
        message = tr("There is no run in {folder}/ that has ended: nothing can be replayed yet.", folder=DEFAULT_ROOT)
        raise usage_error("nothing_to_replay", "--replay", message)
    return default_target(found), found


def replayed(target: Target, speed: str, *, once: bool = False) -> Target:
    """The target as a replay. Raises UsageError where it cannot be one."""
    from trainwiz.core.run.folder import RunFolder
    from trainwiz.core.run.state import read_state
    from trainwiz.core.telemetry.replay import parse_speed, spans_of

    if once:
        message = tr("--replay goes with the screen or with --plain; --once shows how the run ended.")
        raise usage_error("replay_once", "--replay", message)
    if target.kind != "run":
        message = tr(
            "{name} was not run by trainwiz: only its own runs keep the times that a replay needs.", name=target.name
        )
        raise usage_error("replay_foreign", "--replay", message)
    folder = RunFolder(target.path)
    spans_of(folder, read_state(folder))
    return replace(target, replay_speed=parse_speed(speed))


def look_once(target: Target, *, as_json: bool) -> int:
    from trainwiz.core.telemetry.target import open_source

    source = open_source(target)
    try:
        snapshot = source.read_all()
    finally:
        source.close()
    if as_json:
        say_json(snapshot.to_json())
        return 0
    for line in summary_lines(snapshot):
        say_labelled(line)
    return 0


def show_screen(
    target: Target | None, *, readonly: bool, interval_s: float | None = None, replay: str | None = None
) -> int:
    """The screen on `target`; None lets the user choose first."""
    from textual.screen import Screen
    from trainwiz.tui.app import TrainwizApp
    from trainwiz.tui.screens.monitor import MonitorScreen

    every_s = SCREEN_INTERVAL_S if interval_s is None else interval_s

    def watch(chosen: Target) -> MonitorScreen:
        return MonitorScreen(chosen, readonly, interval_s=every_s)

    def first() -> Screen[None]:
        if target is not None:
            return watch(target)
        from trainwiz.tui.screens.run_picker import RunPicker

        if replay is not None:
            return RunPicker(lambda chosen: watch(replayed(chosen, replay)), find=lambda: choose_ended()[1])
        return RunPicker(watch)

    app = TrainwizApp(first)
    # What is loaded by now stays: the collector of garbage need not look through it again and again.
    gc.freeze()
    app.run()
    return app.return_code or 0
