"""Retrying: what the keeper remembers and does between a failed attempt and the next one that it starts by itself."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
from typing import Any

from trainwiz.core.language import tr
from trainwiz.core.run.checkpoints import list_checkpoints
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.recovery import Recovery, changes_now, read_recoveries, write_recoveries
from trainwiz.core.supervise.ending import Ended
from trainwiz.core.supervise.order import StartOrder
from trainwiz.core.supervise.recovery import End, Retry, Setup, Situation, decide

RENEWING_MAY_TAKE_S = 300.0


class CannotRetry(Exception):
    """One sentence."""


class Retrying:
    """One for a keeper. Per failure: `after`, and where a retry follows, `prepare`."""

    def __init__(self, run: RunFolder, order: StartOrder) -> None:
        self.run = run
        self.order = order
        self._setup = order.setup
        self._starts = 0
        self._gained_step = _newest_step(run)
        self._changed: set[str] = set(changes_now(run))

    def after(self, ended: Ended) -> Retry | End | None:
        """What follows the failure; None where the order knows of no retries."""
        if self._setup is None:
            return None
        step = _newest_step(self.run)
        if step > self._gained_step:
            self._starts, self._gained_step = 0, step
        situation = Situation(
            self._setup,
            during=ended.during,
            killed_by=ended.killed_by,
            starts=self._starts,
            changed_keys=frozenset(self._changed),
        )
        return decide(ended.exit.cause or "unknown", situation)

    def prepare(self, attempt: int, because: str, retry: Retry) -> StartOrder:
        """Write recovery.json and the exported files; the order of the next attempt. Raises CannotRetry and OSError."""
        before = read_recoveries(self.run)
        changes = {**changes_now(self.run), **retry.changes}
        step = _newest_step(self.run)
        entry = Recovery(attempt, because, step if step >= 0 else None, time.time(), changes)
        write_recoveries(self.run, [*before, entry])
        try:
            order = self._renewed(retry)
        except (CannotRetry, OSError):
            write_recoveries(self.run, before)
            raise
        self._starts += int(retry.counts)
        self._changed |= set(retry.changes)
        self._setup = order.setup
        self.order = order
        return order

    def _renewed(self, retry: Retry) -> StartOrder:
        order = self.order
        assert order.setup is not None
        # Read at the start and held until then: a `renew` that says nothing of it changes the same keys.
        setup: Setup | None = order.setup.changed(retry.changes)
        command, environment = order.command, order.environment
        if order.renew:
            answer = _answer(order)
            command, environment = answer["command"], {str(k): str(v) for k, v in answer["environment"].items()}
            setup = Setup.from_json(answer["setup"])
        return dataclasses.replace(order, command=command, environment=environment, setup=setup, resume="auto")


def _answer(order: StartOrder) -> dict[str, Any]:
    """What the child says; it loads the configuration, which the keeper must not."""
    try:
        done = subprocess.run(
            order.renew,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, **order.environment},
            timeout=RENEWING_MAY_TAKE_S,
            check=False,
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise CannotRetry(tr("The files of the next attempt were not written in time; it is not started.")) from None
    except ValueError:
        last = (done.stderr.strip().splitlines() or [tr("it said nothing")])[-1]
        message = tr("The files of the next attempt could not be written ({reason}); it is not started.", reason=last)
        raise CannotRetry(message) from None
    if "error" in answer:
        raise CannotRetry(str(answer["error"]))
    return dict(answer)


def _newest_step(run: RunFolder) -> int:
    """Step of the newest complete checkpoint; -1 without one."""
    return max((found.step for found in list_checkpoints(run) if found.problem is None), default=-1)
