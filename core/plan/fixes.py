"""What makes a run fit: changes at the same effective batch, each planned again, the cheapest in time first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainwiz.core.catalog.abilities import has_attention, has_checkpointing
from trainwiz.core.estimate.architecture import default_lora_targets
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.language import tr
from trainwiz.core.plan.facts import Facts
from trainwiz.core.plan.remedied import CHECKPOINTING, LENGTH, MICRO, TARGET, Fix, try_fix
from trainwiz.core.plan.words import listed

MOST = 4
"""Of those that leave the training what it is."""
LOSS_CHUNK = 512
LARGE_SHARE = 0.25
"""Logits that are more of the peak than this are worth a loss in slices."""
SHORTEST = 64
"""Tokens: shorter sequences are no advice."""
LEAST_SHARE = 0.25
"""Of the length: what is cut further helps only where nothing else does."""
ATTENTION, OPTIMIZER = "engine.attention", "engine.optimizer"


@dataclass(frozen=True, slots=True)
class Idea:
    """Something to try."""

    words: str
    changes: Mapping[str, Any]
    trains_otherwise: bool = False

    def and_(self, other: Idea) -> Idea:
        words = listed((self.words, other.words))
        otherwise = self.trains_otherwise or other.trains_otherwise
        return Idea(words, {**self.changes, **other.changes}, otherwise)


def find_fixes(facts: Facts) -> tuple[Fix, ...]:
    """Ways that fit safely (at worst tight when none does), the least extra time first.

    Those that change what is learnt come last, and most of them only where there is little else.
    """
    if facts.work is None or facts.share_bytes is None or facts.memory.verdict == "fits":
        return ()
    ideas = list(_ideas(facts, facts.work))
    found = _distinct(_fitting(facts, facts.work, ideas) or _fitting(facts, facts.work, _cut(facts, facts.work, ideas)))
    chosen = [fix for fix in found if fix.after.memory.verdict == "fits"] or found
    chosen.sort(key=lambda fix: (fix.trains_otherwise, fix.time_factor or 1.0, len(fix.changes)))
    same = [fix for fix in chosen if not fix.trains_otherwise][:MOST]
    others = [fix for fix in chosen if fix.trains_otherwise and not (same and _is_far_shorter(fix, facts))]
    return (*same, *others[: max(1, 3 - len(same))])


def _fitting(facts: Facts, work: Workload, ideas: Iterable[Idea]) -> list[Fix]:
    found = []
    for idea in ideas:
        then = _changed_work(facts, work, idea.changes)
        if not _may_fit(facts, then):
            continue
        fix = try_fix(facts, idea.words, idea.changes, then, trains_otherwise=idea.trains_otherwise)
        if fix is not None:
            found.append(fix)
    return found


def _cut(facts: Facts, work: Workload, ideas: list[Idea]) -> Iterator[Idea]:
    """Where nothing alone will do: the ideas, with sequences short enough for them."""
    for idea in ideas:
        if idea.words and LENGTH not in idea.changes:
            yield from (idea.and_(shorter) for shorter in _shorter(facts, _changed_work(facts, work, idea.changes)))


def _is_far_shorter(fix: Fix, facts: Facts) -> bool:
    return fix.after.batch.sequence_length < facts.batch.sequence_length * LEAST_SHARE


def _ideas(facts: Facts, work: Workload) -> Iterator[Idea]:
    """Combinations come after what they are made of."""
    can_check = has_checkpointing(facts.model_type)
    slower = [] if work.checkpointing or not can_check else [Idea(tr("checkpointing"), {CHECKPOINTING: True})]
    alone = [*_of_the_batch(facts), *_of_the_computation(facts, work), *_of_the_states(facts, work)]
    yield from slower
    yield from alone
    for first in alone:
        if first.words:
            yield from (first.and_(second) for second in slower)
    shorter, adapters = _shorter(facts, work), _adapters(facts, work)
    yield from shorter
    yield from adapters
    for first in adapters:
        yield from (first.and_(second) for second in (*slower, *shorter))


def _of_the_batch(facts: Facts) -> Iterator[Idea]:
    """The bare idea is a smaller micro-batch; one that is open is as small as it helps already."""
    if facts.config.origin(MICRO).origin != "solved" and facts.batch.micro_batch > 1:
        yield Idea("", {})


def _of_the_computation(facts: Facts, work: Workload) -> Iterator[Idea]:
    if work.attention == "eager" and has_attention(facts.model_type, "sdpa"):
        yield Idea(tr("sdpa attention"), {ATTENTION: "sdpa"})
    logits = max(
        facts.memory.breakdown.get("logits", 0),
        facts.evaluation.breakdown.get("logits", 0) if facts.evaluation is not None else 0,
    )
    if work.loss_chunk is None and logits > LARGE_SHARE * facts.memory.allocated_bytes:
        yield Idea(
            tr("loss in slices of {tokens} tokens", tokens=f"{LOSS_CHUNK:,}"),
            {"training.loss_chunk": LOSS_CHUNK},
        )


def _of_the_states(facts: Facts, work: Workload) -> Iterator[Idea]:
    if work.device != "cuda":
        return
    machine = facts.machine
    if work.optimizer == "adamw_torch" and not work.deepspeed:
        yield Idea(tr("fused AdamW"), {OPTIMIZER: "adamw_torch_fused"})
    if work.lora:
        return
    has_8bit = machine.hypothetical or machine.libraries.has("bitsandbytes")
    if not work.deepspeed and has_8bit and not work.optimizer.endswith("8bit"):
        yield Idea(tr("8-bit AdamW"), {OPTIMIZER: "adamw_bnb_8bit"})
    if work.offload == "none":
        changes = {"engine.strategy": "zero2", "engine.offload": "optimizer", OPTIMIZER: "adamw_torch"}
        if len(machine.visible_gpus) > facts.devices.processes:
            # A sharding strategy would take every card, and the batch with them.
            yield Idea(tr("optimizer in host RAM (ZeRO-2)"), {**changes, "engine.processes": facts.devices.processes})
        else:
            yield Idea(tr("optimizer in host RAM (ZeRO-2)"), changes)


def _shorter(facts: Facts, work: Workload) -> list[Idea]:
    """The longest sequences that fit at one micro-batch, in steps of 64 tokens."""
    share = facts.share_bytes
    micro = work.micro_batch if facts.config.origin(MICRO).origin != "solved" else 1
    targets = work.architecture.kind == "encoder-decoder"
    ratio = work.target_length / work.length

    def fits(length: int) -> bool:
        cut = replace(work, length=length, target_length=max(1, round(length * ratio)), eval_micro_batch=0)
        # The evidence of one length says nothing of another.
        return share is not None and estimate_memory(cut.with_micro_batch(micro)).safe_bytes <= share

    low, high = 0, (min(work.length, facts.batch.sequence_length) - 1) // SHORTEST + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * SHORTEST) else (low, middle)
    if low == 0:
        return []
    length = low * SHORTEST
    changes: dict[str, Any] = {LENGTH: length}
    if targets:
        changes[TARGET] = max(1, round(length * ratio))
    words = tr(
        "sequences of {length} tokens instead of {length_now}",
        length=f"{length:,}",
        length_now=f"{facts.batch.sequence_length:,}",
    )
    return [Idea(words, changes, trains_otherwise=True)]


def _adapters(facts: Facts, work: Workload) -> list[Idea]:
    """Adapters of a model whose weights are there; random ones would stay random."""
    if work.lora or facts.config.model.init != "pretrained":
        return []
    words = tr("LoRA of rank {rank} instead of all weights", rank=facts.config.peft.rank)
    changes: dict[str, Any] = {"peft.method": "lora"}
    if work.offload != "none" or work.deepspeed:
        changes |= {"engine.offload": "none", "engine.strategy": None}
    return [Idea(words, changes, trains_otherwise=True)]


def _changed_work(facts: Facts, work: Workload, changes: Mapping[str, Any]) -> Workload:
    then = replace(
        work,
        checkpointing=changes.get(CHECKPOINTING, work.checkpointing),
        attention=changes.get(ATTENTION, work.attention),
        optimizer=changes.get(OPTIMIZER, work.optimizer),
        strategy=changes.get("engine.strategy", work.strategy) or "single",
        offload=changes.get("engine.offload", work.offload),
        loss_chunk=changes.get("training.loss_chunk", work.loss_chunk),
        length=min(work.length, changes.get(LENGTH, work.length)),
        target_length=min(work.target_length, changes.get(TARGET, work.target_length)),
    )
    if changes.get("peft.method") != "lora":
        return then
    targets = tuple(facts.config.peft.targets) or default_lora_targets(work.architecture)
    return replace(then, lora_rank=facts.config.peft.rank, lora_targets=targets)


def _may_fit(facts: Facts, work: Workload) -> bool:
    """Whether one sequence at once would fit: a quick look before the whole run is planned again."""
    smallest = work.with_micro_batch(1, min(2, work.accumulation * work.micro_batch))
    if facts.config.origin(CHECKPOINTING).origin == "solved":
        smallest = replace(smallest, checkpointing=True)
    share = facts.share_bytes
    return share is not None and estimate_memory(smallest, facts.evidence).needed_bytes <= share


def _distinct(found: list[Fix]) -> list[Fix]:
    """A combination is dropped where a part of it alone fits at the same micro-batch."""
    kept: list[Fix] = []
    for fix in found:
        micro = fix.after.batch.micro_batch
        covered = any(
            other.after.batch.micro_batch >= micro
            and _means(other) < _means(fix)
            and (other.after.memory.verdict == "fits" or fix.after.memory.verdict == "tight")
            for other in kept
        )
        if not covered:
            kept.append(fix)
    return kept


def _means(fix: Fix) -> set[str]:
    """What it changes beside the sizes of batches."""
    sizes = ("batch.micro", "batch.gradient", "batch.eval")
    return {key for key in fix.changes if not key.startswith(sizes)}
