"""Retrying: what the keeper remembers and does between a failed attempt and the next one that it starts by itself."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from trainwiz.core.run.checkpoints import list_checkpoints
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.recovery import Recovery, changes_now, read_recoveries, write_recoveries
from trainwiz.core.supervise.ending import Ended
from trainwiz.core.supervise.order import StartOrder
from trainwiz.core.supervise.recovery import End, Retry, Setup, Situation, decide
from trainwiz.core.supervise.renewing import CannotRenew, NotWanted, renew


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

    def prepare(self, attempt: int, because: str, retry: Retry, goes_on: Callable[[], bool]) -> StartOrder:
        """Write recovery.json and the exported files; the order of the next attempt.

        Raises CannotRenew, OSError, and NotWanted as soon as `goes_on` says no; recovery.json is as before then.
        """
        before = read_recoveries(self.run)
        changes = {**changes_now(self.run), **retry.changes}
        step = _newest_step(self.run)
        entry = Recovery(attempt, because, step if step >= 0 else None, time.time(), changes)
        write_recoveries(self.run, [*before, entry])
        try:
            order = self._renewed(retry, goes_on)
        except (CannotRenew, NotWanted, OSError):
            write_recoveries(self.run, before)
            raise
        self._starts += int(retry.counts)
        self._changed |= set(retry.changes)
        self._setup = order.setup
        self.order = order
        return order

    def _renewed(self, retry: Retry, goes_on: Callable[[], bool]) -> StartOrder:
        order = self.order
        assert order.setup is not None
        # Read at the start and held until then: a `renew` that says nothing of it changes the same keys.
        setup: Setup | None = order.setup.changed(retry.changes)
        command, environment = order.command, order.environment
        if order.renew:
            answer = renew(order.renew, order.environment, goes_on)
            command, environment = answer["command"], {str(k): str(v) for k, v in answer["environment"].items()}
            setup = Setup.from_json(answer["setup"])
        return dataclasses.replace(order, command=command, environment=environment, setup=setup, resume="auto")


def _newest_step(run: RunFolder) -> int:
    """Step of the newest complete checkpoint; -1 without one."""
    return max((found.step for found in list_checkpoints(run) if found.problem is None), default=-1)
