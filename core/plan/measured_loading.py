"""Loader workers by what was measured: the wait of an earlier run, or a probe's time of making a micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainwiz.core.estimate.loader import USUAL_PREFETCH, WORTH_SHARE, late_batches, loading_ratio, workers_for
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.history.match import same_model
from trainwiz.core.history.measurement import Measurement
from trainwiz.core.language import tr, trn
from trainwiz.core.plan.words import percent


@dataclass(frozen=True, slots=True)
class MeasuredWorkers:
    """How many workers each training process needs, and what says so."""

    needed: int
    why: str


def measured_workers(measurements: Sequence[Measurement], work: Workload | None, data: str) -> MeasuredWorkers | None:
    """By the newest of `measurements` that is of this model on these rows (`data`, their digest) and says something of
    loading; None where none does.

    Micro-batches of any size count: making one and computing one both go with its size.
    """
    if work is None:
        return None
    alike = (one for one in measurements if one.data == data and one.length == work.length and same_model(one, work))
    found = (_of_measurement(one, on_gpu=work.device == "cuda") for one in alike)
    return next((one for one in found if one is not None), None)


def _of_measurement(one: Measurement, *, on_gpu: bool) -> MeasuredWorkers | None:
    if one.loading_s is not None:
        return _by_probe(one, one.loading_s, on_gpu=on_gpu)
    if one.workers is None or one.data_wait_s is None:
        return None
    return _by_run(one, one.workers, min(one.data_wait_s, one.step_s), on_gpu=on_gpu)


def _by_probe(one: Measurement, loading_s: float, *, on_gpu: bool) -> MeasuredWorkers:
    computing_s = one.step_s / one.accumulation
    if one.workers == 0:
        # The process that computes also loaded.
        computing_s = max(computing_s - loading_s, 1e-3 * computing_s)
    ratio = loading_s / computing_s
    values = {"load": _span(loading_s), "compute": _span(computing_s), "day": one.day}
    if not on_gpu and ratio <= WORTH_SHARE:
        why = tr("a micro-batch takes {load} to make and {compute} to compute (measured on {day})", **values)
        return MeasuredWorkers(0, why)
    needed = max(1, workers_for(ratio))
    why = trn(
        "a micro-batch takes {load} to make and {compute} to compute (measured on {day}): {n} worker hides it",
        "a micro-batch takes {load} to make and {compute} to compute (measured on {day}): {n} workers hide it",
        needed,
        n=needed,
        **values,
    )
    return MeasuredWorkers(needed, why)


def _by_run(one: Measurement, workers: int, wait_s: float, *, on_gpu: bool) -> MeasuredWorkers | None:
    share = wait_s / one.step_s
    if share > WORTH_SHARE:
        prefetch = one.prefetch or USUAL_PREFETCH
        late = late_batches(workers, one.accumulation, prefetch) if workers else 0
        # Where all could be ready and it waited, so many are too few.
        least = workers if late else workers + 1
        needed = max(least, workers_for(loading_ratio(one.step_s, wait_s, workers, one.accumulation, prefetch)))
        why = tr(
            "the run of {day} waited {share} of its time with {workers}: {needed} would hide the loading",
            day=one.day,
            share=percent(share),
            workers=workers,
            needed=needed,
        )
        return MeasuredWorkers(needed, why)
    if workers == 0 and on_gpu:
        # It waited little; a worker hides that too, and how many is for the cores to say.
        return None
    why = tr("the run of {day} waited {share} of its time with as many", day=one.day, share=percent(share))
    return MeasuredWorkers(workers, why)


def _span(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
