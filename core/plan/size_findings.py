"""Whether the batch is what was asked for, whether it fits (the device, host RAM and disk), and whether it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainwiz.core.batch import accumulation_for
from trainwiz.core.errors import Finding, Remedy, after
from trainwiz.core.language import tr
from trainwiz.core.plan.fixes import changed, remedy_of
from trainwiz.core.plan.refusals import can_compile
from trainwiz.core.plan.result import Plan
from trainwiz.core.plan.sizes import ACCUMULATION, EVALUATED, MICRO, TARGETS, most_evaluated
from trainwiz.core.plan.words import aside, counted, duration_range, fit_command, gib, listed, part_word, percent

# Whether the batch is what was asked for, and whether the model takes its length.

MANY_STEPS = 16
"""Half-precision sums of fewer micro-batches lose little."""
OF_TWO_ORDERS = 0.011
"""How far the gradients of a step with its 64 micro-batches in two orders are apart where they are added in bf16: on a CPU,
one process in bf16-true as DeepSpeed 0.19.8 with ZeRO-1, ZeRO-2 and offload (docs/arrangement.md)."""
NOTABLE_DEVIATION = 0.01
"""Of the batch from its target: what is nearer is not worth a word."""


def batch_findings(plan: Plan) -> Iterator[Finding]:
    for judge in (_targets, _deviation, _length, _half_precision_sum):
        yield from judge(plan)


def _targets(plan: Plan) -> Iterator[Finding]:
    """Targets that contradict each other, and one of real tokens without lengths to count them by."""
    batch, key = plan.batch, "batch.target_real_tokens"
    given = {key: plan.config.value(key) for key in TARGETS if plan.config.value(key) is not None}
    if list(given) == [key] and batch.real_tokens is None:
        message = tr(
            "batch.target_real_tokens is {target_real_tokens}, but the number of non-padding tokens per row is "
            "unknown: the data is not on this machine or cannot be read. Specify data on this machine, or "
            "target tokens including padding (--target-tokens) or sequences (--target-samples).",
            **counted(target_real_tokens=given[key]),
        )
        changes = {key: None, "batch.target_tokens": given[key]}
        yield plan.error(
            "unknown_lengths", key, message, (tr("target the same number of tokens, padding included"), changes)
        )
    if len(given) < 2:
        return
    kept, *others = given
    words = listed(f"{key} {value:,}" for key, value in given.items())
    message = tr("The batch has {count} conflicting targets: {words}; keep only one.", count=len(given), words=words)
    yield plan.error("several_targets", others[0], message, (tr("keep {kept}", kept=kept), dict.fromkeys(others)))


def _deviation(plan: Plan) -> Iterator[Finding]:
    batch = plan.batch
    if batch.deviation is None or abs(batch.deviation) <= NOTABLE_DEVIATION:
        return
    target = tr("{count} non-padding tokens", **counted(count=batch.target_real_tokens or 0))
    if batch.target_samples:
        target = tr("{count} sequences", **counted(count=batch.target_samples))
    elif batch.target_tokens:
        target = tr("{count} tokens", **counted(count=batch.target_tokens))
    share = percent(abs(batch.deviation), 1)
    message = tr(
        "{factors} = {samples} sequences ({tokens} tokens) per step, {off} the target of {target}.",
        factors=f"{batch.micro_batch} × {batch.accumulation} × {batch.world_size}",
        **counted(samples=batch.effective_samples, tokens=batch.effective_tokens),
        off=tr("{share} below", share=share) if batch.deviation < 0 else tr("{share} above", share=share),
        target=target,
    )
    wanted = batch.effective_samples / (1 + batch.deviation)
    nearest = accumulation_for(wanted, batch.micro_batch, batch.world_size)
    remedies: list[tuple[str, Mapping[str, Any]]] = []
    if nearest != batch.accumulation:
        remedies.append((tr("accumulation {nearest}", nearest=nearest), {ACCUMULATION: nearest}))
    for other in batch.alternatives:
        if abs(other.deviation) < abs(batch.deviation) and other.micro_batch != batch.micro_batch:
            text = tr(
                "micro-batch {micro_batch} × accumulation {accumulation}: {deviation}",
                micro_batch=other.micro_batch,
                accumulation=other.accumulation,
                deviation=percent(other.deviation, 2, signed=True),
            )
            remedies.append((text, {MICRO: other.micro_batch, ACCUMULATION: other.accumulation}))
    yield plan.warning("batch_deviation", ACCUMULATION, message, *remedies)


def _length(plan: Plan) -> Iterator[Finding]:
    """Inputs, targets and generated texts that a table of positions does not reach."""
    most, config = plan.most_positions, plan.config
    keys = ["batch.sequence_length"]
    if config.task == "seq2seq":
        keys += ["batch.target_length"] + (["evaluation.generation_length"] if config.evaluation.generate else [])
    for key in keys:
        length = config.value(key) or 0
        if most is not None and length > most:
            numbers = counted(length=length, most=most)
            message = tr(
                "{key} is {length}, but {name} has {most} positions.", key=key, name=config.model.name, **numbers
            )
            yield plan.error("too_long", key, message, (tr("{most} tokens", **numbers), {key: most}))


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
    yield plan.warning("half_precision_accumulation", where, message, (tr("bf16 with fp32 weights"), {where: "bf16"}))


# Memory of the device, of the host, and of the disk.

LARGE_PART = 2**28
"""Bytes of host RAM that are worth a word."""
OTHER_SHARE = 0.1
"""A desktop or another job that holds more of the card than this is worth a word."""


def memory_findings(plan: Plan) -> Iterator[Finding]:
    for judge in (_architecture, _device, _others_that_fit, _evaluation, _headroom, _others, _host, _disk):
        yield from judge(plan)


def _architecture(plan: Plan) -> Iterator[Finding]:
    key, architecture = "model.name", plan.architecture
    if plan.unknown_architecture:
        message = tr("Memory and time are not estimated: {reason}.", reason=plan.unknown_architecture)
        yield plan.warning("unknown_architecture", key, message)
    elif architecture is not None and architecture.approximate and plan.estimate.tier == "analytic":
        message = tr(
            "The formulas do not cover models of type {model_type}: they read its config by the usual key names, "
            "and the interval is wider.",
            model_type=architecture.model_type,
        )
        yield plan.note("approximate_architecture", key, message)


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
    memory, verdict, fixes = (
        plan.memory,
        plan.estimate.verdict(plan.share_bytes),
        [remedy_of(fix, plan) for fix in plan.fixes],
    )
    if memory.capacity_bytes is not None and verdict in ("does_not_fit", "tight"):
        largest = sorted(memory.breakdown.items(), key=lambda part: -part[1])[:3]
        parts = listed(f"{part_word(name)} {size / 2**30:.1f}" for name, size in largest)
        place = {"size": gib(memory.capacity_bytes), "device": tr(memory.device)}
        if verdict == "tight":
            message = tr(
                "May not fit: needs {needed}, at most {most}; available: {capacity} ({parts}; peak: {peak_moment}).",
                needed=gib(memory.needed_bytes),
                most=gib(memory.needed_high_bytes),
                capacity=tr("{size} of {device}", **place),
                parts=parts,
                peak_moment=memory.peak_moment,
            )
            yield plan.warning("tight", "memory", message, *fixes)
        else:
            message = tr(
                "Doesn't fit: needs at least {needed}, {device} has {size} ({parts}; peak: {peak_moment}); {states}.",
                needed=gib(plan.memory.needed_bytes),
                **place,
                parts=parts,
                peak_moment=memory.peak_moment,
                states=states_text(plan),
            )
            if all(fix.trains_otherwise for fix in plan.fixes):
                message += after(tr("No engine setting makes it fit."))
            yield plan.error("does_not_fit", "memory", message, *fixes)


def _others_that_fit(plan: Plan) -> Iterator[Finding]:
    """Where the whole choice is too large: the list of all that fits, with the same data."""
    named = any(key.startswith("data.sources") for key in plan.config.origins)
    if plan.estimate.verdict(plan.share_bytes) == "does_not_fit" and named and plan.config.mode.kind == "train":
        message = tr("Other models, methods and lengths may fit, with the same data.")
        remedy = Remedy(tr("see what fits"), fit_command(plan.config, plan.machine), opens="fit")
        yield Finding("others_fit", "note", "memory", message, (remedy,))


def _evaluation(plan: Plan) -> Iterator[Finding]:
    """Held-out rows need no gradients, and their logits come all at once."""
    estimate, work, share = plan.evaluation, plan.work, plan.share_bytes
    if estimate is None or work is None or share is None:
        return
    verdict = estimate.verdict(share)
    if verdict not in ("does_not_fit", "tight") or estimate.allocated_bytes <= plan.estimate.allocated_bytes:
        return

    moment, logits = estimate.peak_moment, estimate.breakdown.get("logits", 0)
    if logits:
        moment = tr("{moment}, of which logits {logits}", moment=moment, logits=gib(logits))
    message = tr(
        "Evaluating {size} sequences at a time needs {used}, at most {most}; {capacity} is available ({moment}).",
        size=work.eval_micro_batch,
        used=gib(estimate.needed_bytes),
        most=gib(estimate.safe_bytes),
        capacity=gib(plan.memory.capacity_bytes or 0),
        moment=moment,
    )
    smaller = most_evaluated(plan, work, work.eval_micro_batch // 2)
    fewer = tr("evaluate {smaller} at a time: same results", smaller=smaller), {EVALUATED: smaller}
    remedies = [fewer] if smaller else [remedy_of(fix, plan) for fix in plan.fixes]
    if verdict == "tight":
        yield plan.warning("evaluation_tight", EVALUATED, message, *remedies)
    else:
        yield plan.error("evaluation_does_not_fit", EVALUATED, message, *remedies)


def _headroom(plan: Plan) -> Iterator[Finding]:
    """Memory that stays free, with what would use it."""
    if not plan.headroom or plan.time.verdict == "idle":
        return
    message = tr(
        "{needed} of {share} is needed. Ways to use the rest: {fixes}.",
        needed=gib(plan.estimate.needed_bytes),
        share=gib(plan.share_bytes or 0),
        fixes=(tr("; or") + after("")).join(fix.words for fix in plan.headroom),
    )
    yield plan.note("room", "memory", message, *(remedy_of(fix, plan) for fix in plan.headroom))


def _others(plan: Plan) -> Iterator[Finding]:
    for gpu in plan.devices.gpus:
        held, total = gpu.memory_other_bytes, gpu.memory_total_bytes
        if held and total and held > OTHER_SHARE * total:
            message = tr(
                "The desktop or other programs use {held} of GPU {index} now; closing them frees it.",
                held=gib(held),
                index=gpu.index,
            )
            yield plan.note("memory_in_use", "memory", message)


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
    remedies: list[tuple[str, Mapping[str, Any]]] = []
    if data.workers:
        words = tr("no data loader workers: {saved} less", saved=gib(held.get("workers", 0)))
        remedies.append((words, {"data.workers": 0}))
    if not data.streaming and held.get("data", 0) > LARGE_PART:
        words = tr("stream the rows: {saved} less", saved=gib(held["data"]))
        remedies.append((words, {"data.streaming": True}))
    if memory.host_ram_bytes > free:
        yield plan.error("host_ram", "host_ram", message, *remedies)
    else:
        yield plan.warning("host_ram_tight", "host_ram", message, *remedies)


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
    yield plan.error("disk", "disk", message, *fewer, Remedy(tr("write to another disk: --output-dir FOLDER")))


# Whether the run ends in a lifetime, and whether the card would be busy.

YEAR_S = 365.25 * 86400
MONTH_S = 30 * 86400.0
WANTED_S = 14 * 86400.0
"""What a remedy aims at: two weeks."""
MOSTLY = 0.5
"""Of a step: what takes more is what it waits for."""
STEPS = "training.max_steps"


def long_findings(plan: Plan) -> Iterator[Finding]:
    time = plan.time
    if time.total_s is None or time.steps is None or not time.step_s or time.total_s < MONTH_S:
        return
    each = duration_range(time.step_low_s or 0.0, time.step_high_s or 0.0)
    message = tr(
        "The plan takes very long: {steps} steps × {each} is {span}.",
        **counted(steps=time.steps),
        each=each,
        span=_span(plan),
    )
    # To one significant figure: 1,900 -> 1,000, 2,400 -> 2,000.
    fewer = int(float(f"{WANTED_S / time.step_s:.0e}"))
    remedies: list[tuple[str, Mapping[str, Any]]] = []
    if fewer >= 100:
        changes: dict[str, Any] = {STEPS: fewer}
        if plan.config.training.warmup >= fewer:
            changes["training.warmup"] = max(1, fewer // 20)
        remedies = [(tr("{fewer} steps: {span}", **counted(fewer=fewer), span=_span(changed(plan, changes))), changes)]
    code = "takes_years" if time.total_s >= YEAR_S else "takes_months"
    yield plan.warning(code, STEPS, message, *remedies)


def _span(then: Plan | None) -> str:
    """The time of a run as its plan has it, with all that a run does beside steps; empty where it is not known."""
    low, high = (then.time.total_low_s, then.time.total_high_s) if then is not None else (None, None)
    return "" if low is None or high is None else duration_range(low, high)


def idle_findings(plan: Plan) -> Iterator[Finding]:
    if plan.time.verdict != "idle" or plan.config.mode.kind != "train":
        return
    time = plan.time
    network_s, step_s = time.network_high_s or 0.0, time.step_high_s or 0.0
    if network_s > MOSTLY * step_s:
        # No larger micro-batch changes that.
        message = tr(
            "The GPU would mostly wait for the network: each step sends {size} out of each machine, which may take "
            "{share} of the step time at {speed} Gbit/s (planning.network_gbit_s).",
            size=gib(time.network_bytes or 0),
            share=percent(network_s / step_s),
            speed=f"{time.network_gbit_s:g}",
        )
        yield plan.note("idle", "time", message)
        return
    message = tr(
        "The GPU would mostly be idle: this reaches about {share} of its peak. The micro-batch or the model is "
        "too small for it.",
        share=percent(time.fraction_of_peak or 0),
    )
    if not plan.config.engine.compile and can_compile(plan):
        message += after(tr("torch.compile (engine.compile) launches fewer kernels."))
    yield plan.note("idle", "time", message, *(remedy_of(fix, plan) for fix in plan.headroom))
