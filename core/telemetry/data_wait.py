"""Data wait: an input that starves the training, and the number of loader workers that would cure it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from trainwiz.core.estimate.loader import USUAL_PREFETCH, late_batches, loading_ratio, most_prefetch, workers_for
from trainwiz.core.estimate.worker_size import WORKER_BYTES
from trainwiz.core.language import tr
from trainwiz.core.run.advice import Advice
from trainwiz.core.telemetry.run_setup import RunSetup
from trainwiz.core.telemetry.snapshot import HostReading

DATA_WAIT_SHARE = 0.25
"""Of a step: more waiting than this is worth a word."""
RAM_SHARE = 0.5
"""Of the free RAM that more workers may take."""


@dataclass(frozen=True, slots=True)
class Cure:
    """How many loader workers each training process should have."""

    needed: int
    """That would load a step's batches while the step before is computed."""
    possible: int
    """As many of them as the cores and the RAM allow; never fewer than there are."""
    bound: str | None = None
    """What allows no more, "cores" or "ram"; None where all that are needed are possible."""


def workers_that_cure(
    workers: int,
    step_s: float,
    wait_s: float,
    *,
    batches: int = 1,
    prefetch: int = USUAL_PREFETCH,
    processes: int = 1,
    cpu_cores: int | None = None,
    worker_bytes: int = WORKER_BYTES,
    free_bytes: int | None = None,
) -> Cure:
    """Solved from what was measured: a step took `step_s`, `wait_s` of it without a batch (see loading_ratio).

    `worker_bytes` is what one more takes of the RAM: not its resident memory, most of which its parent holds too.
    """
    needed = max(workers + 1, workers_for(loading_ratio(step_s, wait_s, workers, batches, prefetch)))
    bounds: dict[str, int] = {}
    if cpu_cores is not None:
        # Each training process keeps a core for itself.
        bounds["cores"] = max(1, cpu_cores // processes - 1)
    if free_bytes is not None:
        bounds["ram"] = workers + int(RAM_SHARE * free_bytes / max(1, worker_bytes) / processes)
    bound = min(bounds, key=lambda name: bounds[name], default=None)
    if bound is None or bounds[bound] >= needed:
        return Cure(needed, needed)
    return Cure(needed, max(workers, bounds[bound]), bound)


def data_wait_advice(step_s: float | None, share: float | None, setup: RunSetup, host: HostReading) -> Iterable[Advice]:
    """`share` of a step of `step_s` is spent waiting for data."""
    if share is None or share <= DATA_WAIT_SHARE:
        return
    text = tr("Steps wait {share} % of their time for data.", share=f"{share * 100:.0f}")
    if step_s is None or setup.workers is None:
        yield Advice("data_wait", "warning", text, _more_workers())
        return
    prefetch, batches = setup.prefetch or USUAL_PREFETCH, setup.accumulation
    ratio = loading_ratio(step_s, share * step_s, setup.workers, batches, prefetch)
    if setup.workers and late_batches(setup.workers, batches, prefetch) and workers_for(ratio) <= setup.workers:
        each = min(math.ceil(batches / setup.workers), most_prefetch(setup.workers, pinned=setup.pinned))
        more = _ready(batches, setup.workers * prefetch, each) if each > prefetch else _more_workers()
        yield Advice("data_wait", "warning", text, more)
        return
    used, total = host.ram_used_bytes, host.ram_total_bytes
    cure = workers_that_cure(
        setup.workers,
        step_s,
        share * step_s,
        batches=batches,
        prefetch=prefetch,
        processes=setup.processes,
        cpu_cores=setup.cpu_cores,
        free_bytes=None if used is None or total is None else max(0, total - used),
    )
    yield Advice("data_wait", "warning", text, _remedy(cure, setup.workers))


def _more_workers() -> str:
    return tr("More loader workers may help (data.workers).")


def _ready(batches: int, ready: int, each: int) -> str:
    return tr(
        "A step takes its {n} micro-batches at once, of which {ready} can be ready: --set data.prefetch={each}",
        n=batches,
        ready=ready,
        each=each,
    )


def _remedy(cure: Cure, workers: int) -> str:
    values = {"now": workers, "needed": cure.needed, "possible": cure.possible}
    if cure.bound is None:
        return tr("{needed} instead of {now} loader workers would cure it: --set data.workers={needed}", **values)
    bound = tr("CPU cores") if cure.bound == "cores" else tr("free RAM")
    if cure.possible <= workers:
        return tr(
            "{needed} instead of {now} loader workers would cure it, and the {bound} allow no more than there are: "
            "rows that cost less to prepare, or a faster disk, would help.",
            bound=bound,
            **values,
        )
    return tr(
        "{needed} instead of {now} loader workers would cure it; the {bound} allow {possible}: "
        "--set data.workers={possible}",
        bound=bound,
        **values,
    )
