"""What makes a run fit, and what would use the memory that it leaves free: changes at the same effective batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations, islice
from typing import Any

from pydantic import ValidationError
from trainwiz.core.batch import accumulation_for
from trainwiz.core.catalog.model_config import ModelSpec, has_attention, has_checkpointing
from trainwiz.core.catalog.models import load_models
from trainwiz.core.errors import Remedy
from trainwiz.core.estimate.architecture import lora_targets
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.memory import estimate_memory, largest_micro_batch
from trainwiz.core.estimate.time import step_time
from trainwiz.core.estimate.workload import MemoryVerdict, Workload
from trainwiz.core.hardware.visible import choose_precision
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.engine import ALONE, BASE, METHOD, OFFLOAD, OPTIMIZER, STRATEGY, as_seen
from trainwiz.core.plan.refusals import ATTENTION, PRECISION, refusals
from trainwiz.core.plan.resolve import resolve
from trainwiz.core.plan.result import Fix, Plan
from trainwiz.core.plan.sizes import (
    ACCUMULATION,
    CHECKPOINTING,
    CHUNK,
    EVALUATED,
    GPU_CEILING,
    LENGTH,
    LOSS_CHUNK,
    MICRO,
    ROUND_LENGTHS,
    TARGET,
    TARGETS,
    target_samples,
)
from trainwiz.core.plan.words import counted, gib, listed

# A plan made again with changes: what a remedy promises, and whether it keeps it.

SAME_BATCH = 0.02
"""Of the effective batch; further off it is another training."""
TO_INSTALL = {"deepspeed_missing": "DeepSpeed", "bitsandbytes_missing": "bitsandbytes"}
"""Errors that do not speak against a fix: what is missing can be had."""


def changed(plan: Plan, changes: Mapping[str, Any], model: ModelSpec | None = None) -> Plan | None:
    """The same run planned with `changes`, as if the user had made them; None where the config refuses them.

    `model` is the one that they name, where it is another.
    """
    try:
        config = plan.asked.with_values(dict(changes), "you")
    except (ValidationError, KeyError):
        return None
    then = Plan(plan.machine, config, asked=config, spec=model or plan.spec, data=plan.data, based_on=plan.based_on)
    then.known, then.found = plan.known, plan.found
    return resolve(then)


def remedy_of(fix: Fix, plan: Plan) -> Remedy:
    """ "checkpointing: 5.4 GiB, about 33% more time"."""
    more = round((fix.time - 1) * 100)
    words = mark("{fix}: {size}")
    if abs(more) > 1:
        longer, shorter = mark("{fix}: {size}, about {more}% more time"), mark("{fix}: {size}, about {less}% less time")
        words = longer if more > 0 else shorter
    size = gib(fix.after.memory.judged_bytes)
    return plan.remedy(tr(words, fix=fix.words, size=size, more=more, less=-more), fix.changes)


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
    after = None if sizes is None else changed(plan, {**changes, **sizes}, model)
    if sizes is None or after is None or not _may_fit(after) or not _host_holds(plan, after):
        return None
    batch, now = _in_targets_unit(plan, after), _in_targets_unit(plan, plan)
    if MICRO not in changes and abs(batch - now) > SAME_BATCH * now:
        return None
    broken = _errors(after)
    broken = broken and broken - _errors(plan)
    if broken - TO_INSTALL.keys():
        return None
    parts = [words] if words else []
    if after.batch.micro_batch != plan.batch.micro_batch:
        factors = {"micro": after.batch.micro_batch, "accumulation": after.batch.accumulation}
        parts.append(tr("micro-batch {micro} × accumulation {accumulation}", **factors))
    if EVALUATED in sizes:
        parts.append(tr("{sequences} evaluated at a time", sequences=sizes[EVALUATED]))
    described = listed(parts)
    if broken:
        library = listed(sorted(TO_INSTALL[code] for code in broken))
        described = tr("{fix}, once {library} is installed", fix=described, library=library)
    return Fix(described, {**changes, **sizes}, after, _time_factor(plan, after), trains_otherwise)


def _may_fit(plan: Plan) -> bool:
    return plan.work is not None and plan.memory.verdict in ("fits", "tight")


def _sizes(plan: Plan, changes: Mapping[str, Any], model: ModelSpec | None) -> dict[str, Any] | None:
    """Sizes at the same effective batch with which `changes` fit, where the solver does not find them by itself: no larger
    than those that were chosen by hand. None where no size fits."""
    # What a step sees now, in the unit of its target.
    unit = next((unit for unit in reversed(TARGETS) if plan.get(unit)), TARGETS[0])
    whole = {**dict.fromkeys(TARGETS), unit: round(_in_targets_unit(plan, plan))}
    then = changed(plan, {**dict.fromkeys((MICRO, ACCUMULATION, EVALUATED)), **whole, **changes}, model)
    if then is None or not _may_fit(then):
        return None
    crowded = plan.evaluation is not None and plan.evaluation.verdict(plan.share_bytes) != "fits"
    evaluated = then.get(EVALUATED) if crowded and plan.chosen_by_hand(EVALUATED) else None
    sizes = {EVALUATED: evaluated} if evaluated else {}
    if plan.chosen_by_hand(MICRO) or plan.chosen_by_hand(ACCUMULATION) or plan.batch.deviation is None:
        micro, target = min(plan.batch.micro_batch, then.batch.micro_batch), target_samples(then)
        steps = accumulation_for(target or 1.0, micro, then.batch.world_size)
        if (micro, steps) != (plan.get(MICRO), plan.get(ACCUMULATION)):
            sizes |= {MICRO: micro, ACCUMULATION: steps}
    return sizes


def _in_targets_unit(plan: Plan, other: Plan) -> float:
    """What a step of `other` sees, in the unit of the target of `plan`."""
    batch = other.batch
    if plan.batch.target_real_tokens and batch.real_tokens:
        return batch.real_tokens
    return batch.effective_tokens if plan.batch.target_tokens else batch.effective_samples


def _host_holds(plan: Plan, after: Plan) -> bool:
    """Whether RAM and disk have room; where they had too little before, that is judged elsewhere."""
    now, then = plan.memory, after.memory
    free, disk = then.host_ram_capacity_bytes, then.disk_capacity_bytes
    in_ram = free is None or then.host_ram_bytes <= max(free, now.host_ram_bytes)
    return in_ram and (disk is None or then.disk_bytes <= max(disk, now.disk_bytes))


def _errors(plan: Plan) -> set[str]:
    return {finding.code for finding in refusals(plan) if finding.severity == "error"}


def _time_factor(plan: Plan, after: Plan) -> float:
    """By formula on both sides: a measured pace of one alone would not compare. 1 where there is no formula."""
    if plan.rate is None or after.rate is None or plan.usual is None or after.usual is None:
        return 1.0
    before = step_time(plan.usual, plan.rate).step.likely / plan.batch.effective_samples
    return step_time(after.usual, after.rate).step.likely / after.batch.effective_samples / before


# What makes it fit.

MOST = 4
"""Remedies beside smaller models; at most half of them change what is learnt."""
AT_MOST = 8
"""Combinations that are planned whole. Formulas judge all the others, each in some hundredths of a millisecond."""
TOGETHER = 6
"""Settings of a combination."""
LARGE_SHARE = 0.25
"""Logits that are more of the peak than this are worth a loss in slices."""
MODELS = 2
"""Smaller models that are named."""
PROCESSES = "engine.processes"
MORE = 1.25
"""Each setting that is changed counts as so much more time."""

Idea = tuple[str, Mapping[str, Any]]
"""Something to try: the words for it, and its settings; none of both: smaller micro-batches alone."""


def _joined(ideas: Iterable[Idea]) -> Idea:
    ideas = tuple(ideas)
    return listed(words for words, _ in ideas if words), {key: value for _, own in ideas for key, value in own.items()}


def find_fixes(plan: Plan) -> tuple[Fix, ...]:
    """Ways that fit safely (at worst tight when none does), those that change least and take least time first.

    Those that change what is learnt come last, and most of them only where there is little else; smaller models only
    where no setting of the engine will do.
    """
    if plan.work is None or plan.share_bytes is None or plan.memory.verdict == "fits":
        return ()
    by_hand = plan.chosen_by_hand(MICRO) and plan.batch.micro_batch > 1
    # One that is open is as small as it helps already.
    same = _cheapest(_planned(plan, [way for way in _ways(plan, plan.work) if way[1] or by_hand]))[:MOST]
    others = _otherwise(plan, plan.work)
    if same:
        return (*same, *islice(others, min(MOST // 2, MOST - len(same))))
    return (*_cheapest(others)[: MOST // 2], *_smaller_models(plan, plan.work))


def _cheapest(fixes: Iterable[Fix]) -> list[Fix]:
    """Those that fit, or where none does those that may: the cheapest first."""
    found = list(fixes)
    chosen = [fix for fix in found if fix.after.memory.verdict == "fits"] or found
    return sorted(chosen, key=lambda fix: fix.time * MORE ** len(_settings(fix)))


def _settings(fix: Fix) -> set[str]:
    """What it changes beside the sizes of batches: an engine, its offload and its optimizer are one."""
    engine = (STRATEGY, OFFLOAD, OPTIMIZER, PROCESSES)
    return {"engine" if key in engine else key for key in fix.changes if key not in (MICRO, ACCUMULATION, EVALUATED)}


def _planned(plan: Plan, ideas: Iterable[Idea], *, otherwise: bool = False) -> Iterator[Fix]:
    """Those of the first ideas that keep what the formulas promise, each planned when it is asked for."""
    fixes = (try_fix(plan, *idea, trains_otherwise=otherwise) for idea in islice(ideas, AT_MOST))
    return (fix for fix in fixes if fix is not None)


def _ways(plan: Plan, work: Workload) -> list[Idea]:
    """Combinations of settings with which one sequence at once fits, the fewest settings first.

    Of several settings only those of which no part fits alone. Those that may fit come only where nothing fits safely.
    """
    ideas = list(_ideas(plan, work))
    combined = [
        _joined(chosen)
        for size in range(TOGETHER + 1)
        for chosen in combinations(ideas, size)
        # Of two engines, or two optimizers, a run has one.
        if len({key for _, changes in chosen for key in changes}) == sum(len(changes) for _, changes in chosen)
    ]
    judged = [(way, _verdict(plan, _changed_work(plan, work, way[1]))) for way in combined]
    for wanted in ("fits", "tight"):
        kept: list[Idea] = []
        for way in (way for way, verdict in judged if verdict == wanted):
            if not any(other and other.items() <= way[1].items() for _, other in kept):
                kept.append(way)
        if kept:
            return kept
    return []


def _verdict(plan: Plan, work: Workload) -> MemoryVerdict | None:
    """Of one sequence at once: a quick look before the whole run is planned again."""
    if work.quantized and (work.strategy not in ALONE or work.offload != "none"):
        return "does_not_fit"
    smallest = work.with_micro_batch(1, min(2, work.accumulation * work.micro_batch))
    again = work.checkpointing or (not plan.chosen_by_hand(CHECKPOINTING) and has_checkpointing(plan.model_type))
    smallest = replace(smallest, eval_micro_batch=min(1, work.eval_micro_batch), checkpointing=again)
    return estimate_memory(smallest, plan.evidence).verdict(plan.share_bytes)


def _ideas(plan: Plan, work: Workload) -> Iterator[Idea]:
    """What could be another setting, the least costly first."""
    evaluation = plan.evaluation.breakdown if plan.evaluation is not None else {}
    logits = max(plan.memory.breakdown.get("logits", 0), evaluation.get("logits", 0))
    half, _ = choose_precision(as_seen(plan.machine, plan.devices))
    if work.attention == "eager" and has_attention(plan.model_type, "sdpa"):
        yield tr("sdpa attention"), {ATTENTION: "sdpa"}
    if work.loss_chunk is None and logits > LARGE_SHARE * plan.memory.allocated_bytes:
        yield tr("loss in chunks of {tokens} tokens", **counted(tokens=LOSS_CHUNK)), {CHUNK: LOSS_CHUNK}
    # What the card computes in half precision; weights that all are trained stay in fp32.
    if work.precision in ("fp32", "tf32") and half != "fp32":
        yield tr("{precision} instead of {now}", precision=half, now=work.precision), {PRECISION: half}
    if not work.checkpointing and has_checkpointing(plan.model_type):
        yield tr("gradient checkpointing"), {CHECKPOINTING: True}
    if work.device != "cuda" or work.quantized:
        return
    if work.lora and plan.config.model.init == "pretrained":
        yield tr("frozen base in 4 bits (QLoRA)"), {BASE: "nf4"}
    yield from _of_the_states(plan, work)


def _of_the_states(plan: Plan, work: Workload) -> Iterator[Idea]:
    """Smaller states of the optimizer, and engines that share states out among cards or keep them in host RAM."""
    in_full = work.optimizer.startswith("adamw") and not work.optimizer.endswith("8bit") and not work.lora
    if in_full and work.strategy in ALONE and plan.machine.may_have("bitsandbytes"):
        yield tr("8-bit AdamW"), {OPTIMIZER: "adamw_bnb_8bit"}
    # On the cards that the run has, and on those that it leaves idle.
    chosen, processes, nodes = plan.config.engine.gpus, plan.devices.processes, plan.devices.nodes
    cards = max(processes, len(plan.machine.visible_gpus) if chosen is None else len(chosen))
    if cards * nodes > 1 and work.offload == "none" and work.strategy not in ("fsdp", "zero3"):
        more = {PROCESSES: cards} if cards > processes else {}
        own = {OPTIMIZER: work.optimizer if work.optimizer.startswith("adamw_torch") else "adamw_torch_fused"}
        for strategy, name in (("zero2", "ZeRO-2"), ("fsdp", "FSDP"), ("zero3", "ZeRO-3")):
            if strategy != work.strategy and not (strategy == "fsdp" and work.task == "seq2seq"):
                words = tr("sharded across {cards} GPUs ({name})", cards=cards * nodes, name=name)
                yield words, {STRATEGY: strategy, **more, **own}
    # A sharding strategy would take every card, and the batch with them.
    spare = len(plan.machine.visible_gpus) > processes
    here = {OPTIMIZER: "adamw_torch", **({PROCESSES: processes} if spare else {})}
    if work.offload == "none" and not work.lora:
        yield tr("optimizer offloaded to RAM (ZeRO-2)"), {STRATEGY: "zero2", OFFLOAD: "optimizer", **here}
    if work.offload != "all":
        yield tr("weights and optimizer offloaded to RAM (ZeRO-3)"), {STRATEGY: "zero3", OFFLOAD: "all", **here}


def _otherwise(plan: Plan, work: Workload) -> Iterator[Fix]:
    """What changes what is learnt: adapters with the fewest settings that they need, and shorter sequences."""
    # Random weights would stay random beside adapters.
    if not work.lora and plan.config.model.init == "pretrained":
        words = tr("LoRA with rank {rank} instead of full fine-tuning", rank=plan.config.peft.rank)
        alone = {OFFLOAD: "none", STRATEGY: None} if work.offload != "none" or work.deepspeed else {}
        lora = words, {METHOD: "lora", **alone}
        ways = _ways(plan, _changed_work(plan, work, lora[1]))[:2]
        yield from islice(_planned(plan, (_joined((lora, way)) for way in ways), otherwise=True), 1)
    length, shorter = plan.batch.sequence_length, list[Idea]()
    for most in (most for most in reversed(ROUND_LENGTHS) if most < min(work.length, length)):
        words = tr("sequences of {length} tokens instead of {length_now}", **counted(length=most, length_now=length))
        # The same share of a target is kept.
        pair = work.architecture.kind == "encoder-decoder"
        target = {TARGET: max(1, round(most * work.target_length / work.length))} if pair else {}
        shorter.append((words, {LENGTH: most, **target}))
    # Where no length would do alone, with all states in RAM.
    shorter += [_joined((*list(_ideas(plan, work))[-1:], idea)) for idea in shorter]
    fitting = (idea for idea in shorter if _verdict(plan, _changed_work(plan, work, idea[1])) == "fits")
    yield from islice(_planned(plan, fitting, otherwise=True), 1)


@cache
def _catalogue() -> tuple[tuple[ModelSpec, float], ...]:
    """Models with their parameters, but those that are there for tests. Read once: at each keystroke it would be half of
    the plan's time."""
    read = ((spec, read_architecture(spec.architecture)[0]) for spec in load_models().values())
    return tuple(
        (spec, found.parameters) for spec, found in read if found is not None and not spec.name.endswith("tiny")
    )


def _smaller_models(plan: Plan, work: Workload) -> list[Fix]:
    """Of the catalogue, for the same task, those that fit: those of the same family first, the largest first."""
    kind, most = work.architecture.model_type, work.architecture.parameters
    models = [(spec, size) for spec, size in _catalogue() if spec.task == work.task and size < most]
    models.sort(key=lambda model: (model[0].architecture.get("model_type") != kind, -model[1]))
    fixes = (
        try_fix(
            plan,
            tr("the smaller {name}", name=spec.name),
            {"model.name": spec.name},
            trains_otherwise=True,
            model=spec,
        )
        for spec, _ in models
    )
    return list(islice((fix for fix in fixes if fix is not None), MODELS))


FIELDS = {
    CHECKPOINTING: "checkpointing", BASE: "base_precision", PRECISION: "precision", ATTENTION: "attention", OPTIMIZER: "optimizer",
    OFFLOAD: "offload", CHUNK: "loss_chunk",
}  # fmt: skip
"""Settings that a Workload holds as they are."""


def _changed_work(plan: Plan, work: Workload, changes: Mapping[str, Any]) -> Workload:
    then = replace(
        work,
        **{FIELDS[key]: value for key, value in changes.items() if key in FIELDS},
        strategy=changes.get(STRATEGY, work.strategy) or "single",
        world_size=changes.get(PROCESSES, plan.devices.processes) * plan.devices.nodes,
        length=min(work.length, changes.get(LENGTH, work.length)),
        target_length=min(work.target_length, changes.get(TARGET, work.target_length)),
    )
    if changes.get(METHOD) != "lora":
        return then
    targets = lora_targets(work.architecture, plan.config.peft.targets)
    return replace(then, lora_rank=plan.config.peft.rank, lora_targets=targets)


# What would use the memory that a run leaves free: a larger micro-batch.

WORTH = 1.5
"""A micro-batch that is larger by less is no advice."""


def find_headroom(plan: Plan) -> tuple[Fix, ...]:
    """A larger micro-batch than somebody chose by hand, with which the run still fits safely.

    What is open is resolved to use the memory anyway.
    """
    work, share, on_cpu = plan.work, plan.share_bytes, plan.devices.device == "cpu"
    if work is None or share is None or on_cpu or plan.memory.verdict != "fits" or plan.config.mode.kind != "train":
        return ()
    fix = _larger(plan, work, share) if plan.chosen_by_hand(MICRO) else None
    if fix is None or fix.after.memory.verdict != "fits":
        return ()
    # With a larger batch the plan may hold the base in 4 bits, which is no use of what is free.
    same = fix.after.config.engine.base_precision == plan.config.engine.base_precision
    return (fix,) if same else ()


def _larger(plan: Plan, work: Workload, share: int) -> Fix | None:
    """The largest that fits at the same effective batch; without a batch to keep, the largest of all."""
    batch = plan.batch
    samples = batch.micro_batch * batch.accumulation
    keeps = batch.deviation is not None or batch.accumulation > 1
    ceiling = min(GPU_CEILING, samples) if keeps else GPU_CEILING
    several = work.with_micro_batch(work.micro_batch, max(2, work.accumulation) if keeps else work.accumulation)
    largest = largest_micro_batch(several, share, ceiling, plan.evidence)
    micro = next((size for size in range(largest, 0, -1) if samples % size == 0), 1) if keeps else largest
    if micro < WORTH * batch.micro_batch:
        return None
    return try_fix(plan, "", {MICRO: micro, **({ACCUMULATION: samples // micro} if keeps else {})})
