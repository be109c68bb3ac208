"""A plan made again with changes: what a remedy promises, and whether it keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import ValidationError
from trainwiz.core.batch import accumulation_for
from trainwiz.core.catalog.model_config import ModelSpec
from trainwiz.core.catalog.models import load_models
from trainwiz.core.errors import Remedy
from trainwiz.core.estimate.architecture import Architecture
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.memory import estimate_evaluation, estimate_memory, largest_micro_batch
from trainwiz.core.estimate.time import step_time
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.refusals import refusals
from trainwiz.core.plan.resolve import resolve
from trainwiz.core.plan.result import BatchPlan, Fix, Plan
from trainwiz.core.plan.sizes import ACCUMULATION, CHECKPOINTING, EVALUATED, MICRO
from trainwiz.core.plan.words import gib, listed

LENGTH, TARGET = "batch.sequence_length", "batch.target_length"
SAME_BATCH = 0.02
"""Of the effective batch; further off it is another training."""
TO_INSTALL = {"deepspeed_missing": "DeepSpeed", "bitsandbytes_missing": "bitsandbytes"}
"""Errors that do not speak against a fix: what is missing can be had."""


def remedy_of(fix: Fix, plan: Plan) -> Remedy:
    """ "checkpointing: 5.4 GiB, about 33 % more time"."""
    values = {"fix": fix.words, "size": gib(fix.after.memory.judged_bytes)}
    more = round((fix.time - 1) * 100)
    words = mark("{fix}: {size}, the same time")
    if fix.time_factor is None:
        words = mark("{fix}: {size}")
    elif abs(more) > 1:
        longer, shorter = mark("{fix}: {size}, about {more}% more time"), mark("{fix}: {size}, about {less}% less time")
        words = longer if more > 0 else shorter
    elif fix.after.batch.micro_batch < plan.batch.micro_batch:
        words = mark("{fix}: {size}, the same work in smaller pieces")
    return plan.remedy(tr(words, **values, more=more, less=-more), fix.changes)


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


def smaller_than(work: Workload) -> Iterator[tuple[ModelSpec, Architecture]]:
    """Models of the catalogue with fewer weights, but those that are there for tests."""
    for spec, architecture in _of_the_catalogue():
        if architecture.parameters < work.architecture.parameters:
            yield spec, architecture


@cache
def _of_the_catalogue() -> tuple[tuple[ModelSpec, Architecture], ...]:
    """Read once: at each keystroke it would be half of the plan's time."""
    read = ((spec, read_architecture(spec.architecture)[0]) for spec in load_models().values())
    return tuple((spec, found) for spec, found in read if found is not None and not spec.name.endswith("tiny"))


def try_fix(
    plan: Plan,
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
    changes = {**changes, **_sizes(plan, work, changes)}
    after = changed(plan, changes, model)
    if after is not None and not any_batch and not _same_batch(plan, after):
        changes |= _pinned(plan, after.batch, min(plan.batch.micro_batch, after.batch.micro_batch))
        after = changed(plan, changes, model)
    if after is None or after.work is None or after.memory.verdict not in ("fits", "tight"):
        return None
    if not (any_batch or _same_batch(plan, after)) or not _host_holds(plan, after):
        return None
    broken = _errors(after)
    broken = broken and broken - _errors(plan)
    if broken - TO_INSTALL.keys():
        return None
    described = _described(words, plan, after, changes)
    if broken:
        library = listed(sorted(TO_INSTALL[code] for code in broken))
        described = tr("{fix}, once {library} is installed", fix=described, library=library)
    return Fix(described, changes, after, _time_factor(plan, after), trains_otherwise)


def _sizes(plan: Plan, work: Workload, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes with which `work` fits, of those that were chosen by hand: the solver finds the others."""
    share = plan.share_bytes
    if share is None:
        return {}
    sizes: dict[str, Any] = {}
    by_hand = plan.chosen_by_hand(MICRO) and MICRO not in changes
    if by_hand and work.micro_batch > 1 and estimate_memory(work, plan.evidence).verdict(share) != "fits":
        micro = _smaller(plan, work, share)
        if micro:
            length = int(changes.get(LENGTH, plan.batch.sequence_length))
            sizes = _pinned(plan, replace(plan.batch, sequence_length=length), micro)
            work = work.with_micro_batch(micro, sizes[ACCUMULATION])
    if work.eval_micro_batch > 1 and plan.chosen_by_hand(EVALUATED):
        evaluated = _evaluated(work, plan, share)
        if evaluated and evaluated != work.eval_micro_batch:
            sizes[EVALUATED] = evaluated
    return sizes


def _smaller(plan: Plan, work: Workload, share: int) -> int:
    """The largest micro-batch below that fits, one that keeps the batch exact where such a one is near; 0 for none."""
    # The second micro-batch meets the gradients of the first: counted even where one alone was asked for.
    several = work.with_micro_batch(work.micro_batch, max(2, work.accumulation))
    micro = largest_micro_batch(several, share, work.micro_batch - 1, plan.evidence)
    samples = work.micro_batch * work.accumulation
    return next((size for size in range(micro, micro // 2, -1) if samples % size == 0), micro)


def _evaluated(work: Workload, plan: Plan, share: int) -> int:
    """As many as now where they fit or need no more than training, else half of them, a quarter, ...; 0 for none."""
    size, training = work.eval_micro_batch, estimate_memory(work, plan.evidence)
    while size:
        estimate = estimate_evaluation(replace(work, eval_micro_batch=size), plan.evidence)
        if estimate is None or estimate.verdict(share) == "fits" or estimate.needed_bytes <= training.needed_bytes:
            return size
        size //= 2
    return 0


def _same_batch(plan: Plan, after: Plan) -> bool:
    now, then = plan.batch, after.batch
    sizes = now.effective_samples, then.effective_samples
    if now.target_real_tokens and now.real_tokens and then.real_tokens:
        sizes = now.real_tokens, then.real_tokens
    elif now.target_tokens:
        sizes = now.effective_tokens, then.effective_tokens
    return abs(sizes[1] - sizes[0]) <= SAME_BATCH * sizes[0]


def _pinned(plan: Plan, then: BatchPlan, micro: int) -> dict[str, Any]:
    """The micro-batch and the accumulation with which a step sees what it saw before."""
    now = plan.batch
    samples = float(now.effective_samples)
    if now.target_real_tokens and now.real_tokens and then.real_tokens:
        samples *= (now.real_tokens / now.effective_samples) / (then.real_tokens / then.effective_samples)
    elif now.target_tokens:
        samples *= now.sequence_length / then.sequence_length
    return {MICRO: micro, ACCUMULATION: accumulation_for(samples, micro, then.world_size)}


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
