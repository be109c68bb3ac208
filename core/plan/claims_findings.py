"""What a guide promises and advises, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trainwiz.core.batch import accumulation_for, largest_exact
from trainwiz.core.errors import Finding, after
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.estimate.time import IMPLAUSIBLE_SHARE, share_of_peak, verdict_of
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.draft import Facts
from trainwiz.core.plan.memory_findings import states_text
from trainwiz.core.plan.remedied import changed
from trainwiz.core.plan.words import duration, duration_of, duration_range, gib, listed, part_word, percent, size_of

# A guide's advice against out-of-memory, checked: does it keep the batch, and does it save what it says?

KEPT_SHARE = 0.02
"""Advice that stays this near to the effective batch keeps it."""
NOTABLE_FACTOR = 1.5
"""A promised saving that is off by more than this is wrong."""


def advice_findings(facts: Facts, claims: Mapping[str, Any]) -> list[Finding]:
    findings: list[Finding | None] = []
    for position, advice in enumerate(claims.get("remedies") or ()):
        where = f"claims.remedies.{position}"
        if advice.get("memory_factor") is not None:
            findings.append(_saving(facts, advice, where))
        elif advice.get("against") == "host":
            findings.append(_host(facts, advice, where))
        elif advice.get("effective_samples") is not None:
            findings.append(_other_batch(facts, advice, where))
        else:
            findings.append(_batch(facts, advice, where))
    return [finding for finding in findings if finding is not None]


def _batch(facts: Facts, advice: Mapping[str, Any], where: str) -> Finding | None:
    """A smaller micro-batch, with an accumulation that must make up for it."""
    micro, accumulation = advice.get("micro_batch"), advice.get("accumulation")
    if micro is None or accumulation is None:
        return None
    length = advice.get("sequence_length") or facts.batch.sequence_length
    samples = micro * accumulation * facts.batch.world_size
    tokens, target = samples * length, facts.batch.target_tokens or facts.batch.effective_tokens
    if abs(tokens - target) <= KEPT_SHARE * target:
        return None
    kept = accumulation_for(target / length, micro, facts.batch.world_size)
    if not _keeps(micro, kept, facts, length, target):
        # Another accumulation does not make up for it: a smaller micro-batch may.
        exact = largest_exact(target / length, facts.batch.world_size, micro)
        if exact is not None and 2 * exact.micro_batch >= micro:
            micro, kept = exact.micro_batch, exact.accumulation
    changes: dict[str, Any] = {"batch.micro_batch_size": micro, "batch.gradient_accumulation_steps": kept}
    words = tr("micro-batch {micro} × accumulation {kept}", micro=micro, kept=kept)
    if length != facts.batch.sequence_length:
        changes["batch.sequence_length"] = length
    if length != facts.batch.sequence_length or facts.batch.target_tokens:
        words += f" × {length}"
    peak = ""
    then = changed(facts, changes) if facts.work is not None else None
    if then is not None:
        peak = tr(", ") + gib(then.memory.device_used_bytes)
    made = tr(
        "{tokens} tokens a step, {share} of {target}",
        tokens=f"{tokens:,}",
        share=percent(tokens / target, 1),
        target=f"{target:,}",
    )
    if not facts.batch.target_tokens and length == facts.batch.sequence_length:
        wanted = target // length
        made = tr(
            "{samples} sequences a step, {share} of {wanted}",
            samples=f"{samples:,}",
            share=percent(samples / wanted, 1),
            wanted=f"{wanted:,}",
        )
    message = tr(
        "The guide's advice {text} makes {made}: it changes the training, not only the memory.",
        text=repr(tr(str(advice.get("text", "")))),
        made=made,
    )
    if _keeps(micro, kept, facts, length, target):
        text = tr("{batch} keeps it{peak}", batch=words, peak=peak)
    else:
        text = tr("{batch} comes nearest to it{peak}", batch=words, peak=peak)
    remedy = facts.remedy(text, changes)
    return Finding("claim_batch", "warning", where, message, (remedy,))


def _keeps(micro: int, accumulation: int, facts: Facts, length: int, target: int) -> bool:
    """Whether the batch stays within KEPT_SHARE of `target` tokens."""
    return abs(micro * accumulation * facts.batch.world_size * length - target) <= KEPT_SHARE * target


def _saving(facts: Facts, advice: Mapping[str, Any], where: str) -> Finding | None:
    """Fewer micro-batches are said to save memory: gradients are summed in place, so they do not."""
    before, after = advice.get("from_accumulation"), advice.get("accumulation")
    if facts.work is None or before is None or after is None:
        return None
    used = [
        estimate_memory(replace(facts.work, accumulation=count), facts.evidence).device_used_bytes
        for count in (before, after)
    ]
    factor = used[0] / used[1]
    if factor * NOTABLE_FACTOR >= float(advice["memory_factor"]):
        return None
    message = tr(
        "The guide's advice {text} saves nothing on the GPU: {used} with accumulation {before} and "
        "{used_after} with {after}, because gradients are summed in place. It makes the batch {share} "
        "of what it was.",
        text=repr(tr(str(advice.get("text", "")))),
        used=gib(used[0]),
        before=before,
        used_after=gib(used[1]),
        after=after,
        share=percent(after / before),
    )
    smaller = max(1, facts.batch.micro_batch // 2)
    kept = accumulation_for(facts.batch.effective_samples, smaller, facts.batch.world_size)
    changes = {"batch.micro_batch_size": smaller, "batch.gradient_accumulation_steps": kept}
    then = changed(facts, changes)
    if then is None:
        return Finding("claim_memory", "warning", where, message)
    peak = gib(then.memory.device_used_bytes)
    remedy = facts.remedy(
        tr(
            "a smaller micro-batch does: {smaller} × accumulation {kept}, {peak}", smaller=smaller, kept=kept, peak=peak
        ),
        changes,
    )
    return Finding("claim_memory", "warning", where, message, (remedy,))


def _host(facts: Facts, advice: Mapping[str, Any], where: str) -> Finding:
    """Against a full host RAM a smaller batch on the GPU does nothing."""
    parts = {name: size for name, size in facts.memory.host_ram_parts.items() if size > 2**28}
    largest = sorted(parts.items(), key=lambda part: -part[1])
    parts_words = listed(f"{part_word(name)} {gib(size)}" for name, size in largest)
    message = tr(
        "The guide's advice {text} is for another memory: host RAM ({host_ram} here: {parts}) "
        "follows processes, loader workers, pinned batches and rows, not the micro-batch.",
        text=repr(tr(str(advice.get("text", "")))),
        host_ram=gib(facts.memory.host_ram_bytes),
        parts=parts_words,
    )
    data = facts.config.data
    remedies = []
    if data.workers:
        remedies.append(facts.remedy(tr("no loader workers"), {"data.workers": 0}))
    if not data.streaming:
        remedies.append(facts.remedy(tr("stream the rows"), {"data.streaming": True}))
    return Finding("claim_host_ram", "warning", where, message, tuple(remedies))


def _other_batch(facts: Facts, advice: Mapping[str, Any], where: str) -> Finding | None:
    """Two effective batches that the guide calls alike."""
    said, planned = int(advice["effective_samples"]), facts.batch.effective_samples
    if abs(said - planned) <= KEPT_SHARE * planned:
        return None
    message = tr(
        "The guide's {text} is not so: {said} sequences a step are {difference} against {planned}, "
        "another batch with another number of steps.",
        text=repr(tr(str(advice.get("text", "")))),
        said=f"{said:,}",
        difference=percent(said / planned - 1, signed=True),
        planned=f"{planned:,}",
    )
    return Finding("claim_batch", "warning", where, message)


# What a guide promises, checked: pace, total time, peak memory and how it is started. Its advice is in advice_findings.

LONG_S = 365.25 * 86400
VERDICTS = {
    "impossible": mark("impossible"),
    "implausible": mark("implausible"),
    "plausible": mark("plausible"),
    "idle": mark("idle"),
}


def _span(low: float, high: float) -> str:
    """ "800 to 900", or one number where both are the same."""
    if low == high:
        return f"{low:,.0f}"
    return tr("{first} to {second}", first=f"{low:,.0f}", second=f"{high:,.0f}")


def claim_findings(facts: Facts) -> list[Finding]:
    if facts.profile is None or not facts.profile.claims or facts.config.mode.kind != "train":
        return []
    claims = facts.profile.claims
    return [
        *_pace(facts, claims),
        *_total(facts, claims),
        *_peak(facts, claims),
        *_launch(facts, claims),
        *advice_findings(facts, claims),
    ]


def _pace(facts: Facts, claims: Mapping[str, Any]) -> list[Finding]:
    """Tokens a second times tokens a step times steps: the guide's own numbers, multiplied out."""
    pace = claims.get("tokens_per_s")
    steps, tokens = facts.time.steps, facts.batch.effective_tokens
    if not pace or steps is None:
        return []
    slow, fast = (float(pace[0]), float(pace[-1])) if isinstance(pace, list | tuple) else (float(pace), float(pace))
    step = (tokens / fast, tokens / slow)
    span = duration_range(step[0] * steps, step[1] * steps)
    said = _span(slow, fast)
    share = ""
    if facts.work is not None and facts.rate is not None:
        part = share_of_peak(facts.work, facts.rate, fast)
        share = tr(
            "; it is {share} of the card's peak ({verdict})",
            share=percent(part),
            verdict=tr(VERDICTS[verdict_of(part)]),
        )
    message = tr(
        "The guide's {said} tokens/s mean {step} s for a step of {tokens} tokens, and {span} for its {steps} "
        "steps{share}.",
        said=said,
        step=tr("{first} to {second}", first=f"{step[0]:,.0f}", second=f"{step[1]:,.0f}"),
        tokens=f"{tokens:,}",
        span=span,
        steps=f"{steps:,}",
        share=share,
    )
    if step[1] * steps < LONG_S and not share:
        return []
    return [Finding("claim_time", "warning", "claims.tokens_per_s", message)]


def _total(facts: Facts, claims: Mapping[str, Any]) -> list[Finding]:
    """What the promised time asks of the card, in sequences a second and as a share of its peak."""
    promised = duration_of(str(claims["total_time"])) if claims.get("total_time") else None
    steps, low, high = facts.time.steps, facts.time.total_low_s, facts.time.total_high_s
    work, rate = facts.work, facts.rate
    if promised is None or steps is None or low is None or high is None or work is None or rate is None:
        return []
    if promised[0] <= high and low <= promised[1]:
        return []
    samples = facts.batch.effective_samples * steps
    pace = samples / promised[1], samples / promised[0]
    share = share_of_peak(work, rate, pace[0] * work.length)
    message = tr(
        "The guide's {total_time} for {steps} steps mean {slowest} to {fastest} sequences a second; at "
        "{length} tokens each that is at least {share} of {device}'s peak ({verdict}). The plan says "
        "{planned}{spent}.",
        total_time=claims["total_time"],
        steps=f"{steps:,}",
        slowest=f"{pace[0]:,.0f}",
        fastest=f"{pace[1]:,.0f}",
        length=f"{work.length:,}",
        share=percent(share),
        device=tr(facts.devices.label),
        verdict=tr(VERDICTS[verdict_of(share)]),
        planned=duration_range(low, high),
        spent=_spent(facts),
    )
    if share > IMPLAUSIBLE_SHARE:
        mean = _mean_length(facts, pace[0])
        if mean:
            message += after(
                tr("It would take rows that average under {mean} tokens, and no padding.", mean=f"{mean:,}")
            )
    return [Finding("claim_time", "warning", "claims.total_time", message)]


def _spent(facts: Facts) -> str:
    """How much of it is not training."""
    beside = (facts.time.evaluation_s or 0.0) + (facts.time.generation_s or 0.0)
    return (
        tr(", {beside} of it evaluation and generation", beside=duration(beside))
        if beside > 0.1 * (facts.time.total_s or 1e30)
        else ""
    )


def _mean_length(facts: Facts, samples_per_s: float) -> int | None:
    """The longest mean length at which this pace would still be within what cards reach."""
    work, rate = facts.work, facts.rate
    if work is None or rate is None:
        return None

    def reachable(length: int) -> bool:
        target = max(1, work.target_length * length // work.length)
        shorter = replace(work, length=length, target_length=target)
        return share_of_peak(shorter, rate, samples_per_s * length) <= IMPLAUSIBLE_SHARE

    return _largest(work.length, reachable)


def _largest(most: int, holds: Callable[[int], bool]) -> int | None:
    """The largest whole number from 1 to `most` that `holds`, which ends at some number; None where it never begins."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low or None


def _peak(facts: Facts, claims: Mapping[str, Any]) -> list[Finding]:
    claimed = size_of(str(claims["peak_memory"])) if claims.get("peak_memory") else None
    if claimed is None or facts.estimate.peak is None or facts.estimate.needed_bytes <= claimed[1]:
        return []
    message = tr(
        "The guide's {peak_memory} do not hold: the peak is between {low} and {high} ({peak_moment}, "
        "{allocated} allocated); {states}, before any activation{targets}.",
        peak_memory=claims["peak_memory"],
        low=gib(facts.memory.low_bytes),
        high=gib(facts.memory.high_bytes),
        peak_moment=facts.memory.peak_moment,
        allocated=gib(facts.estimate.allocated_bytes),
        states=states_text(facts),
        targets=_shorter_targets(facts, claimed[1]),
    )
    return [Finding("claim_memory", "warning", "claims.peak_memory", message)]


def _launch(facts: Facts, claims: Mapping[str, Any]) -> list[Finding]:
    """One process that sees several GPUs: the Trainer wraps the model in nn.DataParallel, and each GPU gets a micro-batch
    (transformers' TrainingArguments: train_batch_size is per_device_train_batch_size x n_gpu)."""
    launch, batch = claims.get("launch"), facts.batch
    if not launch or batch.world_size == 1:
        return []
    samples = batch.micro_batch * batch.world_size * int(launch["accumulation"])
    other = "" if samples == batch.effective_samples else tr(", not {samples}", samples=f"{batch.effective_samples:,}")
    message = tr(
        "The guide's {text} is one process, not DDP: the Trainer then wraps the model in "
        "nn.DataParallel, and a step of {micro_batch} on each of {world_size} GPUs with accumulation "
        "{accumulation} has {samples} sequences{other}. This plan starts one process for each GPU.",
        text=repr(launch["text"]),
        micro_batch=batch.micro_batch,
        world_size=batch.world_size,
        accumulation=launch["accumulation"],
        samples=f"{samples:,}",
        other=other,
    )
    return [Finding("claim_launch", "warning", "claims.launch", message)]


def _shorter_targets(facts: Facts, claimed: int) -> str:
    """For an encoder-decoder: the targets with which the claim would hold, since they make the logits."""
    work = facts.work
    if work is None or work.architecture.kind != "encoder-decoder":
        return ""
    logits = facts.memory.breakdown.get("logits", 0)
    words = (
        tr(
            ", and {logits} are logits of {length}-token targets",
            logits=gib(logits),
            length=f"{work.target_length:,}",
        )
        if logits
        else ""
    )

    def holds(target: int) -> bool:
        return estimate_memory(replace(work, target_length=target), facts.evidence).device_used_bytes <= claimed

    longest = _largest(work.target_length, holds)
    if not longest:
        return words
    return tr("{words}; it holds with targets of up to {longest} tokens", words=words, longest=longest)
