"""`trainwiz runs stop`."""

from __future__ import annotations

import sys
import time

from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED, CannotRunError
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.core.run.find import find_run
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.names import name_for_commands
from trainwiz.core.run.state import RunState, read_state
from trainwiz.tui.commands.runs_words import MARKS
from trainwiz.tui.figures import duration
from trainwiz.tui.output import paint, say
from trainwiz.tui.stop_words import is_long, verified_text, wait_sentences
from trainwiz.tui.wrapping import sentence_gap


def run_stop(*runs: str, now: bool) -> int:
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
                _say_how_to_end(tr("{name} goes on stopping.", name=_name(folder)), folder)
        code = EXIT_STOPPED
    if refused:
        raise CannotRunError([finding for error in refused for finding in error.findings])
    return code


def _ask(folder: RunFolder, refused: list[CannotRunError], *, now: bool) -> bool:
    """Ask one run; False where there is nothing to wait for."""
    from trainwiz.core.launch.stop import is_suspended, stop_run

    state = read_state(folder)
    if not state.is_active:
        say(tr("{name} is not running ({status}).", name=_name(folder), status=tr(state.status)))
        return False
    if not now:
        _say_what_it_takes(folder, state)
    suspended = state.supervisor is not None and is_suspended(state.supervisor)
    try:
        stop_run(folder, now=now, wait_s=0.0)
        if suspended:
            say(
                tr("{name}: its keeper was suspended; it is continued, so that it can end the run.", name=_name(folder))
            )
    except CannotRunError as error:
        refused.append(error)
        return False
    return True


def _say_what_it_takes(folder: RunFolder, state: RunState) -> None:
    """Before somebody waits for long: how long it may be, why, and how it is over at once."""
    from trainwiz.core.run.stop_cost import stop_cost

    cost = stop_cost(folder)
    sentences = wait_sentences(cost)
    requested_s = (state.stop or {}).get("requested_s")
    if isinstance(requested_s, int | float):
        ago = duration(max(0.0, time.time() - requested_s))
        sentences = [tr("It was asked to stop {time} ago.", time=ago), *sentences]
    elif not is_long(cost) and cost.phase in (None, "training", "compiling"):
        return
    _say_how_to_end(f"{_name(folder)}: {sentence_gap().join(sentences)}", folder)


def _wait_for(folder: RunFolder, *, now: bool, others: int) -> int:
    from trainwiz.core.launch.stop import wait_for_end
    from trainwiz.tui.headless.waiting import Waiting

    doing = tr("ending it at once") if now else tr("finishing the step and saving a checkpoint")
    if others:
        doing = tr("{name}: {doing}; others wait: {n}", name=_name(folder), doing=doing, n=others)
    with Waiting(doing):
        state = wait_for_end(folder, force=now)
    if not state.has_ended:
        _say_how_to_end(tr("{name} is still {status}.", name=_name(folder), status=tr(state.status)), folder)
        return EXIT_STOPPED
    _say_end(state)
    return EXIT_FINISHED


def _name(folder: RunFolder) -> str:
    return plain_text(folder.path.name)


def _say_how_to_end(sentence: str, folder: RunFolder) -> None:
    say(sentence)
    say("  " + tr("To end it at once, without a checkpoint:"))
    say(f"  trainwiz runs stop {plain_text(name_for_commands(folder.path))} --now")


def _say_end(state: RunState) -> None:
    sign, style = MARKS[state.status]
    message = state.exit.message if state.exit else tr(state.status)
    say(f"{paint(sign, style, sys.stdout)} {plain_text(message)}")
    verified = verified_text(state)
    if verified:
        say(f"  {verified}")
    if state.exit and state.exit.remedy:
        say(f"  {plain_text(state.exit.remedy)}")
