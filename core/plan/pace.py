"""The pace of a settled run: one optimizer step, by what this machine measured or by formula."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from trainwiz.core.config import RunConfig
from trainwiz.core.estimate.compiling import COMPILED_START
from trainwiz.core.estimate.evidence import NO_EVIDENCE, Evidence
from trainwiz.core.estimate.flops import Cost, cost_of
from trainwiz.core.estimate.measured import measured_start, measured_step
from trainwiz.core.estimate.network import Network
from trainwiz.core.estimate.time import (
    Range,
    Rate,
    cpu_rate,
    gpu_rate,
    share_of_peak,
    start_time,
    step_time,
    verdict_of,
)
from trainwiz.core.estimate.verdicts import TimeVerdict
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.match import of_devices
from trainwiz.core.plan.computed import Computed
from trainwiz.core.plan.devices import Devices


@dataclass(frozen=True, slots=True)
class Pace:
    """One optimizer step, and where its time comes from."""

    step: Range
    start: Range
    """Of the whole run: launcher, imports, model, data, closing."""
    fraction_of_peak: float | None
    verdict: TimeVerdict | None
    basis: Literal["roofline", "probe", "history"] = "roofline"
    text: str = "roofline"
    calibration: float | None = None
    """Measured over formula, where this device was measured with this model."""


def rate_of(devices: Devices, config: RunConfig) -> Rate | None:
    """What one process computes at best; None for a card that the catalogue does not know."""
    engine = config.engine
    if devices.device == "cpu":
        rate = cpu_rate(engine.cpu_threads or 1)
    elif devices.spec is None:
        return None
    else:
        rate = gpu_rate(devices.spec, engine.precision or "fp32", bool(engine.tf32))
    return rate if devices.nodes == 1 else replace(rate, network=network_of(config).bytes_per_s)


def network_of(config: RunConfig) -> Network:
    return Network.of(config.planning.network_gbit_s)


def pace_of(
    machine: Machine,
    devices: Devices,
    config: RunConfig,
    work: Workload | None,
    usual: Workload | None,
    rate: Rate | None,
    evidence: Evidence = NO_EVIDENCE,
    computed: Computed | None = None,
) -> Pace | None:
    """Measured here where it was, else by roofline with the counts of a trace or of the formulas; None where nothing is known.

    `usual` is `work` at the lengths of a usual batch, `computed` what its micro-batches really ask for.
    """
    if work is None or usual is None:
        return None
    engine = config.engine
    # Of one machine each: what the network adds to a step was measured by none of them.
    measurements = of_devices(
        evidence.measurements if devices.nodes == 1 else (),
        machine,
        devices.device,
        devices.gpus,
        engine.cpu_threads,
        bool(engine.tf32),
    )
    start = measured_start(work, measurements)
    begin = start[0] if start is not None else start_time(usual)
    # A measured start has none of the first step in it, which is where it compiles.
    begin = begin + COMPILED_START if engine.compile else begin
    measured = measured_step(work, usual, measurements, rate)
    if measured is not None:
        share = verdict = None
        if rate is not None:
            share = share_of_peak(
                usual, rate, usual.tokens * usual.accumulation * usual.world_size / measured.step.likely
            )
            verdict = verdict_of(share, on_cpu=usual.device == "cpu")
        return Pace(measured.step, begin, share, verdict, measured.basis, measured.text, measured.calibration)
    if rate is None:
        return None
    mean = computed.cost if computed is not None else cost_of(usual)
    each = step_time(usual, rate, _traced_cost(work, mean, evidence))
    return Pace(each.step, begin, each.fraction_of_peak, each.verdict)


def pace_gains(usual: Workload, rate: Rate | None, computed: Computed | None) -> tuple[float, float] | None:
    """How many times the pace of the rows as drawn the run has, and would have without padding; by roofline."""
    if rate is None or computed is None:
        return None
    own, drawn, unpadded = (
        step_time(usual, rate, cost).step.likely for cost in (computed.cost, computed.drawn, computed.unpadded)
    )
    return drawn / own, drawn / unpadded


def _traced_cost(work: Workload, mean: Cost, evidence: Evidence) -> Cost:
    """`mean`, the mean cost of a micro-batch by formulas, corrected by what a trace of `work` counted where there is one."""
    trace = evidence.trace_of(work)
    if trace is None or min(trace.flops, trace.moved_bytes, trace.kernels) <= 0:
        return mean
    return Cost(trace.flops, trace.moved_bytes, float(trace.kernels)).scaled(mean, cost_of(work))
