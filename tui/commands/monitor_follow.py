"""`trainwiz monitor --plain`: a line every few seconds, for pipes and screen readers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.core.run.status import ENDED
from trainwiz.tui.commands.monitor_text import plain_line
from trainwiz.tui.output import say, say_json

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot
    from trainwiz.core.telemetry.target import Target

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
