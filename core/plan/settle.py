"""settle: every open value of a config gets one, and the estimates follow."""

from __future__ import annotations

import math
from dataclasses import replace

from trainwiz.core.config import RunConfig
from trainwiz.core.data.joining import joins_texts
from trainwiz.core.data.packing import packs_rows
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.history.match import of_devices
from trainwiz.core.history.measurement import Measurement
from trainwiz.core.plan.arranging import arrangement_of, multiple_of, settle_arrangement
from trainwiz.core.plan.assumed import assumed_rows
from trainwiz.core.plan.communication import settle_communication
from trainwiz.core.plan.computed import computed_by
from trainwiz.core.plan.devices import SMOKE_PROCESSES, choose_devices
from trainwiz.core.plan.draft import Draft
from trainwiz.core.plan.engine import settle_engine, settle_sharding
from trainwiz.core.plan.facts import Facts, Given
from trainwiz.core.plan.lengths import mean_length
from trainwiz.core.plan.loading import settle_intervals, settle_length, settle_loading
from trainwiz.core.plan.loss_mean import settle_loss_mean
from trainwiz.core.plan.memories import plan_memory
from trainwiz.core.plan.other_cards import for_other_cards, reopen_for_processes
from trainwiz.core.plan.pace import pace_gains, pace_of, rate_of
from trainwiz.core.plan.profile_reasons import with_fitting_reasons
from trainwiz.core.plan.recipe import settle_rates, settle_target, with_init
from trainwiz.core.plan.rounding import settle_rounding
from trainwiz.core.plan.sizes import batch_plan, settle_evaluation, settle_sizes
from trainwiz.core.plan.stand_in import optimizer_stand_in
from trainwiz.core.plan.subject import follow_task
from trainwiz.core.plan.tasks import settle_task
from trainwiz.core.plan.times import Length, plan_time
from trainwiz.core.plan.work import typical, workload_of
from trainwiz.core.profile.profile import Profile


def settle(given: Given) -> Facts:
    """The facts of `given.config`; every open value of it is settled, with its reason. Reads nothing."""
    machine, model, data, profile = given.machine, given.model, given.data, given.profile
    config, evidence = with_init(follow_task(given.config, model), model), given.evidence
    config = for_other_cards(_without_foreign_processes(config), machine, profile)
    any_device = profile is not None and profile.hardware.gpu is None
    devices, more = choose_devices(
        machine, config, any_device=any_device, cpu_processes=_cpu_processes(config, profile)
    )
    here = of_devices(evidence.measurements, machine, devices.device, devices.gpus)
    here = tuple(one for one in here if bool(one.packed) == packs_rows(config))
    evidence = replace(evidence, measurements=_compiled(here, config.engine.compile))
    collected = [*given.findings, *(data.findings if data is not None else ()), *more]
    draft = Draft(config, mean_length=mean_length(data, config.batch.sequence_length, joined=joins_texts(config)))
    if model is not None:
        draft.values["model.architecture"] = dict(model.architecture)
    collected += settle_engine(draft, machine, devices)
    collected += optimizer_stand_in(draft, machine, devices)
    architecture, unknown = read_architecture(model.architecture, config.task) if model is not None else (None, "")
    settle_rates(draft, architecture)
    reopen_for_processes(draft, devices, profile)
    settle_task(draft)
    settle_rounding(draft, devices, data)
    # Rows that cannot be counted here are taken from the limits of their sources.
    counted = data if data is not None else assumed_rows(draft.view())
    settle_target(draft, counted.rows if counted is not None else None)
    settle_sharding(draft, machine, devices, workload_of(draft, devices, architecture, data), evidence)
    evaluates = _evaluates(draft, counted)
    first = workload_of(draft, devices, architecture, data, evaluates=evaluates)
    solution = settle_sizes(draft, first, devices, evidence, evaluates=evaluates)
    settle_loss_mean(draft)
    settle_arrangement(draft, devices.world_size, data)
    held = counted.rows if counted is not None else 0
    at_batch = workload_of(draft, devices, architecture, data)
    settle_loading(draft, machine, devices, data, counted, at_batch, evidence.measurements)
    steps = settle_length(draft, solution.chosen.samples, counted)
    work = workload_of(draft, devices, architecture, data)
    settle_evaluation(draft, work, devices, counted, evidence)
    work = workload_of(draft, devices, architecture, data, evaluates=_evaluates(draft, counted))
    # Threads and precision are settled; the rest of the config does not change the rate.
    rate = rate_of(devices, draft.view())
    usual = typical(work, data, arrangement_of(draft.get), multiple_of(draft.get)) if work is not None else None
    computed = computed_by(work, data, arrangement_of(draft.get), multiple_of(draft.get)) if work is not None else None
    each = pace_of(machine, devices, draft.view(), work, usual, rate, evidence, computed)
    settle_intervals(draft, steps, each.step.likely if each else None)
    settle_communication(draft, machine, devices, each.step.high if each else None)
    complete = with_fitting_reasons(draft.finish(), profile, machine)
    batch = batch_plan(draft, solution, data, computed)
    estimate, evaluation, memory = plan_memory(machine, devices, complete, work, data, evidence, held)
    length = Length(steps, _epochs(complete, steps, solution.chosen.samples, counted))
    gains = pace_gains(usual, rate, computed) if usual is not None else None
    time = plan_time(complete, devices, usual, rate, each, length, counted, batch, gains)
    return Facts(
        given=given,
        findings=tuple(collected),
        machine=machine,
        config=complete,
        devices=devices,
        work=work,
        usual=usual,
        unknown_architecture=unknown,
        estimate=estimate,
        evaluation=evaluation,
        memory=memory,
        batch=batch,
        time=time,
        rate=rate,
        data=data,
        counted=counted,
        profile=profile,
        evidence=evidence,
    )


def _compiled(measurements: tuple[Measurement, ...], compiled: bool) -> tuple[Measurement, ...]:
    """torch.compile is another pace and another peak, and nothing of a workload tells them apart."""
    return tuple(one for one in measurements if one.compiled == compiled)


def _without_foreign_processes(config: RunConfig) -> RunConfig:
    """A smoke run does not take the number of processes of the profile's own machine."""
    if config.mode.kind != "smoke" or config.origin("engine.processes").origin != "profile":
        return config
    return config.model_copy(update={"engine": config.engine.model_copy(update={"processes": None})})


def _cpu_processes(config: RunConfig, profile: Profile | None) -> int:
    several = profile is not None and profile.hardware.num_gpus > 1
    return SMOKE_PROCESSES if several and config.mode.kind == "smoke" else 1


def _evaluates(draft: Draft, counted: DataSummary | None) -> bool:
    """Whether rows are held out, as far as it is known; where it is not, they are."""
    if draft.get("data.validation_rows") == 0 and not draft.get("data.validation_sources"):
        return False
    return counted is None or counted.validation_rows > 0


def _epochs(config: RunConfig, steps: int | None, samples: int, data: DataSummary | None) -> float | None:
    """Passes over the data that the steps are."""
    if data is None or data.rows == 0 or steps is None:
        return config.training.epochs
    return steps / math.ceil(data.rows / samples)
