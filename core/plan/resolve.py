"""Every open value of a plan gets one, in named steps, and the estimates follow; the same again with changes, for remedies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from trainwiz.core.batch import accumulation_for
from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.config import Origin, RunConfig
from trainwiz.core.config.run import DataSource
from trainwiz.core.data.lengths import held_out_count, joins_texts, packs_rows
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.errors import Remedy
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.time import step_time
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.measurement import of_devices, rates_for
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plan import engine, loading, rows, sizes, tasks, times, workload
from trainwiz.core.plan.engine import SMOKE_PROCESSES, STRATEGY, choose_devices
from trainwiz.core.plan.environment import resolve_communication
from trainwiz.core.plan.refusals import refusals
from trainwiz.core.plan.result import BatchPlan, Fix, Plan
from trainwiz.core.plan.sizes import ACCUMULATION, CHECKPOINTING, EVALUATED, MICRO, most_evaluated, target_samples
from trainwiz.core.plan.words import gib, listed
from trainwiz.core.profile.profile import CARD, CAUSES, Profile, changed_causes

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
    changed = set(changed_causes(profile.values, mine))
    card = profile.hardware.gpu
    if card is not None and all(gpu.catalogue_name != card for gpu in machine.gpus):
        changed.add(CARD)
    origins = dict(config.origins)
    for key, causes in CAUSES.items():
        origin = config.origin(key)
        cause = next((cause for cause in causes if cause in changed and cause != key), None)
        if origin.origin == "profile" and origin.reason and cause is not None:
            reason = tr("from the profile, which has another {cause}", cause=cause)
            origins[key] = Origin(origin="profile", reason=reason)
    return config.model_copy(update={"origins": origins})


# What a profile says of its own number of GPUs, solved again where there are others.

NOTABLE_DEVIATION = 0.01
"""Of the batch from its target: what is nearer is not worth a word."""


def for_other_cards(config: RunConfig, machine: Machine, profile: Profile | None) -> RunConfig:
    """`config` without what a profile of another machine says of strategy and processes: the strategy open where one of
    one card says "single" and several are to be used, and a smoke run with as many processes as there are here."""
    if config.mode.kind == "smoke":
        of_profile = config.origin("engine.processes").origin == "profile"
        return _with_engine(config, processes=None) if of_profile else config
    if profile is None or profile.hardware.gpu is None:
        return config
    if config.engine.strategy != "single" or config.origin(STRATEGY).origin != "profile":
        return config
    if machine.accelerator != "cuda" or config.engine.device not in (None, "cuda"):
        return config
    cards = len(machine.visible_gpus) if config.engine.gpus is None else len(config.engine.gpus)
    return config if (config.engine.processes or cards) == 1 else _with_engine(config, strategy=None)


def _with_engine(config: RunConfig, **values: None) -> RunConfig:
    return config.model_copy(update={"engine": config.engine.model_copy(update=values)})


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
        reason = trn(
            "the profile's {micro} × {accumulation} × {n} GPU",
            "the profile's {micro} × {accumulation} × {n} GPUs",
            own,
            micro=micro,
            accumulation=accumulation,
        )
        plan.put("batch.target_samples", micro * accumulation * own, reason)
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
    config, hardware = plan.config, plan.based_on.hardware if plan.based_on is not None else None
    several = hardware is not None and hardware.num_gpus > 1 and config.mode.kind == "smoke"
    plan.devices, found = choose_devices(
        plan.machine,
        config,
        any_device=hardware is not None and hardware.gpu is None,
        cpu_processes=SMOKE_PROCESSES if several else 1,
    )
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


# A plan made again with changes: what a remedy promises, and whether it keeps it.

LENGTH, TARGET = "batch.sequence_length", "batch.target_length"
SAME_BATCH = 0.02
"""Of the effective batch; further off it is another training."""
TO_INSTALL = {"deepspeed_missing": "DeepSpeed", "bitsandbytes_missing": "bitsandbytes"}
"""Errors that do not speak against a fix: what is missing can be had."""


def remedy_of(fix: Fix, plan: Plan) -> Remedy:
    """ "checkpointing: 5.4 GiB, about 33 % more time"."""
    more = round((fix.time - 1) * 100)
    words = mark("{fix}: {size}, the same time")
    if fix.time_factor is None:
        words = mark("{fix}: {size}")
    elif abs(more) > 1:
        longer, shorter = mark("{fix}: {size}, about {more}% more time"), mark("{fix}: {size}, about {less}% less time")
        words = longer if more > 0 else shorter
    size = gib(fix.after.memory.judged_bytes)
    return plan.remedy(tr(words, fix=fix.words, size=size, more=more, less=-more), fix.changes)


def changed(plan: Plan, changes: Mapping[str, Any], model: ModelSpec | None = None) -> Plan | None:
    """The same run planned with `changes`, as if the user had made them; None where the config refuses them.

    `model` is the one that they name, where it is another.
    """
    try:
        config = plan.asked.with_values(dict(changes), "you")
    except (ValidationError, KeyError):
        return None
    given = {name: getattr(plan, name) for name in ("data", "based_on", "known", "found")}
    return resolve(Plan(plan.machine, config, asked=config, spec=model or plan.spec, **given))


def try_fix(
    plan: Plan,
    words: str,
    changes: Mapping[str, Any],
    *,
    trains_otherwise: bool = False,
    model: ModelSpec | None = None,
) -> Fix | None:
    """The fix with `changes`, and with smaller batches where they are needed and were chosen by hand.

    None where it does not fit on the device, while evaluating, in host RAM or on the disk, where this version cannot
    train it, or where it is another effective batch. Changes that name a micro-batch say the batch themselves.
    """
    sizes = {} if MICRO in changes else _sizes(plan, changes, model)
    if sizes is None:
        return None
    sized = {**changes, **sizes}
    after = changed(plan, sized, model)
    if after is None or after.work is None or after.memory.verdict not in ("fits", "tight"):
        return None
    if not (MICRO in changes or _is_same_batch(plan.batch, after.batch)) or not _host_holds(plan, after):
        return None
    broken = _errors(after)
    broken = broken and broken - _errors(plan)
    if broken - TO_INSTALL.keys():
        return None
    described = _described(words, plan, after, sized)
    if broken:
        library = listed(sorted(TO_INSTALL[code] for code in broken))
        described = tr("{fix}, once {library} is installed", fix=described, library=library)
    return Fix(described, sized, after, _time_factor(plan, after), trains_otherwise)


def _sizes(plan: Plan, changes: Mapping[str, Any], model: ModelSpec | None) -> dict[str, Any] | None:
    """Sizes at the same effective batch with which `changes` fit, where the solver does not find them by itself: no larger
    than those that were chosen by hand. None where no size fits."""
    then = changed(plan, {**dict.fromkeys((MICRO, ACCUMULATION, EVALUATED)), **_target(plan.batch), **changes}, model)
    if then is None or then.memory.verdict not in ("fits", "tight"):
        return None
    sizes: dict[str, Any] = {}
    most = int(plan.get(EVALUATED))
    evaluated = (
        most_evaluated(then, then.work, most) if plan.chosen_by_hand(EVALUATED) and then.work is not None else most
    )
    if 0 < evaluated < most:
        sizes[EVALUATED] = evaluated
    by_hand = plan.chosen_by_hand(MICRO) or plan.chosen_by_hand(ACCUMULATION)
    if by_hand or plan.batch.deviation is None:
        micro, target = min(plan.batch.micro_batch, then.batch.micro_batch), target_samples(then)
        steps = accumulation_for(target or 1.0, micro, then.batch.world_size)
        if (micro, steps) != (plan.get(MICRO), plan.get(ACCUMULATION)):
            sizes |= {MICRO: micro, ACCUMULATION: steps}
    return sizes


def _target(now: BatchPlan) -> dict[str, Any]:
    """What a step sees now, in the unit of its target."""
    targets: dict[str, Any] = dict.fromkeys(f"batch.target_{unit}" for unit in ("samples", "tokens", "real_tokens"))
    if now.target_real_tokens and now.real_tokens:
        targets["batch.target_real_tokens"] = now.real_tokens
    elif now.target_tokens:
        targets["batch.target_tokens"] = now.effective_tokens
    else:
        targets["batch.target_samples"] = now.effective_samples
    return targets


def _is_same_batch(now: BatchPlan, then: BatchPlan) -> bool:
    sizes = now.effective_samples, then.effective_samples
    if now.target_real_tokens and now.real_tokens and then.real_tokens:
        sizes = now.real_tokens, then.real_tokens
    elif now.target_tokens:
        sizes = now.effective_tokens, then.effective_tokens
    return abs(sizes[1] - sizes[0]) <= SAME_BATCH * sizes[0]


def _host_holds(plan: Plan, after: Plan) -> bool:
    """Whether RAM and disk have room; where they had too little before, that is judged elsewhere."""
    now, then = plan.memory, after.memory
    free, disk = then.host_ram_capacity_bytes, then.disk_capacity_bytes
    in_ram = free is None or then.host_ram_bytes <= max(free, now.host_ram_bytes)
    return in_ram and (disk is None or then.disk_bytes <= max(disk, now.disk_bytes))


def _errors(plan: Plan) -> set[str]:
    return {finding.code for finding in refusals(plan) if finding.severity == "error"}


def _described(words: str, plan: Plan, after: Plan, changes: Mapping[str, Any]) -> str:
    """The words, and what changes with it: the micro-batch, checkpointing, the size of evaluation."""
    parts = [words] if words else []
    checkpointing = after.config.engine.checkpointing
    if CHECKPOINTING not in changes and checkpointing != plan.config.engine.checkpointing:
        parts.append(tr("gradient checkpointing") if checkpointing else tr("no gradient checkpointing"))
    if after.batch.micro_batch != plan.batch.micro_batch:
        parts.append(
            tr(
                "micro-batch {micro_batch} × accumulation {accumulation}",
                micro_batch=after.batch.micro_batch,
                accumulation=after.batch.accumulation,
            )
        )
    if EVALUATED in changes:
        parts.append(tr("{sequences} evaluated at a time", sequences=changes[EVALUATED]))
    return listed(parts)


def _time_factor(plan: Plan, after: Plan) -> float | None:
    """By formula on both sides: a measured pace of one alone would not compare."""
    if plan.rate is None or after.rate is None or plan.usual is None or after.usual is None:
        return None
    before = step_time(plan.usual, plan.rate).step.likely / plan.batch.effective_samples
    then = step_time(after.usual, after.rate).step.likely / after.batch.effective_samples
    return then / before if before else None
