"""`trainwiz monitor [WHAT]`: the live screen, one look, or a line every few seconds."""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr
from trainwiz.core.run.names import DEFAULT_ROOT
from trainwiz.core.run.status import ENDED
from trainwiz.tui.output import is_terminal, say_json

if TYPE_CHECKING:
    from trainwiz.core.telemetry.discovery import Found
    from trainwiz.core.telemetry.target import Target

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
        from trainwiz.tui.commands.monitor_list import say_targets

        say_targets(found, as_json=as_json)
        return 0
    if replay is not None:
        target = replayed(target, replay, once=looks_once)
    if looks_once:
        return look_once(target, as_json=as_json)
    if plain:
        from trainwiz.tui.commands.monitor_follow import follow

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

    found = [one for one in (find or list_targets)() if one.target.kind == "run" and one.status in ENDED]
    if not found:
        message = tr("There is no run in {folder}/ that has ended: nothing can be replayed yet.", folder=DEFAULT_ROOT)
        raise usage_error("nothing_to_replay", "--replay", message)
    return default_target(found), found


def replayed(target: Target, speed: str, *, once: bool = False) -> Target:
    """The target as a replay. Raises UsageError where it cannot be one."""
    from trainwiz.core.run.folder import RunFolder
    from trainwiz.core.run.state import read_state
    from trainwiz.core.telemetry.replay import spans_of
    from trainwiz.core.telemetry.replay_clock import parse_speed

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
    from trainwiz.tui.commands.monitor_text import summary_lines
    from trainwiz.tui.output import say_labelled

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
