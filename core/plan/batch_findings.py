"""Whether the batch is what was asked for, and what this version cannot train."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwiz.core.batch import accumulation_for
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.estimate.activations import slicing_problem
from trainwiz.core.hardware.machine import REPORTERS
from trainwiz.core.language import tr, trn
from trainwiz.core.plan.draft import Facts
from trainwiz.core.plan.hardware_findings import sharing_findings
from trainwiz.core.plan.tasks import PLANNED_ONLY
from trainwiz.core.plan.words import listed, percent
from trainwiz.core.text import plain_text

# Whether the batch is what was asked for, and whether the model takes its length.

NOTABLE_DEVIATION = 0.01
FAR = 2.0
"""From here on a deviation is said as a multiple."""
MANY_STEPS = 16
"""Half-precision sums of fewer micro-batches lose little."""
OF_TWO_ORDERS = {"bf16": 0.011, "fp16": 0.0014}
"""How far the gradients of a step with its 64 micro-batches in two orders are apart where they are added in that format:
on a CPU, one process in bf16-true as DeepSpeed 0.19.8 with ZeRO-1, ZeRO-2 and offload (tools/benchmarks/bench_accumulation.py)."""


def batch_findings(facts: Facts) -> list[Finding]:
    return [*_targets(facts), *_deviation(facts), *_slow_exact(facts), *_length(facts), *_half_precision_sum(facts)]


TARGET_KEYS = ("batch.target_samples", "batch.target_tokens", "batch.target_real_tokens")
"""In the order in which they are followed."""


def _targets(facts: Facts) -> list[Finding]:
    """Targets that contradict each other, and one of real tokens without lengths to count them by."""
    given = [key for key in TARGET_KEYS if facts.config.value(key) is not None]
    if len(given) > 1:
        return _several_targets(facts, given)
    if given != ["batch.target_real_tokens"] or facts.batch.real_tokens is not None:
        return []
    message = tr(
        "batch.target_real_tokens is {target_real_tokens}, and how many real tokens a row has is not "
        "known: the data is not here or cannot be read. Name data that is here, or aim at tokens "
        "with padding (--target-tokens) or at sequences (--target-samples).",
        target_real_tokens=f"{facts.batch.target_real_tokens:,}",
    )
    changes = {"batch.target_real_tokens": None, "batch.target_tokens": facts.batch.target_real_tokens}
    remedy = facts.remedy(tr("aim at as many tokens, padding included"), changes)
    return [Finding("unknown_lengths", "error", "batch.target_real_tokens", message, (remedy,))]


def _several_targets(facts: Facts, given: list[str]) -> list[Finding]:
    batch = facts.batch
    real = batch.real_tokens / batch.effective_samples if batch.real_tokens else None
    sizes = {
        "batch.target_samples": 1.0,
        "batch.target_tokens": float(batch.sequence_length),
        "batch.target_real_tokens": real,
    }
    asked = {key: facts.config.value(key) / size for key in given if (size := sizes[key])}
    if max(asked.values()) <= min(asked.values()) * (1 + NOTABLE_DEVIATION) and len(asked) == len(given):
        return []
    kept = given[0]
    words = listed(
        tr("{key} {value} ({sequences} sequences)", key=key, value=value, sequences=f"{asked[key]:,.0f}")
        if key in asked
        else f"{key} {value}"
        for key, value in ((key, f"{facts.config.value(key):,}") for key in given)
    )
    message = tr("The batch has {count} targets that differ: {words}; keep one of them.", count=len(given), words=words)
    remedy = facts.remedy(tr("keep {kept}", kept=kept), dict.fromkeys(given[1:]))
    return [Finding("several_targets", "error", given[1], message, (remedy,))]


def _deviation(facts: Facts) -> list[Finding]:
    batch = facts.batch
    if batch.deviation is None or abs(batch.deviation) <= NOTABLE_DEVIATION:
        return []
    if batch.target_samples:
        target = tr("{target_samples} sequences", target_samples=f"{batch.target_samples:,}")
    elif batch.target_tokens:
        target = tr("{target_tokens} tokens", target_tokens=f"{batch.target_tokens:,}")
    else:
        target = tr("{target_real_tokens} real tokens", target_real_tokens=f"{batch.target_real_tokens or 0:,}")
    message = tr(
        "{micro_batch} × {accumulation} × {world_size} is {effective_samples} sequences "
        "({effective_tokens} tokens) a step, {off} the target of {target}.",
        micro_batch=batch.micro_batch,
        accumulation=batch.accumulation,
        world_size=batch.world_size,
        effective_samples=f"{batch.effective_samples:,}",
        effective_tokens=f"{batch.effective_tokens:,}",
        off=_off(batch.deviation),
        target=target,
    )
    wanted = batch.effective_samples / (1 + batch.deviation)
    nearest = accumulation_for(wanted, batch.micro_batch, batch.world_size)
    remedies: list[Remedy] = []
    if nearest != batch.accumulation:
        changes = {"batch.gradient_accumulation_steps": nearest}
        remedies.append(facts.remedy(tr("accumulation {nearest}", nearest=nearest), changes))
    remedies.extend(
        facts.remedy(
            tr(
                "micro-batch {micro_batch} × accumulation {accumulation}: {deviation}",
                micro_batch=other.micro_batch,
                accumulation=other.accumulation,
                deviation=percent(other.deviation, 2, signed=True),
            )
            if abs(other.deviation) < FAR
            else tr(
                "micro-batch {micro_batch} × accumulation {accumulation}",
                micro_batch=other.micro_batch,
                accumulation=other.accumulation,
            ),
            {
                "batch.micro_batch_size": other.micro_batch,
                "batch.gradient_accumulation_steps": other.accumulation,
            },
        )
        for other in batch.alternatives
        if abs(other.deviation) < abs(batch.deviation) and other.micro_batch != batch.micro_batch
    )
    where = "batch.gradient_accumulation_steps"
    return [Finding("batch_deviation", "warning", where, message, tuple(remedies))]


def _slow_exact(facts: Facts) -> list[Finding]:
    """A target that only a small micro-batch hits: kept, because it was asked for, and said, because it is slow."""
    batch = facts.batch
    faster = next((other for other in batch.alternatives if other.micro_batch >= 2 * batch.micro_batch), None)
    solved = facts.config.origin("batch.micro_batch_size").origin == "solved"
    if batch.deviation != 0 or faster is None or not solved or abs(faster.deviation) > NOTABLE_DEVIATION:
        return []
    message = tr(
        "Only a micro-batch of {micro_batch} gives exactly {effective_samples} sequences a step; "
        "{faster_micro_batch} would use the device better.",
        micro_batch=batch.micro_batch,
        effective_samples=f"{batch.effective_samples:,}",
        faster_micro_batch=faster.micro_batch,
    )
    changes = {
        "batch.micro_batch_size": faster.micro_batch,
        "batch.gradient_accumulation_steps": faster.accumulation,
    }
    words = tr(
        "micro-batch {micro_batch} × accumulation {accumulation}: {sequences} sequences, {deviation}",
        micro_batch=faster.micro_batch,
        accumulation=faster.accumulation,
        sequences=f"{faster.effective_samples:,}",
        deviation=percent(faster.deviation, 2, signed=True),
    )
    remedy = facts.remedy(words, changes)
    return [Finding("small_micro_batch", "note", "batch.micro_batch_size", message, (remedy,))]


def _off(deviation: float) -> str:
    """ "-25.0 % off", or "2,048 times" where a percentage says nothing."""
    if abs(deviation) < FAR:
        return tr("{share} off", share=percent(deviation, 1, signed=True))
    return tr("{factor} times", factor=f"{deviation + 1:,.0f}")


def _length(facts: Facts) -> list[Finding]:
    """Inputs, targets and generated texts that a table of positions does not reach."""
    if facts.work is None or facts.work.architecture.rotary or facts.work.architecture.max_positions is None:
        return []
    most, config = facts.work.architecture.max_positions, facts.config
    keys = ["batch.sequence_length"]
    if config.task == "seq2seq":
        keys += ["batch.target_length"] + (["evaluation.generation_length"] if config.evaluation.generate else [])
    findings = []
    for key in keys:
        length = config.value(key) or 0
        if length > most:
            message = tr(
                "{key} is {length}, and {name} has {most} positions.",
                key=key,
                length=f"{length:,}",
                name=config.model.name,
                most=f"{most:,}",
            )
            remedy = facts.remedy(tr("{most} tokens", most=f"{most:,}"), {key: most})
            findings.append(Finding("too_long", "error", key, message, (remedy,)))
    return findings


def _half_precision_sum(facts: Facts) -> list[Finding]:
    """Torch keeps the sum of micro-batches in the format of the weights. So does DeepSpeed, unless its file asks for
    `grad_accum_dtype: fp32`, as ours does; 0.19 heeds that also with offload (`_use_compact_grad_partition_buffer`)."""
    engine, work = facts.config.engine, facts.work
    if work is None or work.formats.weights != 2 or facts.batch.accumulation < MANY_STEPS:
        return []
    code = "half_precision_accumulation"
    if work.deepspeed and engine.offload != "none" and engine.deepspeed_file is None:
        message = tr(
            "The gradients of {accumulation} micro-batches are added in fp32, as deepspeed.json asks "
            "(grad_accum_dtype), for 4 bytes a parameter on the GPU. In {precision}, as an older DeepSpeed than 0.19 may "
            "add them with the optimizer in host RAM, two orders of the same rows differ by {share}.",
            accumulation=facts.batch.accumulation,
            precision=engine.precision,
            share=percent(OF_TWO_ORDERS["fp16" if engine.precision == "fp16" else "bf16"], 1),
        )
        return [Finding(code, "warning", "engine.offload", message)]
    if work.deepspeed or work.lora:
        return []
    message = tr(
        "Weights and gradients in {precision} add {accumulation} micro-batches in 16 bits, which "
        "rounds them: two orders of the same 64 differed by {share} in the gradient. Mixed precision keeps them in "
        "fp32, and a larger micro-batch adds less often.",
        precision=engine.precision,
        accumulation=facts.batch.accumulation,
        share=percent(OF_TWO_ORDERS["bf16"], 1),
    )
    remedy = facts.remedy(tr("bf16 with fp32 weights"), {"engine.precision": "bf16"})
    return [Finding(code, "warning", "engine.precision", message, (remedy,))]


# What RunConfig can say and this version cannot train: refused in the plan, never ignored.


def scope_findings(facts: Facts) -> list[Finding]:
    return list(_findings(facts))


def _findings(facts: Facts) -> Iterator[Finding]:
    config = facts.config
    model_is_missing = facts.work is None and not facts.unknown_architecture
    if config.peft.method != "none" and config.task == "masked-lm" and not model_is_missing:
        message = tr(
            "This version trains all weights of masked-LM models; {method} adapters it does not.",
            method=config.peft.method,
        )
        yield _error(
            "peft_not_supported", "peft.method", message, facts, {"peft.method": "none"}, tr("train all weights")
        )
    if config.task in PLANNED_ONLY:
        yield from _not_trained(facts)
    sliced = slicing_problem(facts.work.architecture.model_type) if facts.work and config.training.loss_chunk else None
    if sliced:
        key = "training.loss_chunk"
        yield _error("loss_not_sliceable", key, sliced, facts, {key: None}, tr("compute the loss at once"))
    if config.engine.gpus and facts.devices.device == "cpu":
        wanted = ", ".join(config.engine.gpus)
        message = tr("GPU {wanted} is asked for (engine.gpus), and this run would compute on the CPU.", wanted=wanted)
        yield _error("missing_hardware", "engine.gpus", message, facts, {"engine.gpus": None}, tr("use the CPU"))
    yield from _cards_of_one_machine(facts)
    yield from sharing_findings(facts)
    yield from _code_of_the_model(facts)
    yield from _reporters(facts)


def _cards_of_one_machine(facts: Facts) -> Iterator[Finding]:
    """The other machines would see no GPU at all."""
    key, gpus = "engine.gpus", facts.devices.gpus
    names = [name for name in facts.config.engine.gpus or () if not name.isdecimal()]
    if facts.devices.nodes == 1 or not names:
        return
    message = tr(
        "GPU {names} is a card of one machine (engine.gpus), and {n} machines train; numbers hold on each of them.",
        names=plain_text(", ".join(names), 200),
        n=facts.devices.nodes,
    )
    numbers = [str(gpu.index) for gpu in gpus] if all(gpu.parent_uuid is None for gpu in gpus) else None
    yield _error("gpus_of_one_machine", key, message, facts, {key: numbers or None}, tr("name them by number"))


def _not_trained(facts: Facts) -> Iterator[Finding]:
    message = tr(
        "{task} is planned, not trained: this version trains masked, causal and sequence-to-sequence language models.",
        task=facts.config.task,
    )
    model = facts.given.model
    own = model.task if model is not None and model.task not in PLANNED_ONLY else None
    remedies = (facts.remedy(tr("train it for {own}", own=own), {"task": own}),) if own else ()
    yield Finding("task_not_trained", "error", "task", message, remedies)


def _code_of_the_model(facts: Facts) -> Iterator[Finding]:
    """A profile is data that people pass on: it must not decide that code is run."""
    key = "model.trust_remote_code"
    if facts.config.model.trust_remote_code and facts.config.origin(key).origin != "you":
        message = tr(
            "The profile wants to run Python code that comes with the model ({key}); that is for you to "
            "allow: --set {key}=true.",
            key=key,
        )
        yield _error("remote_code", key, message, facts, {key: False}, tr("run no code of the model"))


def _reporters(facts: Facts) -> Iterator[Finding]:
    where = "logging.report_to"
    names = facts.config.logging.report_to
    fallback = facts.remedy(tr("report to TensorBoard"), {where: ["tensorboard"]})
    if "none" in names and len(names) > 1:
        message = tr(
            "{where} holds none beside {names}; leave one out.",
            where=where,
            names=", ".join(name for name in names if name != "none"),
        )
        yield Finding("reporter_not_supported", "error", where, message, (fallback,))
    unknown = [name for name in names if name not in REPORTERS and name != "none"]
    if unknown:
        message = tr(
            "This version reports to {known} or none, not to {unknown} ({where}).",
            known=", ".join(REPORTERS),
            unknown=", ".join(unknown),
            where=where,
        )
        yield Finding("reporter_not_supported", "error", where, message, (fallback,))
    if facts.machine.hypothetical:
        return
    others = [name for name in names if name in REPORTERS and name != "tensorboard"]
    missing = [REPORTERS[name] for name in others if not facts.machine.libraries.has(name)]
    if missing:
        message = trn(
            "{where} names {libraries}, which is not installed here.",
            "{where} names {libraries}, which are not installed here.",
            len(missing),
            where=where,
            libraries=", ".join(missing),
        )
        install = Remedy(tr("install it"), f"pip install {' '.join(missing)}")
        yield Finding("reporter_missing", "error", where, message, (install, fallback))


def _error(
    code: str,
    where: str,
    message: str,
    facts: Facts,
    changes: dict[str, Any],
    instead: str,
) -> Finding:
    return Finding(code, "error", where, message, (facts.remedy(instead, changes),))
