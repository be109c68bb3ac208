"""Renewing: the child that writes the files of a run's next attempt and says how to start it.

It loads the configuration, which the keeper must not; it may take long (a slow disk, a busy machine), so
whoever waits for it is asked again and again whether it still shall.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainwiz.core.language import tr
from trainwiz.core.supervise.linux import die_with_parent

MAY_TAKE_S = 300.0
LOOK_EVERY_S = 0.25


class CannotRenew(Exception):
    """One sentence."""


class NotWanted(Exception):
    """Whoever waited does not want the answer any more; the child is gone."""


def renew(
    command: Sequence[str], environment: Mapping[str, str], goes_on: Callable[[], bool] = lambda: True
) -> dict[str, Any]:
    """What the child says: {"command", "environment", "setup"}. `environment` is added to this process's own.

    Raises CannotRenew, NotWanted once `goes_on` says no, and OSError.
    """
    pipe = subprocess.PIPE
    variables = {**os.environ, **environment}
    us = os.getpid()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
        errors="replace",
        env=variables,
        # It writes into the run folder: never beside the start that follows when we are killed.
        preexec_fn=lambda: die_with_parent(us),
    ) as child:
        try:
            said, complaints = _all_it_says(child, goes_on)
        except BaseException:
            child.kill()
            raise
    try:
        answer = dict(json.loads(said))
    except (ValueError, TypeError):
        last = (complaints.strip().splitlines() or [tr("it said nothing")])[-1]
        raise CannotRenew(not_written(last)) from None
    if "error" in answer:
        raise CannotRenew(str(answer["error"]))
    return answer


def not_written(reason: str) -> str:
    """Why there is no next attempt: one sentence."""
    return tr("The files of the next attempt could not be written ({reason}); it is not started.", reason=reason)


def _all_it_says(child: subprocess.Popen[str], goes_on: Callable[[], bool]) -> tuple[str, str]:
    deadline = time.monotonic() + MAY_TAKE_S
    while True:
        try:
            return child.communicate(timeout=LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            if not goes_on():
                raise NotWanted from None
            if time.monotonic() > deadline:
                message = tr("The files of the next attempt were not written in time; it is not started.")
                raise CannotRenew(message) from None
