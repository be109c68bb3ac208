"""What makes a run fit, and what would use the memory that it leaves free: changes at the same effective batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations, islice, product
from math import inf
from typing import Any

from trainwiz.core.catalog.model_config import ModelSpec, has_attention, has_checkpointing
from trainwiz.core.estimate.architecture import lora_targets
from trainwiz.core.estimate.memory import MemoryEstimate, estimate_memory, largest_micro_batch
from trainwiz.core.estimate.states import states_of
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.hardware.visible import choose_precision
from trainwiz.core.language import tr
from trainwiz.core.plan.engine import ALONE, BASE, OFFLOAD, OPTIMIZER, STRATEGY, as_seen
from trainwiz.core.plan.resolve import LENGTH, TARGET, changed, smaller_than, try_fix
from trainwiz.core.plan.result import Fix, Plan
from trainwiz.core.plan.sizes import ACCUMULATION, CHECKPOINTING, CHUNK, GPU_CEILING, LOSS_CHUNK, MICRO
from trainwiz.core.plan.words import counted, listed

# What makes it fit.

MOST = 4
"""Remedies beside smaller models; at most half of them change what is learnt."""
ENOUGH, AT_MOST = 6, 16
"""Of combinations that fit when they are planned whole, and of those that are so planned. Formulas judge all the others, each
in some hundredths of a millisecond."""
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
NOT_AT_ALL, PERHAPS, SAFELY = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Idea:
    """Something to try: one setting, or several together. `parts` are the settings, which no two of the same kind join."""

    words: str
    changes: Mapping[str, Any]
    parts: int = 1

    def and_(self, other: Idea) -> Idea:
        words = listed(filter(None, (self.words, other.words)))
        return Idea(words, {**self.changes, **other.changes}, self.parts + other.parts)


NOTHING = Idea("", {}, 0)
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
    ways = (way for way in _ways(plan, plan.work) if way.parts or by_hand)
    same = _safest(_distinct(list(islice(_planned(plan, plan.work, ways), ENOUGH))))[:MOST]
    others = _otherwise(plan, plan.work, same)
    if same:
        return (*same, *islice(others, min(MOST // 2, MOST - len(same))))
    return (*_safest(list(others))[: MOST // 2], *_smaller_models(plan, plan.work))


def _safest(found: list[Fix]) -> list[Fix]:
    """Those that fit, or where none does those that may: the cheapest first."""
    chosen = [fix for fix in found if fix.after.memory.verdict == "fits"] or found
    return sorted(chosen, key=lambda fix: fix.time * MORE ** _settings(fix))


def _planned(
    plan: Plan, work: Workload, ideas: Iterable[Idea], model: ModelSpec | None = None, *, otherwise: bool = False
) -> Iterator[Fix]:
    """Those of the first ideas that keep what the formulas promise, each planned when it is asked for."""
    for idea in islice(ideas, AT_MOST):
        then = _changed_work(plan, work, idea.changes)
        fix = try_fix(plan, idea.words, idea.changes, then, trains_otherwise=otherwise, model=model)
        if fix is not None:
            yield fix


def _ways(plan: Plan, work: Workload) -> Iterator[Idea]:
    """Combinations of settings with which one sequence at once fits, the fewest settings first.

    Of several settings only those of which no part fits alone; each with checkpointing or in half precision too, which may
    be quicker for the larger batch that they leave room for. Those that may fit come only where nothing fits safely.
    """
    kinds, known = _kinds(plan, work), dict[frozenset[tuple[str, Any]], int]()

    def at_least(idea: Idea) -> int:
        key = frozenset(idea.changes.items())
        if key not in known:
            known[key] = _fit(plan, _changed_work(plan, work, idea.changes))
        return known[key]

    quicker = [one for kind in kinds for one in kind if one.changes.keys() & {CHECKPOINTING, PRECISION}]
    for wanted in (SAFELY, PERHAPS):
        kept: list[Idea] = []
        for size in range(len(kinds) + 1):
            ideas = (
                reduce(Idea.and_, parts, NOTHING) for chosen in combinations(kinds, size) for parts in product(*chosen)
            )
            needless = [other.changes.items() for other in kept] if size > 1 else []
            fresh = [
                idea
                for idea in ideas
                if not any(items <= idea.changes.items() for items in needless) and at_least(idea) >= wanted
            ]
            yield from fresh
            yield from (
                idea.and_(more)
                for idea in fresh
                for more in quicker
                if idea.parts and not idea.changes.keys() & more.changes.keys()
            )
            kept += fresh
            if len(kept) >= MOST:
                break
        if kept:
            return


def _fit(plan: Plan, work: Workload) -> int:
    """NOT_AT_ALL, PERHAPS or SAFELY: one sequence at once, on the device and in host RAM."""
    if work.quantized and (work.strategy not in ALONE or work.offload != "none"):
        return NOT_AT_ALL
    if _host_bytes(plan, work) > (plan.memory.host_ram_capacity_bytes or inf):
        return NOT_AT_ALL
    verdict = _smallest(plan, work).verdict(plan.share_bytes)
    return {"fits": SAFELY, "tight": PERHAPS}.get(verdict or "", NOT_AT_ALL)


def _host_bytes(plan: Plan, work: Workload) -> int:
    """Host RAM with what `work` keeps there; 0 where it keeps nothing."""
    assert plan.work is not None
    own, now = states_of(work).host, states_of(plan.work).host
    return plan.memory.host_ram_bytes + (own - now) * plan.devices.processes if own else 0


def _smallest(plan: Plan, work: Workload) -> MemoryEstimate:
    """Of one sequence at once: a quick look before the whole run is planned again."""
    smallest = work.with_micro_batch(1, min(2, work.accumulation * work.micro_batch))
    smallest = replace(smallest, eval_micro_batch=min(1, work.eval_micro_batch))
    if not plan.chosen_by_hand(CHECKPOINTING) and has_checkpointing(plan.model_type):
        smallest = replace(smallest, checkpointing=True)
    return estimate_memory(smallest, plan.evidence)


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
    states = _of_the_states(plan, work)
    return [*kinds, states] if states else kinds


def _of_the_states(plan: Plan, work: Workload) -> list[Idea]:
    """Smaller states of the optimizer, and engines that share states out among cards or keep them in host RAM."""
    if work.device != "cuda" or work.quantized:
        return []
    ideas = [*_of_the_optimizer(plan, work), *_sharded(plan, work)]
    if work.offload == "all":
        return ideas
    # A sharding strategy would take every card, and the batch with them.
    spare = len(plan.machine.visible_gpus) > plan.devices.processes
    here = {PROCESSES: plan.devices.processes} if spare else {}
    if work.offload == "none" and not work.lora:
        changes = {STRATEGY: "zero2", OFFLOAD: "optimizer", OPTIMIZER: "adamw_torch", **here}
        ideas.append(Idea(tr("optimizer offloaded to RAM (ZeRO-2)"), changes))
    changes = {STRATEGY: "zero3", OFFLOAD: "all", OPTIMIZER: "adamw_torch", **here}
    return [*ideas, Idea(tr("weights and optimizer offloaded to RAM (ZeRO-3)"), changes)]


def _of_the_optimizer(plan: Plan, work: Workload) -> Iterator[Idea]:
    if work.deepspeed or not work.optimizer.startswith("adamw"):
        return
    if work.optimizer == "adamw_torch":
        yield Idea(tr("fused AdamW"), {OPTIMIZER: "adamw_torch_fused"})
    has_8bit = plan.machine.may_have("bitsandbytes")
    if has_8bit and not work.lora and work.strategy != "fsdp" and not work.optimizer.endswith("8bit"):
        yield Idea(tr("8-bit AdamW"), {OPTIMIZER: "adamw_bnb_8bit"})
        yield Idea(tr("paged 8-bit AdamW"), {OPTIMIZER: "paged_adamw_8bit"})


def _sharded(plan: Plan, work: Workload) -> Iterator[Idea]:
    """On the cards that the run has, and on those that it leaves idle."""
    chosen = plan.config.engine.gpus
    cards = max(plan.devices.processes, len(plan.machine.visible_gpus) if chosen is None else len(chosen))
    if cards * plan.devices.nodes == 1 or work.offload != "none":
        return
    more = {PROCESSES: cards} if cards > plan.devices.processes else {}
    own = {} if work.optimizer.startswith("adamw_torch") else {OPTIMIZER: "adamw_torch_fused"}
    for strategy, name in (("zero2", "ZeRO-2"), ("fsdp", "FSDP"), ("zero3", "ZeRO-3")):
        known = (work.strategy, strategy) in (("zero3", "zero2"), ("fsdp", "zero2"))
        if strategy != work.strategy and not known and not (strategy == "fsdp" and work.task == "seq2seq"):
            words = tr("sharded across {cards} GPUs ({name})", cards=cards * plan.devices.nodes, name=name)
            yield Idea(words, {STRATEGY: strategy, **more, **own})


def _otherwise(plan: Plan, work: Workload, same: list[Fix]) -> Iterator[Fix]:
    """What changes what is learnt, each with the settings that it needs: adapters, length, numbers, optimizer.

    None whose settings would do alone.
    """
    alone = [_means(fix) for fix in same]
    for idea in (*_adapters(plan, work), NOTHING, *_other_numbers(plan, work)):
        ways: Iterable[Idea] = _shortened(plan, work)
        if idea.parts:
            ways = map(idea.and_, islice(_ways(plan, _changed_work(plan, work, idea.changes)), 2))
        ways = (way for way in ways if not any(means <= way.changes.items() for means in alone))
        for fix in islice(_planned(plan, work, ways, otherwise=True), 1):
            if not same or fix.after.batch.sequence_length >= plan.batch.sequence_length * LEAST_SHARE:
                yield fix


def _other_numbers(plan: Plan, work: Workload) -> Iterator[Idea]:
    if work.device != "cuda" or work.lora or work.deepspeed:
        return
    half, _ = choose_precision(as_seen(plan.machine, plan.devices))
    if half == "bf16" and work.precision != "bf16-true":
        yield Idea(tr("weights in bf16 too (small updates are lost)"), {PRECISION: "bf16-true"})
    if work.optimizer != "adafactor":
        yield Idea(tr("Adafactor, which learns differently"), {OPTIMIZER: "adafactor"})


def _adapters(plan: Plan, work: Workload) -> Iterator[Idea]:
    """Adapters of a model whose weights are there; random ones would stay random."""
    if work.lora or plan.config.model.init != "pretrained":
        return
    words = tr("LoRA with rank {rank} instead of full fine-tuning", rank=plan.config.peft.rank)
    changes: dict[str, Any] = {"peft.method": "lora"}
    if work.offload != "none" or work.deepspeed:
        changes |= {OFFLOAD: "none", STRATEGY: None}
    yield Idea(words, changes)


def _shortened(plan: Plan, work: Workload) -> Iterator[Idea]:
    """Shorter sequences alone; where they would be far shorter or nothing, with the settings that leave most of them."""
    kinds = _kinds(plan, work)
    for ideas in (
        [NOTHING],
        [idea for kind in kinds for idea in kind],
        (reduce(Idea.and_, parts, NOTHING) for parts in product(*kinds)),
    ):
        cut = [(_longest(plan, _changed_work(plan, work, idea.changes)), idea) for idea in ideas]
        longest, idea = max(cut, key=lambda one: one[0], default=(0, NOTHING))
        if longest:
            yield idea.and_(_cut_to(plan, work, longest))
        if longest >= LEAST_SHARE * plan.batch.sequence_length:
            return


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


def _smaller_models(plan: Plan, work: Workload) -> list[Fix]:
    """Of the catalogue, for the same task: those of the same family first, the largest first."""
    found, kind = list[Fix](), work.architecture.model_type
    models = [(spec, size) for spec, size in smaller_than(work) if spec.task == work.task]
    for spec, _ in sorted(
        models, key=lambda model: (model[0].architecture.get("model_type") != kind, -model[1].parameters)
    ):
        then = changed(plan, {"model.name": spec.name}, spec)
        if then is None or then.work is None:
            continue
        named = Idea(tr("the smaller {name}", name=spec.name), {"model.name": spec.name}, 0)
        ways = [NOTHING] if then.memory.verdict == "fits" else islice(_ways(then, then.work), 1)
        found += _planned(plan, then.work, (named.and_(way) for way in ways), spec, otherwise=True)
        if len(found) == MODELS:
            break
    return found


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


def _distinct(found: list[Fix]) -> list[Fix]:
    """A combination is dropped where a part of it alone is as quick, or fits at the same micro-batch and is nearly so."""

    def covers(part: Fix, fix: Fix) -> bool:
        as_many = part.after.batch.micro_batch >= fix.after.batch.micro_batch
        if not (_means(part) < _means(fix) and (as_many or _means(part))):
            return False
        surer = part.after.memory.verdict == "fits" or fix.after.memory.verdict == "tight"
        return surer and part.time <= fix.time * (MORE if as_many else 1.0)

    return [fix for fix in found if not any(covers(part, fix) for part in found)]


def _means(fix: Fix) -> set[tuple[str, Any]]:
    """What it changes beside the sizes of batches."""
    sizes = ("batch.micro", "batch.gradient", "batch.eval")
    return {(key, value) for key, value in fix.changes.items() if not key.startswith(sizes)}


def _settings(fix: Fix) -> int:
    """How many settings that is: an engine, its offload and its optimizer are one."""
    engine = (STRATEGY, OFFLOAD, OPTIMIZER, PROCESSES)
    return len({"engine" if key in engine else key for key, _ in _means(fix)})


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
    targets = (batch.target_samples, batch.target_tokens, batch.target_real_tokens)
    keeps = any(targets) or batch.accumulation > 1
    ceiling = min(GPU_CEILING, samples) if keeps else GPU_CEILING
    several = work.with_micro_batch(work.micro_batch, max(2, work.accumulation) if keeps else work.accumulation)
    largest = largest_micro_batch(several, share, ceiling, plan.evidence)
    micro = next((size for size in range(largest, 0, -1) if samples % size == 0), 1) if keeps else largest
    if micro < WORTH * batch.micro_batch:
        return None
    changes = {MICRO: micro}
    if keeps:
        changes[ACCUMULATION] = samples // micro
    return try_fix(plan, "", changes, work.with_micro_batch(micro), any_batch=not keeps)


def _without_checkpointing(plan: Plan, work: Workload) -> Fix | None:
    if not work.checkpointing or not plan.chosen_by_hand(CHECKPOINTING):
        return None
    fix = try_fix(
        plan, tr("without gradient checkpointing"), {CHECKPOINTING: False}, replace(work, checkpointing=False)
    )
    return fix if fix is not None and fix.time < QUICKER else None
