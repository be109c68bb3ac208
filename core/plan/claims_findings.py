"""What a guide promises and advises, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from trainwiz.core.batch import accumulation_for, solve_batch
from trainwiz.core.errors import Finding
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.estimate.time import share_of_peak, verdict_of
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.size_findings import YEAR_S, states_text
from trainwiz.core.plan.sizes import ACCUMULATION, LENGTH, MICRO
from trainwiz.core.plan.words import counted, duration_of, duration_range, gib, percent, size_of

KEPT_SHARE = 0.02
"""Advice that stays this near to the effective batch keeps it."""
NOTABLE_FACTOR = 1.5
"""A promised saving that is off by more than this is wrong."""
VERDICTS = {
    "impossible": mark("impossible"),
    "implausible": mark("implausible"),
    "plausible": mark("plausible"),
    "idle": mark("idle"),
}


def claim_findings(plan: Plan) -> Iterator[Finding]:
    claims = plan.based_on.claims if plan.based_on is not None else {}
    if not claims or plan.config.mode.kind != "train":
        return
    for promise in (_pace, _total, _peak, _launch):
        yield from promise(plan, claims)
    for position, advice in enumerate(claims.get("remedies") or ()):
        judge: Callable[[Plan, Mapping[str, Any]], Iterator[Finding]] = _batch
        if advice.get("memory_factor") is not None:
            judge = _saving
        elif advice.get("against") == "host":
            judge = _host
        text = repr(tr(str(advice.get("text", ""))))
        yield from judge(plan, {**advice, "text": text, "where": f"claims.remedies.{position}"})


# A guide's advice against out-of-memory: does it keep the batch, and does it save what it says?


def _batch(plan: Plan, advice: Mapping[str, Any]) -> Iterator[Finding]:
    """A smaller micro-batch, with an accumulation that must make up for it; or another batch that is said to be alike."""
    micro, made, batch = advice.get("micro_batch"), advice.get("effective_samples"), plan.batch
    length = advice.get("sequence_length") or batch.sequence_length
    target = (batch.target_tokens or batch.effective_tokens) / length
    if micro is not None and advice.get("accumulation") is not None:
        made = micro * advice["accumulation"] * batch.world_size
    if made is None or abs(made - target) <= KEPT_SHARE * target:
        return
    words, size = mark("{made} sequences per step, {share} of {target}"), 1
    if length != batch.sequence_length or batch.target_tokens:
        words, size = mark("{made} tokens per step, {share} of {target}"), length
    result = tr(words, share=percent(made / target, 1), **counted(made=made * size, target=target * size))
    message = tr(
        "The guide's advice {text} results in {result}: it changes the training, not only the memory.",
        text=advice["text"],
        result=result,
    )
    remedies = []
    if micro is not None:
        kept = solve_batch(target_samples=target, world_size=batch.world_size, largest_micro_batch=micro).chosen
        numbers = {"micro": kept.micro_batch, "accumulation": kept.accumulation}
        changes = {MICRO: kept.micro_batch, ACCUMULATION: kept.accumulation}
        if length != batch.sequence_length:
            changes[LENGTH] = length
        words = tr("micro-batch {micro} × accumulation {accumulation} comes closest to the batch size", **numbers)
        remedies.append((words, changes))
    yield plan.warning("claim_batch", advice["where"], message, *remedies)


def _saving(plan: Plan, advice: Mapping[str, Any]) -> Iterator[Finding]:
    """Fewer micro-batches are said to save memory: gradients are summed in place, so they do not."""
    before, after, work, batch = advice.get("from_accumulation"), advice.get("accumulation"), plan.work, plan.batch
    if work is None or before is None or after is None:
        return
    counts = (replace(work, accumulation=count) for count in (before, after))
    used, used_after = (estimate_memory(count, plan.evidence).needed_bytes for count in counts)
    if used / used_after * NOTABLE_FACTOR >= float(advice["memory_factor"]):
        return
    message = tr(
        "The guide's advice {text} saves no GPU memory: {used} with accumulation {before} and {used_after} with "
        "{after}, because gradients are summed in place. It changes the batch to {share} of its size.",
        text=advice["text"],
        used=gib(used),
        before=before,
        used_after=gib(used_after),
        after=after,
        share=percent(after / before),
    )
    smaller = max(1, batch.micro_batch // 2)
    kept = accumulation_for(batch.effective_samples, smaller, batch.world_size)
    words = tr("a smaller micro-batch saves memory: {smaller} × accumulation {kept}", smaller=smaller, kept=kept)
    yield plan.warning("claim_memory", advice["where"], message, (words, {MICRO: smaller, ACCUMULATION: kept}))


def _host(plan: Plan, advice: Mapping[str, Any]) -> Iterator[Finding]:
    """Against a full host RAM a smaller batch on the GPU does nothing."""
    message = tr(
        "The guide's advice {text} is about a different memory: RAM ({host_ram} in this plan) depends on processes, data "
        "loader workers, pinned batches and rows, not on the micro-batch.",
        text=advice["text"],
        host_ram=gib(plan.memory.host_ram_bytes),
    )
    yield plan.warning("claim_host_ram", advice["where"], message)


# What a guide promises: pace, total time, peak memory and how it is started.


def _pace(plan: Plan, claims: Mapping[str, Any]) -> Iterator[Finding]:
    """Tokens a second times tokens a step times steps: the guide's own numbers, multiplied out."""
    pace, steps, tokens = claims.get("tokens_per_s"), plan.steps, plan.batch.effective_tokens
    if not pace or steps is None or tokens / float(pace[0]) * steps < YEAR_S:
        return
    slow, fast = float(pace[0]), float(pace[1])
    message = tr(
        "The guide's {slow} to {fast} tokens/s imply {least} to {most} s per step of {tokens} tokens, and {span} for "
        "its {steps} steps.",
        span=duration_range(tokens / fast * steps, tokens / slow * steps),
        **counted(slow=slow, fast=fast, least=tokens / fast, most=tokens / slow, tokens=tokens, steps=steps),
    )
    yield plan.warning("claim_time", "claims.tokens_per_s", message)


def _total(plan: Plan, claims: Mapping[str, Any]) -> Iterator[Finding]:
    """What the promised time asks of the card, in sequences a second and as a share of its peak."""
    promised = duration_of(str(claims.get("total_time", "")))
    steps, work, rate = plan.steps, plan.work, plan.rate
    low, high = plan.time.total_low_s, plan.time.total_high_s
    if promised is None or steps is None or low is None or high is None or work is None or rate is None:
        return
    if promised[0] <= high and low <= promised[1]:
        return
    samples = plan.batch.effective_samples * steps
    slowest, fastest = samples / promised[1], samples / promised[0]
    share = share_of_peak(work, rate, slowest * work.length)
    message = tr(
        "The guide's {total_time} for {steps} steps implies {slowest} to {fast} sequences per second; at {length} "
        "tokens each, that is at least {share} of the GPU's peak ({verdict}). The plan estimates {planned}.",
        total_time=claims["total_time"],
        **counted(steps=steps, slowest=slowest, fast=fastest, length=work.length),
        share=percent(share),
        verdict=tr(VERDICTS[verdict_of(share)]),
        planned=duration_range(low, high),
    )
    yield plan.warning("claim_time", "claims.total_time", message)


def _peak(plan: Plan, claims: Mapping[str, Any]) -> Iterator[Finding]:
    claimed, memory = size_of(str(claims.get("peak_memory", ""))), plan.memory
    if claimed is None or plan.estimate.peak is None or plan.estimate.needed_bytes <= claimed[1]:
        return
    message = tr(
        "The guide's {peak_memory} is too low: the peak is between {low} and {high} ({peak_moment}); {states}, before "
        "any activations.",
        peak_memory=claims["peak_memory"],
        low=gib(memory.needed_bytes),
        high=gib(memory.needed_high_bytes),
        peak_moment=memory.peak_moment,
        states=states_text(plan),
    )
    yield plan.warning("claim_memory", "claims.peak_memory", message)


def _launch(plan: Plan, claims: Mapping[str, Any]) -> Iterator[Finding]:
    """One process that sees several GPUs: the Trainer wraps the model in nn.DataParallel, and each GPU gets a micro-batch
    (transformers' TrainingArguments: train_batch_size is per_device_train_batch_size x n_gpu)."""
    launch, batch = claims.get("launch"), plan.batch
    if not launch or batch.world_size == 1:
        return
    samples = batch.micro_batch * batch.world_size * int(launch["accumulation"])
    message = tr(
        "The guide's {text} is one process, not DDP: the Trainer then wraps the model in nn.DataParallel, and a step has "
        "{samples} sequences, here {planned}. This plan starts one process per GPU.",
        text=repr(launch["text"]),
        **counted(samples=samples, planned=batch.effective_samples),
    )
    yield plan.warning("claim_launch", "claims.launch", message)
