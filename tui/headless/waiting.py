"""Waiting: a wait above a second says what it is; plans with better figures for the commands."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Column
from trainwiz.core.history.measurement import load
from trainwiz.core.history.rates import kept_rates
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.gather import Gathered
from trainwiz.core.plan.refine import Refiner, RefineTier
from trainwiz.core.plan.result import Plan
from trainwiz.core.text import plain_text
from trainwiz.tui.output import is_terminal

# Waiting: a wait says on the terminal what it is and how long it lasts.


class Waiting:
    """Context manager; shows "what  0:00:03" on stderr while it is a terminal, and wipes it at the end."""

    def __init__(self, what: str) -> None:
        words = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
        self._line = Progress(
            words,
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not is_terminal(sys.stderr),
        )
        self._task = self._line.add_task(plain_text(what), total=None)

    def __enter__(self) -> Waiting:
        self._line.start()
        return self

    def say(self, what: str) -> None:
        self._line.update(self._task, description=plain_text(what))

    def __exit__(self, *error: object) -> None:
        self._line.stop()


# What the user's signals do while a command works.

Handler = Callable[[int, FrameType | None], Any] | int | None


@contextmanager
def handling(handlers: Mapping[int, Handler]) -> Iterator[None]:
    # nohup sets SIGHUP to be ignored, and that is what the user wants then.
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    wanted = {number: handler for number, handler in handlers.items() if number != signal.SIGHUP or not nohup}
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupted_by_signals() -> AbstractContextManager[None]:
    """SIGTERM and SIGHUP end the command as Ctrl-C does, so that what it started is cleared up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    return handling({signal.SIGTERM: interrupt, signal.SIGHUP: interrupt})


# Plans with better figures for the commands: a tracer of their own, and what the terminal says meanwhile.

INTERRUPTED = mark("stopped by Ctrl-C before a better estimate was ready")


@contextmanager
def refining(tier: RefineTier) -> Iterator[Refiner]:
    """A Refiner with the measurements of this machine, and, for a tier above "analytic", a tracer of its own.

    The tracer starts at once, so that it loads while the machine and the data are read; it is gone at the end.
    """
    if tier == "analytic":
        yield Refiner(None, load, kept_rates)
        return
    from trainwiz.core.tracing.worker import TraceWorker

    worker = TraceWorker()
    try:
        worker.start()
        yield Refiner(worker, load, kept_rates)
    finally:
        worker.close()


def improved(
    refiner: Refiner, gathered: Gathered, tier: RefineTier, *, limit_s: float | None = None, interruptible: bool = False
) -> Plan:
    """The best plan of `tier`; says on the terminal what is under way.

    `limit_s` ends it with what there is. `interruptible`: so does Ctrl-C, which else ends the command.
    """
    best = [refiner.plan(gathered)]
    with Waiting(tr("estimating")) as waiting:

        def take(plan: Plan) -> None:
            best[:] = [plan]
            waiting.say(plan.memory.waiting or tr("estimating"))

        try:
            return refiner.improve(gathered, take, tier, limit_s=limit_s)
        except KeyboardInterrupt:
            if not interruptible:
                raise
            return replace(best[0], memory=replace(best[0].memory, waiting=tr(INTERRUPTED)))
