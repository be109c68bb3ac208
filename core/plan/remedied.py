"""Findings with remedies that were planned again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from trainwiz.core.batch import accumulation_for
from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.estimate.memory import estimate_evaluation, estimate_memory, largest_micro_batch
from trainwiz.core.estimate.time import step_time
from trainwiz.core.estimate.traced import Evidence
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.language import tr
from trainwiz.core.plan.batch_findings import scope_findings
from trainwiz.core.plan.draft import Facts
from trainwiz.core.plan.hardware_findings import hardware_findings
from trainwiz.core.plan.resolve import resolve
from trainwiz.core.plan.result import BatchPlan
from trainwiz.core.plan.tasks import task_findings
from trainwiz.core.plan.words import gib, listed

MICRO, ACCUMULATION = "batch.micro_batch_size", "batch.gradient_accumulation_steps"
LENGTH, TARGET = "batch.sequence_length", "batch.target_length"
EVALUATED, CHECKPOINTING = "batch.eval_micro_batch_size", "engine.checkpointing"
SAME_BATCH = 0.02
"""Of the effective batch; further off it is another training."""
TO_INSTALL = {"deepspeed_missing": "DeepSpeed"}
"""Errors that do not speak against a fix: what is missing can be had."""
JUDGES: tuple[Callable[[Facts], list[Finding]], ...] = (scope_findings, task_findings, hardware_findings)


@dataclass(frozen=True, slots=True)
class Fix:
    """One way to fit, or to use what is free."""

    words: str
    changes: Mapping[str, Any]
    after: Facts
    time_factor: float | None
    """Time of a sequence over that without the change; None where the device's rate is not known."""
    trains_otherwise: bool = False
    """Whether it changes what is learnt: shorter sequences, adapters."""

    def remedy(self, facts: Facts) -> Remedy:
        """ "checkpointing: 5.4 GiB, about 33 % more time"."""
        return facts.remedy(self._text(facts, gib(self.after.memory.device_used_bytes)), self.changes)

    def _text(self, facts: Facts, size: str) -> str:
        if self.time_factor is None:
            return tr("{fix}: {size}", fix=self.words, size=size)
        more = round((self.time_factor - 1) * 100)
        if more > 1:
            return tr("{fix}: {size}, about {more} % more time", fix=self.words, size=size, more=more)
        if more < -1:
            return tr("{fix}: {size}, about {less} % less time", fix=self.words, size=size, less=-more)
        if self.after.batch.micro_batch < facts.batch.micro_batch:
            return tr("{fix}: {size}, the same work in smaller pieces", fix=self.words, size=size)
        return tr("{fix}: {size}, the same time", fix=self.words, size=size)


def changed(facts: Facts, changes: Mapping[str, Any], model: ModelSpec | None = None) -> Facts | None:
    """The same run planned with `changes`, as if the user had made them; None where the config refuses them.

    `model` is the one that they name, where it is another.
    """
    try:
        config = facts.given.config.with_values(dict(changes), "you")
    except (ValidationError, KeyError):
        return None
    return resolve(replace(facts.given, config=config, model=model or facts.given.model))


def try_fix(
    facts: Facts,
    words: str,
    changes: Mapping[str, Any],
    work: Workload,
    *,
    trains_otherwise: bool = False,
    any_batch: bool = False,
    model: ModelSpec | None = None,
) -> Fix | None:
    """The fix with `changes`, and with smaller batches where they are needed and were chosen by hand.

    `work` is the workload as the changes make it, before the sizes of batches follow. None where it does
    not fit on the device, while evaluating, in host RAM or on the disk, where this version cannot train
    it, or (unless `any_batch` will do) where it is another effective batch.
    """
    changes = {**changes, **_sizes(facts, work, changes)}
    after = changed(facts, changes, model)
    if after is not None and not any_batch and not _same_batch(facts, after):
        changes |= _pinned(facts, after.batch, min(facts.batch.micro_batch, after.batch.micro_batch))
        after = changed(facts, changes, model)
    if after is None or after.work is None or after.memory.verdict not in ("fits", "tight"):
        return None
    if not (any_batch or _same_batch(facts, after)) or not _host_holds(facts, after):
        return None
    broken = _errors(after)
    broken = broken and broken - _errors(facts)
    if broken - TO_INSTALL.keys():
        return None
    described = _described(words, facts, after, changes)
    if broken:
        library = listed(sorted(TO_INSTALL[code] for code in broken))
        described = tr("{fix}, once {library} is installed", fix=described, library=library)
    return Fix(described, changes, after, _time_factor(facts, after), trains_otherwise)


def _sizes(facts: Facts, work: Workload, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes with which `work` fits, of those that were chosen by hand: the solver finds the others."""
    share = facts.share_bytes
    if share is None:
        return {}
    sizes: dict[str, Any] = {}
    by_hand = facts.config.origin(MICRO).origin != "solved" and MICRO not in changes
    if by_hand and work.micro_batch > 1 and estimate_memory(work, facts.evidence).verdict(share) != "fits":
        micro = _smaller(facts, work, share)
        if micro:
            sizes = _pinned(facts, replace(facts.batch, sequence_length=_length(facts, changes)), micro)
            work = work.with_micro_batch(micro, sizes[ACCUMULATION])
    if work.eval_micro_batch > 1 and facts.config.origin(EVALUATED).origin != "solved":
        evaluated = _evaluated(work, facts.evidence, share)
        if evaluated and evaluated != work.eval_micro_batch:
            sizes[EVALUATED] = evaluated
    return sizes


def _length(facts: Facts, changes: Mapping[str, Any]) -> int:
    return int(changes.get(LENGTH, facts.batch.sequence_length))


def _smaller(facts: Facts, work: Workload, share: int) -> int:
    """The largest micro-batch below that fits, one that keeps the batch exact where such a one is near; 0 for none."""
    # The second micro-batch meets the gradients of the first: counted even where one alone was asked for.
    several = work.with_micro_batch(work.micro_batch, max(2, work.accumulation))
    micro = largest_micro_batch(several, share, work.micro_batch - 1, facts.evidence)
    samples = work.micro_batch * work.accumulation
    return next((one for one in range(micro, micro // 2, -1) if samples % one == 0), micro)


def _evaluated(work: Workload, evidence: Evidence, share: int) -> int:
    """As many as now where they fit or need no more than training, else half of them, a quarter, ...; 0 for none."""
    size, training = work.eval_micro_batch, estimate_memory(work, evidence)
    while size:
        estimate = estimate_evaluation(replace(work, eval_micro_batch=size), evidence)
        if estimate is None or estimate.verdict(share) == "fits" or estimate.needed_bytes <= training.needed_bytes:
            return size
        size //= 2
    return 0


def _same_batch(facts: Facts, after: Facts) -> bool:
    now, then = facts.batch, after.batch
    if now.target_real_tokens and now.real_tokens and then.real_tokens:
        return abs(then.real_tokens - now.real_tokens) <= SAME_BATCH * now.real_tokens
    if now.target_tokens:
        return abs(then.effective_tokens - now.effective_tokens) <= SAME_BATCH * now.effective_tokens
    return abs(then.effective_samples - now.effective_samples) <= SAME_BATCH * now.effective_samples


def _pinned(facts: Facts, then: BatchPlan, micro: int) -> dict[str, Any]:
    """The micro-batch and the accumulation with which a step sees what it saw before."""
    now = facts.batch
    samples = float(now.effective_samples)
    if now.target_real_tokens and now.real_tokens and then.real_tokens:
        samples *= (now.real_tokens / now.effective_samples) / (then.real_tokens / then.effective_samples)
    elif now.target_tokens:
        samples *= now.sequence_length / then.sequence_length
    return {MICRO: micro, ACCUMULATION: accumulation_for(samples, micro, then.world_size)}


def _host_holds(facts: Facts, after: Facts) -> bool:
    """Whether RAM and disk have room; where they had too little before, that is judged elsewhere."""
    now, then = facts.memory, after.memory
    free, disk = then.host_ram_capacity_bytes, then.disk_capacity_bytes
    in_ram = free is None or then.host_ram_bytes <= max(free, now.host_ram_bytes)
    return in_ram and (disk is None or then.disk_bytes <= max(disk, now.disk_bytes))


def _errors(facts: Facts) -> set[str]:
    return {one.code for judge in JUDGES for one in judge(facts) if one.severity == "error"}


def _described(words: str, facts: Facts, after: Facts, changes: Mapping[str, Any]) -> str:
    """The words, and what changes with it: the micro-batch, checkpointing, the size of evaluation."""
    parts = [words] if words else []
    checkpointing = after.config.engine.checkpointing
    if CHECKPOINTING not in changes and checkpointing != facts.config.engine.checkpointing:
        parts.append(tr("checkpointing") if checkpointing else tr("no checkpointing"))
    if after.batch.micro_batch != facts.batch.micro_batch:
        parts.append(
            tr(
                "micro-batch {micro_batch} × accumulation {accumulation}",
                micro_batch=after.batch.micro_batch,
                accumulation=after.batch.accumulation,
            )
        )
    if EVALUATED in changes:
        parts.append(tr("{sequences} evaluated at once", sequences=changes[EVALUATED]))
    return listed(parts)


def _time_factor(facts: Facts, after: Facts) -> float | None:
    """By formula on both sides: a measured pace of one alone would not compare."""
    if facts.rate is None or after.rate is None or facts.usual is None or after.usual is None:
        return None
    before = step_time(facts.usual, facts.rate).step.likely / facts.batch.effective_samples
    then = step_time(after.usual, after.rate).step.likely / after.batch.effective_samples
    return then / before if before else None
