"""What makes a run fit, and what would use the memory that it leaves free: changes at the same effective batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, reduce
from itertools import combinations, islice, product
from math import inf
from typing import Any

from trainwiz.core.catalog.model_config import ModelSpec, has_attention, has_checkpointing
from trainwiz.core.catalog.models import load_models
from trainwiz.core.estimate.architecture import lora_targets
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.memory import estimate_memory, largest_micro_batch
from trainwiz.core.estimate.states import states_of
from trainwiz.core.estimate.workload import MemoryVerdict, Workload
from trainwiz.core.hardware.visible import choose_precision
from trainwiz.core.language import tr
from trainwiz.core.plan.engine import ALONE, BASE, OFFLOAD, OPTIMIZER, STRATEGY, as_seen
from trainwiz.core.plan.resolve import LENGTH, TARGET, try_fix
from trainwiz.core.plan.result import Fix, Plan
from trainwiz.core.plan.sizes import ACCUMULATION, CHECKPOINTING, CHUNK, EVALUATED, GPU_CEILING, LOSS_CHUNK, MICRO
from trainwiz.core.plan.words import counted, listed

# What makes it fit.

MOST = 4
"""Remedies beside smaller models; at most half of them change what is learnt."""
AT_MOST = 8
"""Combinations that are planned whole. Formulas judge all the others, each in some hundredths of a millisecond."""
LARGE_SHARE = 0.25
"""Logits that are more of the peak than this are worth a loss in slices."""
SHORTEST = 64
"""Tokens: shorter is no advice."""
LEAST_SHARE = 0.25
"""Of the length: what is cut further helps only where nothing else does."""
MODELS = 2
"""Smaller models that are named."""
ATTENTION, PRECISION, PROCESSES = "engine.attention", "engine.precision", "engine.processes"
MORE = 1.25
"""Each setting that is changed counts as so much more time."""


@dataclass(frozen=True, slots=True)
class Idea:
    """Something to try: settings, and the words for them."""

    words: str
    changes: Mapping[str, Any]

    def and_(self, other: Idea) -> Idea:
        return Idea(listed(filter(None, (self.words, other.words))), {**self.changes, **other.changes})


NOTHING = Idea("", {})
"""Smaller micro-batches alone."""


def find_fixes(plan: Plan) -> tuple[Fix, ...]:
    """Ways that fit safely (at worst tight when none does), those that change least and take least time first.

    Those that change what is learnt come last, and most of them only where there is little else; smaller models only
    where no setting of the engine will do.
    """
    if plan.work is None or plan.share_bytes is None or plan.memory.verdict == "fits":
        return ()
    by_hand = plan.chosen_by_hand(MICRO) and plan.batch.micro_batch > 1
    # One that is open is as small as it helps already.
    ways = [way for way in _ways(plan, plan.work) if way.changes or by_hand]
    same = _cheapest(list(_planned(plan, ways)))[:MOST]
    others = _otherwise(plan, plan.work, nothing_else=not same)
    if same:
        return (*same, *islice(others, min(MOST // 2, MOST - len(same))))
    return (*_cheapest(list(others))[: MOST // 2], *_smaller_models(plan, plan.work))


def _cheapest(found: list[Fix]) -> list[Fix]:
    """Those that fit, or where none does those that may: the cheapest first, and none that lets no more sequences be
    computed at once than smaller micro-batches alone."""
    chosen = [fix for fix in found if fix.after.memory.verdict == "fits"] or found
    alone = max((fix.after.batch.micro_batch for fix in chosen if not _settings(fix)), default=0)
    worth = [fix for fix in chosen if not _settings(fix) or fix.after.batch.micro_batch > alone]
    return sorted(worth, key=lambda fix: fix.time * MORE ** len(_settings(fix)))


def _planned(plan: Plan, ideas: Iterable[Idea], *, otherwise: bool = False) -> Iterator[Fix]:
    """Those of the first ideas that keep what the formulas promise, each planned when it is asked for."""
    for idea in islice(ideas, AT_MOST):
        fix = try_fix(plan, idea.words, idea.changes, trains_otherwise=otherwise)
        if fix is not None:
            yield fix


def _ways(plan: Plan, work: Workload) -> list[Idea]:
    """Combinations of settings with which one sequence at once fits, the fewest settings first.

    Of several settings only those of which no part fits alone. Those that may fit come only where nothing fits safely.
    """
    kinds = _kinds(plan, work)
    judged = [
        (idea, _verdict(plan, _changed_work(plan, work, idea.changes)))
        for size in range(len(kinds) + 1)
        for chosen in combinations(kinds, size)
        for idea in (reduce(Idea.and_, parts, NOTHING) for parts in product(*chosen))
    ]
    for wanted in ("fits", "tight"):
        kept: list[Idea] = []
        for idea in (idea for idea, verdict in judged if verdict == wanted):
            parts = [other.changes.items() for other in kept if other.changes]
            if not any(items <= idea.changes.items() for items in parts):
                kept.append(idea)
        if kept:
            return kept
    return []


def _verdict(plan: Plan, work: Workload) -> MemoryVerdict | None:
    """Of one sequence at once, on the device and in host RAM: a quick look before the whole run is planned again."""
    assert plan.work is not None
    if work.quantized and (work.strategy not in ALONE or work.offload != "none"):
        return "does_not_fit"
    kept, now = states_of(work).host, states_of(plan.work).host
    in_ram = plan.memory.host_ram_bytes + (kept - now) * plan.devices.processes
    if kept and in_ram > (plan.memory.host_ram_capacity_bytes or inf):
        return "does_not_fit"
    smallest = work.with_micro_batch(1, min(2, work.accumulation * work.micro_batch))
    smallest = replace(smallest, eval_micro_batch=min(1, work.eval_micro_batch))
    if not plan.chosen_by_hand(CHECKPOINTING) and has_checkpointing(plan.model_type):
        smallest = replace(smallest, checkpointing=True)
    return estimate_memory(smallest, plan.evidence).verdict(plan.share_bytes)


def _kinds(plan: Plan, work: Workload) -> list[list[Idea]]:
    """Of each kind of setting what could be another, the least costly kinds first."""
    evaluation = plan.evaluation.breakdown if plan.evaluation is not None else {}
    logits = max(plan.memory.breakdown.get("logits", 0), evaluation.get("logits", 0))
    half, _ = choose_precision(as_seen(plan.machine, plan.devices))
    settings: list[tuple[bool, str, dict[str, Any]]] = [
        (
            work.attention == "eager" and has_attention(plan.model_type, "sdpa"),
            tr("sdpa attention"),
            {ATTENTION: "sdpa"},
        ),
        (
            work.loss_chunk is None and logits > LARGE_SHARE * plan.memory.allocated_bytes,
            tr("loss in chunks of {tokens} tokens", **counted(tokens=LOSS_CHUNK)),
            {CHUNK: LOSS_CHUNK},
        ),
        (
            # What the card computes in half precision; weights that all are trained stay in fp32.
            work.precision in ("fp32", "tf32") and half != "fp32",
            tr("{precision} instead of {now}", precision=half, now=work.precision),
            {PRECISION: half},
        ),
        (
            not work.checkpointing and has_checkpointing(plan.model_type),
            tr("gradient checkpointing"),
            {CHECKPOINTING: True},
        ),
        (
            work.lora and not work.quantized and work.device == "cuda" and plan.config.model.init == "pretrained",
            tr("frozen base in 4 bits (QLoRA)"),
            {BASE: "nf4"},
        ),
    ]
    kinds = [[Idea(words, changes)] for usable, words, changes in settings if usable]
    states = list(_of_the_states(plan, work)) if work.device == "cuda" and not work.quantized else []
    return [*kinds, states] if states else kinds


def _of_the_states(plan: Plan, work: Workload) -> Iterator[Idea]:
    """Smaller states of the optimizer, and engines that share states out among cards or keep them in host RAM."""
    in_full = work.optimizer.startswith("adamw") and not work.optimizer.endswith("8bit") and not work.lora
    if in_full and work.strategy in ALONE and plan.machine.may_have("bitsandbytes"):
        yield Idea(tr("8-bit AdamW"), {OPTIMIZER: "adamw_bnb_8bit"})
    yield from _sharded(plan, work)
    if work.offload == "all":
        return
    # A sharding strategy would take every card, and the batch with them.
    spare = len(plan.machine.visible_gpus) > plan.devices.processes
    here = {OPTIMIZER: "adamw_torch", **({PROCESSES: plan.devices.processes} if spare else {})}
    if work.offload == "none" and not work.lora:
        yield Idea(tr("optimizer offloaded to RAM (ZeRO-2)"), {STRATEGY: "zero2", OFFLOAD: "optimizer", **here})
    yield Idea(tr("weights and optimizer offloaded to RAM (ZeRO-3)"), {STRATEGY: "zero3", OFFLOAD: "all", **here})


def _sharded(plan: Plan, work: Workload) -> Iterator[Idea]:
    """On the cards that the run has, and on those that it leaves idle."""
    chosen = plan.config.engine.gpus
    cards = max(plan.devices.processes, len(plan.machine.visible_gpus) if chosen is None else len(chosen))
    if cards * plan.devices.nodes == 1 or work.offload != "none" or work.strategy in ("fsdp", "zero3"):
        return
    more = {PROCESSES: cards} if cards > plan.devices.processes else {}
    own = {} if work.optimizer.startswith("adamw_torch") else {OPTIMIZER: "adamw_torch_fused"}
    for strategy, name in (("zero2", "ZeRO-2"), ("fsdp", "FSDP"), ("zero3", "ZeRO-3")):
        if strategy != work.strategy and not (strategy == "fsdp" and work.task == "seq2seq"):
            words = tr("sharded across {cards} GPUs ({name})", cards=cards * plan.devices.nodes, name=name)
            yield Idea(words, {STRATEGY: strategy, **more, **own})


def _otherwise(plan: Plan, work: Workload, *, nothing_else: bool) -> Iterator[Fix]:
    """What changes what is learnt: adapters and weights in half precision, each with the settings that it needs, and
    shorter sequences."""
    half, _ = choose_precision(as_seen(plan.machine, plan.devices))
    adapters: dict[str, Any] = {"peft.method": "lora"}
    if work.offload != "none" or work.deepspeed:
        adapters |= {OFFLOAD: "none", STRATEGY: None}
    # Random weights would stay random beside adapters.
    if not work.lora and plan.config.model.init == "pretrained":
        words = tr("LoRA with rank {rank} instead of full fine-tuning", rank=plan.config.peft.rank)
        yield from _first(plan, work, Idea(words, adapters))
    # With all settings only where these would not do alone.
    every = reduce(Idea.and_, (kind[-1] for kind in _kinds(plan, work)), NOTHING)
    least = 1 if nothing_else else LEAST_SHARE * plan.batch.sequence_length
    for idea in (NOTHING, every)[: 1 + nothing_else]:
        longest = _longest(plan, _changed_work(plan, work, idea.changes))
        if longest >= least:
            yield from _planned(plan, [idea.and_(_cut_to(plan, work, longest))], otherwise=True)
            break
    if work.device == "cuda" and not (work.lora or work.deepspeed) and half == "bf16" and work.precision != "bf16-true":
        yield from _first(
            plan, work, Idea(tr("weights in bf16 too (small updates are lost)"), {PRECISION: "bf16-true"})
        )


def _first(plan: Plan, work: Workload, idea: Idea) -> Iterator[Fix]:
    """The idea with the fewest settings that it needs."""
    ways = _ways(plan, _changed_work(plan, work, idea.changes))[:2]
    yield from islice(_planned(plan, map(idea.and_, ways), otherwise=True), 1)


def _longest(plan: Plan, work: Workload) -> int:
    """The longest sequences that fit at one micro-batch, in steps of 64 tokens; 0 for none."""
    share = plan.share_bytes or 0
    micro = work.micro_batch if plan.chosen_by_hand(MICRO) else 1
    ratio = work.target_length / work.length

    def fits(length: int) -> bool:
        cut = replace(work, length=length, target_length=max(1, round(length * ratio)), eval_micro_batch=0)
        # The evidence of one length says nothing of another.
        return estimate_memory(cut.with_micro_batch(micro)).safe_bytes <= share

    low, high = 0, (min(work.length, plan.batch.sequence_length) - 1) // SHORTEST + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * SHORTEST) else (low, middle)
    return low * SHORTEST


def _cut_to(plan: Plan, work: Workload, length: int) -> Idea:
    changes: dict[str, Any] = {LENGTH: length}
    if work.architecture.kind == "encoder-decoder":
        changes[TARGET] = max(1, round(length * work.target_length / work.length))
    now = plan.batch.sequence_length
    words = tr("sequences of {length} tokens instead of {length_now}", **counted(length=length, length_now=now))
    return Idea(words, changes)


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
    if changes.get("peft.method") != "lora":
        return then
    targets = lora_targets(work.architecture, plan.config.peft.targets)
    return replace(then, lora_rank=plan.config.peft.rank, lora_targets=targets)


def _settings(fix: Fix) -> set[str]:
    """What it changes beside the sizes of batches: an engine, its offload and its optimizer are one."""
    engine = (STRATEGY, OFFLOAD, OPTIMIZER, PROCESSES)
    return {"engine" if key in engine else key for key in fix.changes if key not in (MICRO, ACCUMULATION, EVALUATED)}


# What would use the memory that a run leaves free: a larger micro-batch, or no checkpointing.

WORTH = 1.5
"""A micro-batch that is larger by less is no advice."""
QUICKER = 0.97
"""Checkpointing that costs less than this is left alone."""


def find_headroom(plan: Plan) -> tuple[Fix, ...]:
    """Changes of what somebody chose by hand, with which the run still fits safely; the quickest first.

    What is open is resolved to use the memory anyway.
    """
    work, share = plan.work, plan.share_bytes
    if work is None or share is None or plan.memory.verdict != "fits" or plan.devices.device == "cpu":
        return ()
    if plan.config.mode.kind != "train":
        return ()
    found = [_larger(plan, work, share), _without_checkpointing(plan, work)]
    fitting = [
        fix
        for fix in found
        if fix is not None and fix.after.memory.verdict == "fits"
        # With a larger batch the plan may hold the base in 4 bits, which is no use of what is free.
        and fix.after.config.engine.base_precision == plan.config.engine.base_precision
    ]  # fmt: skip
    return tuple(sorted(fitting, key=lambda fix: fix.time))


def _larger(plan: Plan, work: Workload, share: int) -> Fix | None:
    """The largest that fits at the same effective batch; without a batch to keep, the largest of all."""
    if not plan.chosen_by_hand(MICRO):
        return None
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


def _without_checkpointing(plan: Plan, work: Workload) -> Fix | None:
    if not work.checkpointing or not plan.chosen_by_hand(CHECKPOINTING):
        return None
    fix = try_fix(plan, tr("without gradient checkpointing"), {CHECKPOINTING: False})
    return fix if fix is not None and fix.time < QUICKER else None
