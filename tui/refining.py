"""Plans with better figures for the commands: a tracer of their own, and what the terminal says meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from trainwiz.core.history.store import load
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.gather import Gathered
from trainwiz.core.plan.refine import Refiner, RefineTier
from trainwiz.core.plan.result import Plan
from trainwiz.tui.headless.waiting import Waiting

INTERRUPTED = mark("stopped by Ctrl-C before better figures were there")


@contextmanager
def refining(tier: RefineTier) -> Iterator[Refiner]:
    """A Refiner with the measurements of this machine, and, for a tier above "analytic", a tracer of its own.

    The tracer starts at once, so that it loads while the machine and the data are read; it is gone at the end.
    """
    if tier == "analytic":
        yield Refiner(None, load)
        return
    from trainwiz.core.tracing.worker import TraceWorker

    worker = TraceWorker()
    try:
        worker.start()
        yield Refiner(worker, load)
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
