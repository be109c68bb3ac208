"""Every open value of a config gets one, and the estimates follow."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from trainwiz.core.batch import accumulation_for, deviation, largest_exact, nearest_large
from trainwiz.core.config import Origin, RunConfig
from trainwiz.core.data.lengths import held_out_count, joins_texts, packs_rows
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.measurement import Measurement, of_devices
from trainwiz.core.language import tr, trn
from trainwiz.core.plan.batch_findings import NOTABLE_DEVIATION
from trainwiz.core.plan.devices import SMOKE_PROCESSES, Devices, choose_devices
from trainwiz.core.plan.draft import Draft, Facts, Given
from trainwiz.core.plan.engine import resolve_engine, resolve_loss_mean, resolve_sharding
from trainwiz.core.plan.environment import resolve_communication
from trainwiz.core.plan.hardware_findings import smoke_optimizer
from trainwiz.core.plan.loading import resolve_intervals, resolve_length, resolve_loading
from trainwiz.core.plan.recipe import resolve_rates, resolve_target, with_init
from trainwiz.core.plan.rows import arrangement_of, mean_length, multiple_of, padded_cost, resolve_arrangement
from trainwiz.core.plan.sizes import batch_plan, resolve_evaluation, resolve_rounding, resolve_sizes, target_samples
from trainwiz.core.plan.tasks import follow_task, resolve_task
from trainwiz.core.plan.times import Length, pace_gains, pace_of, plan_time, rate_of
from trainwiz.core.plan.workload import plan_memory, typical, workload_of
from trainwiz.core.profile.profile import CARD, CAUSES, Profile, changed_causes

# Rows that are not here to count, taken from the limits that the sources name.


def assumed_rows(config: RunConfig) -> DataSummary | None:
    """A summary of rows alone, where every source has a `max_rows`; an upper bound, so `rows_exact` is False.

    None where a source has no limit, and for joined texts, whose number of sequences no limit says.
    """
    if joins_texts(config):
        return None
    rows = _limit([source.max_rows for source in config.data.sources])
    if rows is None:
        return None
    if config.data.validation_sources:
        validation = _limit([source.max_rows for source in config.data.validation_sources]) or 0
        return DataSummary(rows=rows, rows_exact=False, lengths=(), validation_rows=validation)
    held = held_out_count(rows, config.data)
    return DataSummary(rows=rows - held, rows_exact=False, lengths=(), validation_rows=held)


def _limit(limits: list[int | None]) -> int | None:
    known = [limit for limit in limits if limit is not None]
    return sum(known) if known and len(known) == len(limits) else None


# What a profile says of a value holds for the profile's own model, data, sizes and card. Beside others it would be wrong.


def with_fitting_reasons(config: RunConfig, profile: Profile | None, machine: Machine) -> RunConfig:
    """`config`, complete, where the reason of a profile's value says so when its cause is not the profile's any more."""
    if profile is None:
        return config
    changed = _changed(config, profile, machine)
    origins = dict(config.origins)
    for key, causes in CAUSES.items():
        origin = origins.get(key)
        cause = next((cause for cause in causes if cause in changed and cause != key), None)
        if origin is not None and origin.origin == "profile" and origin.reason and cause is not None:
            origins[key] = Origin(origin="profile", reason=_reason(cause, changed[cause]))
    return config.model_copy(update={"origins": origins}) if origins != config.origins else config


def _changed(config: RunConfig, profile: Profile, machine: Machine) -> dict[str, Any]:
    """Cause -> the profile's value: what the profile says itself and the plan has otherwise."""
    mine = {key: config.value(key) for causes in CAUSES.values() for key in causes if key != CARD}
    changed = {cause: profile.values[cause] for cause in changed_causes(profile.values, mine)}
    card = profile.hardware.gpu
    if card is not None and all(gpu.catalogue_name != card for gpu in machine.gpus):
        changed[CARD] = card
    return changed


def _reason(cause: str, theirs: Any) -> str:
    if cause == CARD:
        return tr("from the profile, which is made for {gpu}", gpu=theirs)
    if cause == "model.name":
        return tr("from the profile, which trains {model}", model=theirs)
    if cause == "data.sources":
        return tr("from the profile, which has other data")
    if cause == "model.architecture_overrides":
        return tr("from the profile, whose model has another shape")
    return tr("from the profile, where {key} is {value}", key=cause, value=theirs)


# What a profile says of its own number of GPUs, solved again where there are others.

STRATEGY = "engine.strategy"
MICRO, ACCUMULATION, WORKERS = "batch.micro_batch_size", "batch.gradient_accumulation_steps", "data.workers"


def for_other_cards(config: RunConfig, machine: Machine, profile: Profile | None) -> RunConfig:
    """`config`, with the strategy open where a profile of one card says "single" and several are to be used."""
    if profile is None or profile.hardware.gpu is None or config.mode.kind == "smoke":
        return config
    if config.engine.strategy != "single" or config.origin(STRATEGY).origin != "profile":
        return config
    if machine.accelerator != "cuda" or config.engine.device not in (None, "cuda"):
        return config
    cards = len(machine.visible_gpus) if config.engine.gpus is None else len(config.engine.gpus)
    if (config.engine.processes or cards) == 1:
        return config
    return config.model_copy(update={"engine": config.engine.model_copy(update={"strategy": None})})


def reopen_for_processes(draft: Draft, devices: Devices, profile: Profile | None) -> None:
    """Accumulation, and where it alone misses the target the micro-batch; the loader's workers are shared."""
    if profile is None:
        return
    own = max(1, profile.hardware.num_gpus)
    if devices.world_size == own:
        return
    _batch(draft, devices, own)
    workers = draft.get(WORKERS)
    if workers and devices.processes > own and draft.config.origin(WORKERS).origin == "profile":
        share = max(1, workers * own // devices.processes)
        draft.put(
            WORKERS,
            share,
            tr(
                "the {workers} of the profile, shared by {processes} processes",
                workers=workers * own,
                processes=devices.processes,
            ),
        )


def _batch(draft: Draft, devices: Devices, own: int) -> None:
    """A profile's accumulation belongs to its number of GPUs: with another one the target says what it should be."""
    micro, accumulation = draft.get(MICRO), draft.get(ACCUMULATION)
    if accumulation is not None:
        if draft.config.origin(ACCUMULATION).origin != "profile":
            return
        if target_samples(draft) is None and micro is not None:
            reason = trn(
                "the profile's {micro} × {accumulation} × {n} GPU",
                "the profile's {micro} × {accumulation} × {n} GPUs",
                own,
                micro=micro,
                accumulation=accumulation,
            )
            draft.put("batch.target_samples", micro * accumulation * own, reason)
    target = target_samples(draft)
    if target is None:
        return
    draft.values[ACCUMULATION] = None
    if micro is None or draft.config.origin(MICRO).origin != "profile":
        return
    processes = devices.world_size
    nearest = micro * accumulation_for(target, micro, processes) * processes
    if abs(deviation(nearest, target)) <= NOTABLE_DEVIATION:
        return
    exact = largest_exact(target, processes, micro)
    better = exact if exact is not None and 2 * exact.micro_batch >= micro else nearest_large(target, processes, micro)
    if abs(deviation(better.samples, target)) < abs(deviation(nearest, target)):
        reason = trn(
            "{micro} on {n} GPU would make {nearest} sequences a step",
            "{micro} on {n} GPUs would make {nearest} sequences a step",
            processes,
            micro=micro,
            nearest=f"{nearest:,}",
        )
        draft.put(MICRO, better.micro_batch, reason)


# resolve: every open value of a config gets one, and the estimates follow.


def resolve(given: Given) -> Facts:
    """The facts of `given.config`; every open value of it is resolved, with its reason. Reads nothing."""
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
    collected += resolve_engine(draft, machine, devices)
    collected += smoke_optimizer(draft, machine, devices)
    architecture, unknown = read_architecture(model.architecture, config.task) if model is not None else (None, "")
    resolve_rates(draft, architecture)
    reopen_for_processes(draft, devices, profile)
    resolve_task(draft)
    resolve_rounding(draft, devices, data)
    # Rows that cannot be counted here are taken from the limits of their sources.
    counted = data if data is not None else assumed_rows(draft.view())
    resolve_target(draft, counted.rows if counted is not None else None)
    resolve_sharding(draft, machine, devices, workload_of(draft, devices, architecture, data), evidence)
    evaluates = _evaluates(draft, counted)
    first = workload_of(draft, devices, architecture, data, evaluates=evaluates)
    solution = resolve_sizes(draft, first, devices, evidence, evaluates=evaluates)
    resolve_loss_mean(draft)
    resolve_arrangement(draft, devices.world_size, data)
    held = counted.rows if counted is not None else 0
    at_batch = workload_of(draft, devices, architecture, data)
    resolve_loading(draft, machine, devices, data, counted, at_batch, evidence.measurements)
    steps = resolve_length(draft, solution.chosen.samples, counted)
    work = workload_of(draft, devices, architecture, data)
    resolve_evaluation(draft, work, devices, counted, evidence)
    work = workload_of(draft, devices, architecture, data, evaluates=_evaluates(draft, counted))
    # Threads and precision are resolved; the rest of the config does not change the rate.
    rate = rate_of(devices, draft.view())
    usual = typical(work, data, arrangement_of(draft.get), multiple_of(draft.get)) if work is not None else None
    computed = padded_cost(work, data, arrangement_of(draft.get), multiple_of(draft.get)) if work is not None else None
    each = pace_of(machine, devices, draft.view(), work, usual, rate, evidence, computed)
    resolve_intervals(draft, steps, each.step.likely if each else None)
    resolve_communication(draft, machine, devices, each.step.high if each else None)
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
