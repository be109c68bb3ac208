"""Every open value of a plan gets one, in named steps, and the estimates follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from trainwiz.core.batch import accumulation_for, deviation, largest_exact, nearest_large
from trainwiz.core.config import Origin, RunConfig
from trainwiz.core.data.lengths import held_out_count, joins_texts, packs_rows
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.history.measurement import of_devices
from trainwiz.core.language import tr, trn
from trainwiz.core.plan import engine, loading, rows, sizes, tasks, times, workload
from trainwiz.core.plan.engine import SMOKE_PROCESSES, STRATEGY, choose_devices
from trainwiz.core.plan.environment import resolve_communication
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.sizes import ACCUMULATION, MICRO, target_samples
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

WORKERS = "data.workers"
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
    """Accumulation, and where it alone misses the target the micro-batch; the loader's workers are shared."""
    own = max(1, plan.based_on.hardware.num_gpus) if plan.based_on is not None else plan.devices.world_size
    if plan.devices.world_size == own:
        return
    _batch(plan, own)
    workers, processes = plan.get(WORKERS), plan.devices.processes
    if workers and processes > own and _is_of_profile(plan, WORKERS):
        why = tr(
            "the {workers} of the profile, shared by {processes} processes", workers=workers * own, processes=processes
        )
        plan.put(WORKERS, max(1, workers * own // processes), why)


def _is_of_profile(plan: Plan, key: str) -> bool:
    return plan.config.origin(key).origin == "profile"


def _batch(plan: Plan, own: int) -> None:
    """A profile's accumulation belongs to its number of GPUs: with another one the target says what it should be."""
    micro, accumulation, processes = plan.get(MICRO), plan.get(ACCUMULATION), plan.devices.world_size
    if accumulation is not None:
        if not _is_of_profile(plan, ACCUMULATION):
            return
        if target_samples(plan) is None and micro is not None:
            reason = trn(
                "the profile's {micro} × {accumulation} × {n} GPU",
                "the profile's {micro} × {accumulation} × {n} GPUs",
                own,
                micro=micro,
                accumulation=accumulation,
            )
            plan.put("batch.target_samples", micro * accumulation * own, reason)
    target = target_samples(plan)
    if target is None:
        return
    plan.values[ACCUMULATION] = None
    if micro is None or not _is_of_profile(plan, MICRO):
        return
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
        plan.put(MICRO, better.micro_batch, reason)


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
    plan.mean_length = rows.mean_length(plan.data, config.batch.sequence_length, joined=joins_texts(config))
    plan.counted = plan.data if plan.data is not None else assumed_rows(config)


def choose_strategy(plan: Plan) -> None:
    engine.resolve_strategy(plan)
    engine.resolve_sharding(plan, workload.workload_of(plan))


def size_batch(plan: Plan) -> None:
    evaluates = _evaluates(plan)
    sizes.resolve_sizes(plan, workload.workload_of(plan, evaluates=evaluates), evaluates=evaluates)


def size_evaluation(plan: Plan) -> None:
    sizes.resolve_evaluation(plan, workload.workload_of(plan))


def load_rows(plan: Plan) -> None:
    loading.resolve_loading(plan, workload.workload_of(plan))


def measure_work(plan: Plan) -> None:
    """What a process computes, at most and usually, and how fast: threads and precision are resolved."""
    plan.work = work = workload.workload_of(plan, evaluates=_evaluates(plan))
    plan.usual = workload.typical(plan, work) if work is not None else None
    plan.padded = rows.padded_cost(work, plan.data, rows.arrangement_of(plan), rows.multiple_of(plan))
    plan.rate = times.rate_of(plan)
    plan.pace = times.pace_of(plan)


def complete(plan: Plan) -> None:
    plan.finish()
    plan.config = with_fitting_reasons(plan.config, plan.based_on, plan.machine)


def show_batch(plan: Plan) -> None:
    plan.batch = sizes.batch_plan(plan)


def show_time(plan: Plan) -> None:
    plan.time = times.plan_time(plan)


def _evaluates(plan: Plan) -> bool:
    """Whether rows are held out, as far as it is known; where it is not, they are."""
    if plan.get("data.validation_rows") == 0 and not plan.get("data.validation_sources"):
        return False
    return plan.counted is None or plan.counted.validation_rows > 0


@dataclass(frozen=True, slots=True)
class Step:
    """`reads` and `writes` are parts of the Plan, keys of settings, and in `reads` names of steps for all that they write.

    `again` is what this step may open or set anew although another one writes it.
    """

    name: str
    run: Callable[[Plan], None]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    again: tuple[str, ...]


def _step(name: str, run: Callable[[Plan], None], reads: str, writes: str, again: str = "") -> Step:
    return Step(name, run, *(tuple(keys.split()) for keys in (reads, writes, again)))


_WORKLOAD = "architecture data devices evidence engine adapters rounding strategy batch"
"""What a Workload is made of."""

STEPS: tuple[Step, ...] = (
    _step(
        "start",
        choose_task,
        "asked spec based_on machine found data",
        "model.architecture architecture unknown_architecture findings",
        again="config",
    ),
    _step("hardware", choose_hardware, "based_on machine known", "devices evidence", again="findings"),
    _step("rows", read_rows, "data", "mean_length counted"),
    _step(
        "engine",
        engine.resolve_engine,
        "machine devices model.architecture",
        "engine.device engine.precision engine.tf32 engine.attention engine.processes engine.cpu_threads",
        again="engine.checkpointing",
    ),
    _step(
        "rates",
        tasks.resolve_rates,
        "architecture model.architecture",
        "training.learning_rate training.final_learning_rate training.schedule training.warmup",
    ),
    _step(
        "reopen",
        reopen_for_processes,
        "based_on devices mean_length",
        "",
        again="batch.target_samples batch.micro_batch_size batch.gradient_accumulation_steps data.workers",
    ),
    _step(
        "adapters",
        tasks.resolve_task,
        "",
        "batch.target_length data.concatenate peft.targets peft.alpha evaluation.generation_length evaluation.metric",
    ),
    _step("rounding", sizes.resolve_rounding, "data devices engine adapters", "data.pad_to_multiple_of"),
    _step("target", tasks.resolve_target, "counted reopen", "batch.target_samples"),
    _step(
        "strategy",
        choose_strategy,
        "architecture data devices evidence machine engine adapters rounding reopen model.architecture",
        "engine.strategy engine.offload engine.optimizer model_config",
        again="findings",
    ),
    _step(
        "batch",
        size_batch,
        "architecture data devices evidence engine adapters rounding strategy target reopen counted mean_length",
        "solution batch.micro_batch_size batch.gradient_accumulation_steps engine.checkpointing",
    ),
    _step("mean", engine.resolve_loss_mean, "model.architecture", "training.loss_mean"),
    _step("order", rows.resolve_arrangement, "data devices adapters rounding batch mean", "data.arrange_by_length"),
    _step(
        "loading",
        load_rows,
        f"{_WORKLOAD} counted machine reopen",
        "data.streaming data.pin_memory data.workers data.prefetch data.persistent_workers data.validation_rows",
    ),
    _step(
        "length", loading.resolve_length, "counted batch data found", "steps epochs training.max_steps training.epochs"
    ),
    _step("evaluation_size", size_evaluation, _WORKLOAD, "batch.eval_micro_batch_size"),
    _step(
        "work",
        measure_work,
        f"{_WORKLOAD} machine counted order loading evaluation_size",
        "work usual padded rate pace",
    ),
    _step(
        "intervals",
        loading.resolve_intervals,
        "steps pace",
        "checkpoint.every_steps evaluation.every_steps logging.every_steps",
    ),
    _step(
        "communication",
        resolve_communication,
        "machine devices pace adapters batch loading",
        "engine.process_timeout_s engine.environment",
    ),
    _step("config", complete, "based_on machine", "", again="config"),
    _step("shown_batch", show_batch, "data devices solution padded target adapters rounding order batch", "batch"),
    _step(
        "shown_memory", workload.plan_memory, "data devices machine counted evidence work", "estimate evaluation memory"
    ),
    _step("shown_time", show_time, "batch counted devices length work", "time"),
)


def resolve(plan: Plan) -> Plan:
    """The plan with every open value of its config resolved, each with its reason. Reads nothing."""
    for step in STEPS:
        step.run(plan)
    return plan
