"""The pace of a run by what was measured on its devices: the very same work, the same model, or another one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, log, log2
from typing import Literal

from trainwiz.core.estimate.architecture import Architecture
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.flops import micro_batch_flops
from trainwiz.core.estimate.time import Range, Rate, StepTime, spread_of, step_time, waits_for_launches
from trainwiz.core.estimate.traced import measured_text
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.history.measurement import Measurement, same_kind, same_model, same_step
from trainwiz.core.language import tr, trn

BETWEEN_RUNS = {"cuda": 1.06, "mps": 1.10, "cpu": 1.15}
"""Factor by which a run may differ from the one before it on the same machine: clocks, heat, other programs."""
EACH_DOUBLING = 1.15
"""Factor for each doubling of the tokens of a micro-batch: larger matrices reach another share of the peak."""
OTHER_SETTINGS = 1.15
"""Factor where checkpointing, the optimizer or the loss differ: their cost is a formula's again."""
COMPARED = 5
"""Measurements of the very same work, the newest ones, whose disagreement widens the range."""
START_FACTOR = 1.5
"""Reading model and data is as fast as the disk's cache is warm."""


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One optimizer step by measurement. `step.likely` is the measured median, scaled where it must be."""

    step: Range
    basis: Literal["probe", "history"]
    text: str
    """ "measured here on 2026-11-21 (probe)"."""
    calibration: float | None
    """Measured over formula at the measured point; what else runs on the device may be scaled by it."""
    exact: bool
    """The very same settings were measured, with rows of such lengths."""


def measured_step(
    work: Workload, usual: Workload, measurements: Sequence[Measurement], rate: Rate | None
) -> MeasuredStep | None:
    """The step of `work`, or None where nothing like it was measured.

    `usual` is `work` at the lengths of a usual batch; `measurements` are of the plan's devices (of_devices),
    newest first. The very same settings give the measured 10 to 90 % of the steps, widened by what runs differ
    by. Otherwise the formula, scaled by measured over formula at the nearest measured point, and wider.
    `rate` None (a card of no catalogue) leaves only the very same settings with rows of such lengths.
    """
    exact = [measurement for measurement in measurements if same_step(measurement, work)]
    exact = [measured for measured in exact if _same_lengths(measured, usual)] or exact
    near = exact or [measurement for measurement in measurements if same_model(measurement, work)]
    like = bool(exact) and _same_lengths(exact[0], usual)
    if not near or (rate is None and not like):
        return None
    found = exact[0] if exact else min(near, key=lambda one: (_other_settings(one, work), abs(_doublings(one, usual))))
    formula = None if rate is None else step_time(_measured_work(found, usual), rate).step.likely
    scale = 1.0 if like or rate is None or formula is None else step_time(usual, rate).step.likely / formula
    apart = (max(found.step_s / other.step_s, other.step_s / found.step_s) for other in exact[1:COMPARED])
    # Its steps spread: 90 % over median, median over 10 %.
    spread = max(found.step_high_s / found.step_s, found.step_s / found.step_low_s)
    factor = max(spread, BETWEEN_RUNS.get(work.device, 1.15), *apart)
    doublings = log2(scale) if exact else _doublings(found, usual)
    factor *= EACH_DOUBLING ** abs(doublings) * OTHER_SETTINGS ** _other_settings(found, work)
    text = measured_text(found.day, found.source)
    if not like:
        batch = f"{found.micro_batch} x {found.usual_length or found.length}"
        text = tr("scaled from {batch}, {measured}", batch=batch, measured=text)
    seconds = found.step_s * scale
    # Even around the median, so that Range.likely (the geometric mean) is what was measured.
    step = Range.around(seconds, factor)
    basis: Literal["probe", "history"] = "probe" if found.source == "probe" else "history"
    return MeasuredStep(step, basis, text, None if formula is None else found.step_s / formula, like)


CARRIED = 1.2
"""Factor by which measured over formula differs from one model to another on one device, by the same kernels."""
FOR_EACH_DOUBLING = 1.03
"""The same for each doubling of what a micro-batch computes."""


@dataclass(frozen=True, slots=True)
class CarriedStep:
    step: Range
    factor: float
    """Measured over formula."""
    text: str


def carried_step(
    usual: Workload, planned: StepTime, measurements: Sequence[Measurement], rate: Rate
) -> CarriedStep | None:
    """None where nothing of the same kind was measured, or where it would narrow nothing.

    The factor is a mean of measured over formula, in which near sizes count more; its spread is at least CARRIED, and what
    the measurements are apart.
    """
    found: list[tuple[float, float, Measurement]] = []
    waits = waits_for_launches(usual, rate)
    for measurement in measurements:
        architecture = _architecture(measurement.config, measurement.task) if same_kind(measurement, usual) else None
        # By the clock alone a CPU's step says as much of the programs beside it.
        timed = measurement.step_s if usual.device != "cpu" else measurement.own_step_s
        if architecture is None or timed is None or len(found) == COMPARED:
            continue
        # On a CPU families are apart in more than their size: after a run of ESM-2 a small Qwen2 was planned to take a fifth
        # of what it took.
        if usual.device == "cpu" and architecture.model_type != usual.architecture.model_type:
            continue
        work = replace(_measured_work(measurement, usual), architecture=architecture, task=measurement.task)
        # How fast Python launches says nothing of how fast a GPU computes: after a smoke run of a tiny model on an H100 a
        # step of 42 s was planned to take 64 to 236.
        if waits_for_launches(work, rate) != waits:
            continue
        away = abs(log2(micro_batch_flops(work) / micro_batch_flops(usual)))
        found.append((timed / step_time(work, rate).step.likely, away, measurement))
    if not found:
        return None
    weights = [exp(-away / 4) for _, away, _ in found]
    mean = sum(weight * log(ratio) for weight, (ratio, _, _) in zip(weights, found, strict=True)) / sum(weights)
    factor, nearest = exp(mean), min(away for _, away, _ in found)
    apart = max(max(ratio / factor, factor / ratio) for ratio, _, _ in found)
    spread = max(CARRIED, apart) * FOR_EACH_DOUBLING**nearest
    if spread > spread_of(usual, rate) and 1 / spread < factor < spread:
        return None
    day = max(one.day for _, _, one in found)
    text = trn(
        "formula × {factor}, from one other measurement on this machine ({day})",
        "formula × {factor}, from {n} other measurements on this machine ({day})",
        len(found),
        factor=f"{factor:.2g}",
        day=day,
    )
    return CarriedStep(Range.around(planned.step.likely * factor, spread), factor, text)


@lru_cache(maxsize=64)
def _architecture(config: str, task: str) -> Architecture | None:
    try:
        return read_architecture(json.loads(config), task)[0]
    except (ValueError, TypeError, AttributeError):
        return None


def measured_start(work: Workload, measurements: Sequence[Measurement]) -> tuple[Range, str] | None:
    """Seconds of a run that no step takes (imports, model, data, closing), from whole runs of the same model."""
    runs = [one for one in measurements if one.source == "run" and one.start_s and same_model(one, work)]
    seconds = [one.start_s for one in runs[:COMPARED] if one.start_s]
    if not seconds:
        return None
    return Range(min(seconds) / START_FACTOR, max(seconds) * START_FACTOR), measured_text(runs[0].day, runs[0].source)


def _measured_work(measurement: Measurement, usual: Workload) -> Workload:
    return replace(
        usual,
        micro_batch=measurement.micro_batch,
        accumulation=measurement.accumulation,
        length=measurement.usual_length or measurement.length,
        target_length=measurement.usual_target_length or measurement.target_length or usual.target_length,
        checkpointing=measurement.checkpointing,
        optimizer=measurement.optimizer,
        lora_rank=measurement.lora_rank,
        lora_targets=measurement.lora_targets,
        loss_chunk=measurement.loss_chunk,
    )


def _same_lengths(measurement: Measurement, usual: Workload) -> bool:
    then = _measured_work(measurement, usual)
    return (then.length, then.target_length) == (usual.length, usual.target_length)


def _doublings(measurement: Measurement, usual: Workload) -> float:
    return log2(usual.tokens / _measured_work(measurement, usual).tokens)


def _other_settings(measurement: Measurement, work: Workload) -> int:
    names = ("checkpointing", "optimizer", "lora_rank", "loss_chunk")
    return sum(getattr(measurement, name) != getattr(work, name) for name in names)
