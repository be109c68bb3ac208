"""Every open value of a plan gets one, in named steps, and the estimates follow; the same again with changes, for remedies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from trainwiz.core.config import Origin, RunConfig
from trainwiz.core.config.run import DataSource
from trainwiz.core.data.lengths import held_out_count, joins_texts, packs_rows
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.measurement import of_devices, rates_for
from trainwiz.core.language import tr
from trainwiz.core.plan import engine, loading, rows, sizes, tasks, times, workload
from trainwiz.core.plan.engine import STRATEGY, choose_devices
from trainwiz.core.plan.environment import resolve_communication
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.sizes import ACCUMULATION, MICRO, TARGETS, target_samples
from trainwiz.core.profile.profile import CARD, CAUSES, Profile, fitting_reasons

# Rows that are not here to count, taken from the limits that the sources name.


def assumed_rows(config: RunConfig) -> DataSummary | None:
    """A summary of rows alone, where every source has a `max_rows`; an upper bound, so `rows_exact` is False.

    None where a source has no limit, and for joined texts, whose number of sequences no limit says.
    """
    rows, held = _limit(config.data.sources), _limit(config.data.validation_sources)
    if rows is None or joins_texts(config):
        return None
    if not config.data.validation_sources:
        held = held_out_count(rows, config.data)
        rows -= held
    return DataSummary(rows=rows, rows_exact=False, lengths=(), validation_rows=held or 0)


def _limit(sources: Sequence[DataSource]) -> int | None:
    limits = [source.max_rows for source in sources if source.max_rows is not None]
    return sum(limits) if limits and len(limits) == len(sources) else None


# What a profile says of a value holds for the profile's own model, data, sizes and card. Beside others it would be wrong.


def with_fitting_reasons(config: RunConfig, profile: Profile | None, machine: Machine) -> RunConfig:
    """`config`, complete, where the reason of a profile's value says so when its cause is not the profile's any more."""
    if profile is None:
        return config
    mine = {key: config.value(key) for causes in CAUSES.values() for key in causes if key != CARD}
    card = profile.hardware.gpu
    other_card = card is not None and all(gpu.catalogue_name != card for gpu in machine.gpus)
    kept = fitting_reasons(profile.reasons, profile.values, mine, other_card=other_card)
    other = Origin(origin="profile", reason=tr("from the profile, for another model, data, size or GPU"))
    lost = [key for key in profile.reasons if key not in kept and config.origin(key).origin == "profile"]
    return config.model_copy(update={"origins": {**config.origins, **dict.fromkeys(lost, other)}})


# What a profile says of its own number of GPUs, solved again where there are others.


def for_other_cards(config: RunConfig, machine: Machine, profile: Profile | None) -> RunConfig:
    """`config` without what a profile of another machine says of strategy and processes: the strategy open where one of
    one card says "single" and several are to be used, and a smoke run with as many processes as there are here."""
    engine = config.engine
    if config.mode.kind == "smoke" and config.origin("engine.processes").origin == "profile":
        return config.model_copy(update={"engine": engine.model_copy(update={"processes": None})})
    alone = engine.strategy == "single" and config.origin(STRATEGY).origin == "profile"
    on_gpu = machine.accelerator == "cuda" and engine.device in (None, "cuda")
    if config.mode.kind == "smoke" or profile is None or profile.hardware.gpu is None or not (alone and on_gpu):
        return config
    cards = engine.processes or len(machine.visible_gpus if engine.gpus is None else engine.gpus)
    return config if cards == 1 else config.model_copy(update={"engine": engine.model_copy(update={"strategy": None})})


def reopen_for_processes(plan: Plan) -> None:
    """A profile's accumulation and workers belong to its number of GPUs: with another one the target and the cores say what
    they should be."""
    own = max(1, plan.based_on.hardware.num_gpus) if plan.based_on is not None else plan.devices.world_size
    micro, accumulation = plan.get(MICRO), plan.get(ACCUMULATION)
    if plan.devices.world_size == own:
        return
    if plan.of_profile("data.workers"):
        plan.values["data.workers"] = None
    if accumulation is not None and not plan.of_profile(ACCUMULATION):
        return
    if accumulation is not None and target_samples(plan) is None and micro is not None:
        factors = f"{micro} × {accumulation} × {own}"
        plan.put(TARGETS[0], micro * accumulation * own, tr("the profile's {factors}", factors=factors))
    if target_samples(plan) is not None:
        plan.values[ACCUMULATION] = None


# The steps, in their order.


def choose_task(plan: Plan) -> None:
    """The task and the weights that are begun with, without what a profile says of another machine."""
    config = tasks.with_init(tasks.follow_task(plan.asked, plan.spec), plan.spec)
    plan.config = for_other_cards(config, plan.machine, plan.based_on)
    plan.findings = (*plan.found, *(plan.data.findings if plan.data is not None else ()))
    if plan.spec is not None:
        plan.values["model.architecture"] = dict(plan.spec.architecture)
        plan.architecture, plan.unknown_architecture = read_architecture(plan.spec.architecture, plan.config.task)


def choose_hardware(plan: Plan) -> None:
    """The devices, and of the measurements those that are of them and of this way to compute."""
    config = plan.config
    plan.devices, found = choose_devices(plan)
    plan.findings += found
    here = of_devices(plan.known.measurements, plan.machine, plan.devices.device, plan.devices.gpus)
    # torch.compile is another pace and another peak, and nothing of a workload tells them apart.
    way = config.engine.compile, packs_rows(config)
    alike = tuple(measured for measured in here if (measured.compiled, bool(measured.packed)) == way)
    plan.evidence = replace(plan.known, measurements=alike)


def read_rows(plan: Plan) -> None:
    """What the data says of a row; rows that cannot be counted here are taken from the limits of their sources."""
    config = plan.config
    limit, lengths = config.batch.sequence_length, rows.lengths_of(plan.data.lengths) if plan.data is not None else None
    if lengths is not None:
        # Cut at the limit; of joined texts each sequence is full.
        plan.mean_length = float(limit) if joins_texts(config) else lengths.counts.mean(limit)
    plan.counted = plan.data if plan.data is not None else assumed_rows(config)


def measure_work(plan: Plan) -> None:
    """What a process computes, at most and usually, and how fast: threads and precision are resolved."""
    threads = plan.get("engine.cpu_threads")
    rates = rates_for(plan.known.kept_rates, plan.machine, plan.devices.device, plan.devices.gpus, threads)
    plan.evidence = replace(plan.evidence, rates=rates)
    plan.work = work = workload.workload_of(plan, evaluates=tasks.evaluates(plan))
    plan.usual = workload.typical(plan, work) if work is not None else None
    plan.padded = rows.padded_cost(work, plan.data, rows.arrangement_of(plan), rows.multiple_of(plan))
    plan.rate = times.rate_of(plan)
    plan.pace = times.pace_of(plan)


def complete(plan: Plan) -> None:
    plan.finish()
    plan.config = with_fitting_reasons(plan.config, plan.based_on, plan.machine)


STEPS: tuple[Callable[[Plan], None], ...] = (
    choose_task,
    choose_hardware,
    read_rows,
    engine.resolve_engine,
    engine.resolve_method,
    tasks.resolve_rates,
    reopen_for_processes,
    tasks.resolve_task,
    tasks.resolve_measuring,
    sizes.resolve_rounding,
    tasks.resolve_target,
    engine.resolve_strategy,
    engine.resolve_base,
    sizes.resolve_sizes,
    rows.resolve_arrangement,
    loading.resolve_loading,
    loading.resolve_length,
    sizes.resolve_evaluation,
    measure_work,
    loading.resolve_intervals,
    resolve_communication,
    complete,
    sizes.batch_plan,
    workload.plan_memory,
    times.plan_time,
)
"""Each reads what those before it wrote."""


def resolve(plan: Plan) -> Plan:
    """The plan with every open value of its config resolved, each with its reason. Reads nothing."""
    for step in STEPS:
        step(plan)
    return plan
