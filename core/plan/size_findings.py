"""Whether the batch is what was asked for, whether it fits and ends, and what does not hold of a guide's claims about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from trainwiz.core.batch import accumulation_for, solve_batch
from trainwiz.core.errors import Finding, Remedy, Severity, after
from trainwiz.core.estimate.memory import estimate_memory
from trainwiz.core.estimate.time import share_of_peak, verdict_of
from trainwiz.core.language import mark, tr
from trainwiz.core.plan.fixes import changed, remedy_of
from trainwiz.core.plan.refusals import can_compile
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.sizes import ACCUMULATION, EVALUATED, LENGTH, MICRO, TARGET, TARGETS, most_evaluated
from trainwiz.core.plan.words import (
    aside,
    counted,
    duration_range,
    fit_command,
    gib,
    listed,
    part_word,
    percent,
    range_of,
)

# Whether the batch is what was asked for, and whether the model takes its length.

MANY_STEPS = 16
"""Half-precision sums of fewer micro-batches lose little."""
OF_TWO_ORDERS = 0.011
"""How far the gradients of a step with its 64 micro-batches in two orders are apart where they are added in bf16: on a CPU,
one process in bf16-true as DeepSpeed 0.19.8 with ZeRO-1, ZeRO-2 and offload (docs/arrangement.md)."""
NOTABLE_DEVIATION = 0.01
"""Of the batch from its target: what is nearer is not worth a word."""


def _targets(plan: Plan) -> Iterator[Finding]:
    """Targets that contradict each other, and one of real tokens without lengths to count them by."""
    given = {key: plan.config.value(key) for key in TARGETS if plan.config.value(key) is not None}
    _, tokens, real = TARGETS
    if list(given) == [real] and plan.batch.real_tokens is None:
        message = tr(
            "{key} needs the lengths of rows, and the data is not on this machine or cannot be read. Specify data on this "
            "machine, or target tokens including padding (--target-tokens) or sequences (--target-samples).",
            key=real,
        )
        padded = tr("target the same number of tokens, padding included"), {real: None, tokens: given[real]}
        yield plan.finding("unknown_lengths", "error", real, message, padded)
    if len(given) > 1:
        kept, *others = given
        words = listed(f"{key} {value:,}" for key, value in given.items())
        message = tr("The batch has conflicting targets: {words}; keep only one.", words=words)
        yield plan.finding(
            "several_targets", "error", others[0], message, (tr("keep {kept}", kept=kept), dict.fromkeys(others))
        )


def _deviation(plan: Plan) -> Iterator[Finding]:
    batch = plan.batch
    if batch.deviation is None or abs(batch.deviation) <= NOTABLE_DEVIATION:
        return
    wanted = batch.effective_samples / (1 + batch.deviation)
    message = tr(
        "{factors} = {samples} sequences ({tokens} tokens) per step, {off} from {target}.",
        factors=f"{batch.micro_batch} × {batch.accumulation} × {batch.world_size}",
        **counted(samples=batch.effective_samples, tokens=batch.effective_tokens),
        target=listed(f"{key} {plan.get(key):,}" for key in TARGETS if plan.get(key)),
        off=percent(batch.deviation, 1, signed=True),
    )
    nearest = accumulation_for(wanted, batch.micro_batch, batch.world_size)
    sizes = [(batch.micro_batch, nearest)] if nearest != batch.accumulation else []
    sizes += [
        (other.micro_batch, other.accumulation)
        for other in batch.alternatives
        if abs(other.deviation) < abs(batch.deviation) and other.micro_batch != batch.micro_batch
    ]
    words = mark("micro-batch {micro} × accumulation {accumulation}")
    remedies = (
        (tr(words, micro=micro, accumulation=kept), {MICRO: micro, ACCUMULATION: kept}) for micro, kept in sizes
    )
    yield plan.finding("batch_deviation", "warning", ACCUMULATION, message, *remedies)


def _length(plan: Plan) -> Iterator[Finding]:
    """Inputs, targets and generated texts that a table of positions does not reach."""
    most, config = plan.most_positions, plan.config
    keys = [LENGTH]
    if config.task == "seq2seq":
        keys += [TARGET, *(["evaluation.generation_length"] if config.evaluation.generate else [])]
    for key in keys:
        length = config.value(key) or 0
        if most is not None and length > most:
            names = {"key": key, "name": config.model.name, **counted(length=length, most=most)}
            message = tr("{key} is {length}, but {name} has {most} positions.", **names)
            yield plan.finding("too_long", "error", key, message, (tr("{most} tokens", **names), {key: most}))


def _half_precision_sum(plan: Plan) -> Iterator[Finding]:
    """Torch keeps the sum of micro-batches in the format of the weights; DeepSpeed in fp32, as our file asks it to."""
    work, where = plan.work, "engine.precision"
    if work is None or work.formats.weights != 2 or plan.batch.accumulation < MANY_STEPS or work.deepspeed or work.lora:
        return
    message = tr(
        "With weights and gradients in {precision}, {accumulation} micro-batches are accumulated in 16 bits, "
        "which rounds them: two orders of the same 64 differed by {share} in the gradient. Mixed "
        "precision accumulates in fp32, and a larger micro-batch accumulates less often.",
        accumulation=plan.batch.accumulation,
        precision=plan.config.engine.precision,
        share=percent(OF_TWO_ORDERS, 1),
    )
    yield plan.finding(
        "half_precision_accumulation", "warning", where, message, (tr("bf16 with fp32 weights"), {where: "bf16"})
    )


# Memory of the device, of the host, and of the disk.

SEVERITIES: tuple[Severity, Severity] = ("error", "warning")
"""Of what does not fit, and of what may not."""
LARGE_PART = 2**28
"""Bytes of host RAM that are worth a word."""


def _architecture(plan: Plan) -> Iterator[Finding]:
    key, architecture = "model.name", plan.architecture
    if plan.unknown_architecture:
        message = tr("Memory and time are not estimated: {reason}.", reason=plan.unknown_architecture)
        yield plan.finding("unknown_architecture", "warning", key, message)
    elif architecture is not None and architecture.approximate and plan.estimate.tier == "analytic":
        message = tr(
            "The formulas do not cover models of type {model_type}: they read its config by the usual key names, "
            "and the interval is wider.",
            model_type=architecture.model_type,
        )
        yield plan.finding("approximate_architecture", "note", key, message)


def states_text(plan: Plan) -> str:
    """ "weights, gradients and optimizer states alone take 9.7 GiB"."""
    if plan.estimate.peak is None:
        return ""
    states = plan.estimate.peak.states
    total = gib((states.weights + states.gradients + states.buckets + states.optimizer) * plan.devices.sharing)
    if states.host:
        return tr("weights and gradient buckets take {total}, with the optimizer in RAM", total=total)
    return tr("weights, gradients and optimizer states alone take {total}", total=total)


def _device(plan: Plan) -> Iterator[Finding]:
    memory, verdict = plan.memory, plan.estimate.verdict(plan.share_bytes)
    if memory.capacity_bytes is None or verdict not in ("does_not_fit", "tight"):
        return
    largest = sorted(memory.breakdown.items(), key=lambda part: -part[1])[:3]
    figures = {
        "needed": gib(memory.needed_bytes),
        "most": gib(memory.needed_high_bytes),
        "size": gib(memory.capacity_bytes),
        "device": tr(memory.device),
        "parts": listed(f"{part_word(name)} {size / 2**30:.1f}" for name, size in largest),
        "peak_moment": memory.peak_moment,
        "states": states_text(plan),
    }
    fixes = [remedy_of(fix, plan) for fix in plan.fixes]
    if verdict == "tight":
        message = mark(
            "May not fit: needs {needed}, at most {most}; {device} has {size} ({parts}; peak: {peak_moment})."
        )
        yield plan.finding("tight", "warning", "memory", tr(message, **figures), *fixes)
        return
    message = mark(
        "Doesn't fit: needs at least {needed}, {device} has {size} ({parts}; peak: {peak_moment}); {states}."
    )
    none = after(tr("No engine setting makes it fit.")) if all(fix.trains_otherwise for fix in plan.fixes) else ""
    yield plan.finding("does_not_fit", "error", "memory", tr(message, **figures) + none, *fixes)
    # Where the whole choice is too large: the list of all that fits, with the same data.
    if plan.config.mode.kind == "train" and any(key.startswith("data.sources") for key in plan.config.origins):
        message = tr("Other models, methods and lengths may fit, with the same data.")
        remedy = Remedy(tr("see what fits"), fit_command(plan.config, plan.machine), opens="fit")
        yield Finding("others_fit", "note", "memory", message, (remedy,))


def _evaluation(plan: Plan) -> Iterator[Finding]:
    """Held-out rows need no gradients, and their logits come all at once."""
    estimate, work, verdict = plan.evaluation, plan.work, None
    if estimate is not None and plan.share_bytes is not None:
        verdict = estimate.verdict(plan.share_bytes)
    if estimate is None or work is None or verdict not in ("does_not_fit", "tight"):
        return
    if estimate.allocated_bytes <= plan.estimate.allocated_bytes:
        return
    message = tr(
        "Evaluating {size} sequences at a time needs {used}, at most {most}; {capacity} is available ({moment}, logits "
        "{logits}).",
        size=work.eval_micro_batch,
        used=gib(estimate.needed_bytes),
        most=gib(estimate.safe_bytes),
        capacity=gib(plan.memory.capacity_bytes or 0),
        moment=estimate.peak_moment,
        logits=gib(estimate.breakdown.get("logits", 0)),
    )
    smaller = most_evaluated(plan, work, work.eval_micro_batch // 2)
    fewer = tr("evaluate {smaller} at a time: same results", smaller=smaller), {EVALUATED: smaller}
    remedies = [fewer] if smaller else [remedy_of(fix, plan) for fix in plan.fixes]
    tight = verdict == "tight"
    code = "evaluation_tight" if tight else "evaluation_does_not_fit"
    yield plan.finding(code, SEVERITIES[tight], EVALUATED, message, *remedies)


def _headroom(plan: Plan) -> Iterator[Finding]:
    """Memory that stays free, with what would use it."""
    if not plan.headroom or plan.time.verdict == "idle":
        return
    message = tr(
        "{needed} of {share} is needed. The rest would be used by: {fix}.",
        needed=gib(plan.estimate.needed_bytes),
        share=gib(plan.share_bytes or 0),
        fix=plan.headroom[0].words,
    )
    yield plan.finding("room", "note", "memory", message, remedy_of(plan.headroom[0], plan))


def _host(plan: Plan) -> Iterator[Finding]:
    memory, data, free = plan.memory, plan.config.data, plan.memory.host_ram_capacity_bytes
    most = memory.host_ram_high_bytes or memory.host_ram_bytes
    if free is None or plan.devices.device == "cpu" or most <= free:
        return
    held = memory.host_ram_parts
    message = tr(
        "RAM: {host_ram} to {most} needed, {free} free ({parts}). It is used by data loader workers, pinned batches, rows "
        "and offloaded states, not by the micro-batch.",
        host_ram=gib(memory.host_ram_bytes),
        most=gib(most),
        free=gib(free),
        parts=listed(f"{part_word(name)} {gib(size)}" for name, size in held.items() if size > LARGE_PART),
    )
    less: list[tuple[bool, str, str, Mapping[str, Any]]] = [
        (bool(data.workers), "workers", mark("no data loader workers: {saved} less"), {"data.workers": 0}),
        (not data.streaming and held.get("data", 0) > LARGE_PART, "data", mark("stream the rows: {saved} less"),
         {"data.streaming": True}),
    ]  # fmt: skip
    remedies = ((tr(words, saved=gib(held.get(part, 0))), changes) for can, part, words, changes in less if can)
    tight = memory.host_ram_bytes <= free
    yield plan.finding("host_ram_tight" if tight else "host_ram", SEVERITIES[tight], "host_ram", message, *remedies)


def _disk(plan: Plan) -> Iterator[Finding]:
    memory = plan.memory
    if memory.disk_capacity_bytes is None or memory.disk_bytes <= memory.disk_capacity_bytes:
        return
    message = tr(
        "The run writes up to {needed} (checkpoints, final model, logs), but only {free} is free{path}.",
        needed=gib(memory.disk_bytes),
        free=gib(memory.disk_capacity_bytes),
        path=aside(plan.machine.disk_path),
    )
    fewer = [(tr("keep one checkpoint"), {"checkpoint.keep": 1})] if plan.config.checkpoint.keep > 1 else []
    yield plan.finding(
        "disk", "error", "disk", message, *fewer, Remedy(tr("write to another disk: --output-dir FOLDER"))
    )


# Whether the run ends in a lifetime, and whether the card would be busy.

YEAR_S = 365.25 * 86400
MONTH_S = 30 * 86400.0
WANTED_S = 14 * 86400.0
"""What a remedy aims at: two weeks."""
STEPS = "training.max_steps"


def _long(plan: Plan) -> Iterator[Finding]:
    time = plan.time
    if time.total_s is None or time.steps is None or not time.step_s or time.total_s < MONTH_S:
        return
    # To one significant figure: 1,900 -> 1,000, 2,400 -> 2,000.
    fewer, remedies = int(float(f"{WANTED_S / time.step_s:.0e}")), []
    if fewer >= 100:
        changes: dict[str, Any] = {STEPS: fewer}
        if plan.config.training.warmup >= fewer:
            changes["training.warmup"] = max(1, fewer // 20)
        remedies = [(tr("{fewer} steps: {span}", **counted(fewer=fewer), span=_span(changed(plan, changes))), changes)]
    each, span = duration_range(time.step_low_s or 0.0, time.step_high_s or 0.0), _span(plan)
    numbers = {"each": each, "span": span, **counted(steps=time.steps)}
    message = tr("The plan takes very long: {steps} steps × {each} is {span}.", **numbers)
    yield plan.finding(
        "takes_years" if time.total_s >= YEAR_S else "takes_months", "warning", STEPS, message, *remedies
    )


def _span(then: Plan | None) -> str:
    """The time of a run as its plan has it, with all that a run does beside steps; empty where it is not known."""
    low, high = (then.time.total_low_s, then.time.total_high_s) if then is not None else (None, None)
    return "" if low is None or high is None else duration_range(low, high)


def _idle(plan: Plan) -> Iterator[Finding]:
    if plan.time.verdict != "idle" or plan.config.mode.kind != "train":
        return
    time, network_s = plan.time, plan.time.network_high_s or 0.0
    if time.step_high_s is not None and network_s > time.step_high_s / 2:
        # No larger micro-batch changes that.
        message = tr(
            "The GPU would mostly wait for the network: each step sends {size} out of each machine, which may take "
            "{share} of the step time at {speed} Gbit/s (planning.network_gbit_s).",
            size=gib(time.network_bytes or 0),
            share=percent(network_s / time.step_high_s),
            speed=f"{time.network_gbit_s:g}",
        )
        yield plan.finding("idle", "note", "time", message)
        return
    message = tr(
        "The GPU would mostly be idle: this reaches about {share} of its peak. The micro-batch or the model is "
        "too small for it.",
        share=percent(time.fraction_of_peak or 0),
    )
    if not plan.config.engine.compile and can_compile(plan):
        message += after(tr("torch.compile (engine.compile) launches fewer kernels."))
    yield plan.finding("idle", "note", "time", message, *(remedy_of(fix, plan) for fix in plan.headroom))


# What a guide promises and advises, checked.

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


def _claims(plan: Plan) -> Iterator[Finding]:
    claims = plan.based_on.claims if plan.based_on is not None else {}
    if not claims or plan.config.mode.kind != "train":
        return
    for promise in (_pace, _total, _peak, _launch):
        yield from promise(plan, claims)
    for position, advice in enumerate(claims.get("remedies") or ()):
        judge: Callable[[Plan, Mapping[str, Any]], Iterator[Finding]] = _other_batch
        if advice.get("memory_factor") is not None:
            judge = _saving
        elif advice.get("against") == "host":
            judge = _other_memory
        text = repr(tr(str(advice.get("text", ""))))
        yield from judge(plan, {**advice, "text": text, "where": f"claims.remedies.{position}"})


# A guide's advice against out-of-memory: does it keep the batch, and does it save what it says?


def _other_batch(plan: Plan, advice: Mapping[str, Any]) -> Iterator[Finding]:
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
    yield plan.finding("claim_batch", "warning", advice["where"], message, *remedies)


def _saving(plan: Plan, advice: Mapping[str, Any]) -> Iterator[Finding]:
    """Fewer micro-batches are said to save memory: gradients are summed in place, so they do not."""
    before, after, work = advice.get("from_accumulation"), advice.get("accumulation"), plan.work
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
    yield plan.finding("claim_memory", "warning", advice["where"], message)


def _other_memory(plan: Plan, advice: Mapping[str, Any]) -> Iterator[Finding]:
    """Against a full host RAM a smaller batch on the GPU does nothing."""
    message = tr(
        "The guide's advice {text} is about a different memory: RAM ({host_ram} in this plan) depends on processes, data "
        "loader workers, pinned batches and rows, not on the micro-batch.",
        text=advice["text"],
        host_ram=gib(plan.memory.host_ram_bytes),
    )
    yield plan.finding("claim_host_ram", "warning", advice["where"], message)


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
    yield plan.finding("claim_time", "warning", "claims.tokens_per_s", message)


def _total(plan: Plan, claims: Mapping[str, Any]) -> Iterator[Finding]:
    """What the promised time asks of the card, in sequences a second and as a share of its peak."""
    promised = range_of(str(claims.get("total_time", "")))
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
    yield plan.finding("claim_time", "warning", "claims.total_time", message)


def _peak(plan: Plan, claims: Mapping[str, Any]) -> Iterator[Finding]:
    claimed, memory = range_of(str(claims.get("peak_memory", ""))), plan.memory
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
    yield plan.finding("claim_memory", "warning", "claims.peak_memory", message)


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
    yield plan.finding("claim_launch", "warning", "claims.launch", message)


SIZE_FINDINGS = (
    _architecture, _device, _evaluation, _headroom, _host, _disk, _targets, _deviation, _length, _half_precision_sum, _long,
    _idle, _claims,
)  # fmt: skip
"""In the order in which they are said."""
