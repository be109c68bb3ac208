"""Whether the batch is what was asked for, and whether the model takes its length."""

from __future__ import annotations

from trainwiz.core.batch import accumulation_for
from trainwiz.core.findings import Finding, Remedy
from trainwiz.core.plan.facts import Facts
from trainwiz.core.plan.words import percent

NOTABLE_DEVIATION = 0.01
FAR = 2.0
"""From here on a deviation is said as a multiple."""
MANY_STEPS = 16
"""Half-precision sums of fewer micro-batches lose little."""


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
    message = (
        f"batch.target_real_tokens is {facts.batch.target_real_tokens:,}, and how many real tokens a row has is not known: "
        "the data is not here or cannot be read. Name data that is here, or aim at tokens with padding (--target-tokens) "
        "or at sequences (--target-samples)."
    )
    changes = {"batch.target_real_tokens": None, "batch.target_tokens": facts.batch.target_real_tokens}
    remedy = facts.remedy("aim at as many tokens, padding included", changes)
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
    words = ", ".join(
        f"{key} {facts.config.value(key):,}" + (f" ({asked[key]:,.0f} sequences)" if key in asked else "")
        for key in given
    )
    message = f"The batch has {len(given)} targets that differ: {words}; keep one of them."
    remedy = facts.remedy(f"keep {kept}", dict.fromkeys(given[1:]))
    return [Finding("several_targets", "error", given[1], message, (remedy,))]


def _deviation(facts: Facts) -> list[Finding]:
    batch = facts.batch
    if batch.deviation is None or abs(batch.deviation) <= NOTABLE_DEVIATION:
        return []
    if batch.target_samples:
        target = f"{batch.target_samples:,} sequences"
    elif batch.target_tokens:
        target = f"{batch.target_tokens:,} tokens"
    else:
        target = f"{batch.target_real_tokens or 0:,} real tokens"
    message = (
        f"{batch.micro_batch} × {batch.accumulation} × {batch.world_size} is {batch.effective_samples:,} sequences "
        f"({batch.effective_tokens:,} tokens) a step, {_off(batch.deviation)} the target of {target}."
    )
    wanted = batch.effective_samples / (1 + batch.deviation)
    nearest = accumulation_for(wanted, batch.micro_batch, batch.world_size)
    remedies: list[Remedy] = []
    if nearest != batch.accumulation:
        changes = {"batch.gradient_accumulation_steps": nearest}
        remedies.append(facts.remedy(f"accumulation {nearest}", changes))
    remedies.extend(
        facts.remedy(
            f"micro-batch {other.micro_batch} × accumulation {other.accumulation}: {percent(other.deviation, 2, signed=True)}"
            if abs(other.deviation) < FAR
            else f"micro-batch {other.micro_batch} × accumulation {other.accumulation}",
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
    message = (
        f"Only a micro-batch of {batch.micro_batch} gives exactly {batch.effective_samples:,} sequences a step; "
        f"{faster.micro_batch} would use the device better."
    )
    changes = {
        "batch.micro_batch_size": faster.micro_batch,
        "batch.gradient_accumulation_steps": faster.accumulation,
    }
    words = (
        f"micro-batch {faster.micro_batch} × accumulation {faster.accumulation}: {faster.effective_samples:,} sequences"
    )
    remedy = facts.remedy(f"{words}, {percent(faster.deviation, 2, signed=True)}", changes)
    return [Finding("small_micro_batch", "note", "batch.micro_batch_size", message, (remedy,))]


def _off(deviation: float) -> str:
    """ "-25.0 % off", or "2,048 times" where a percentage says nothing."""
    return f"{percent(deviation, 1, signed=True)} off" if abs(deviation) < FAR else f"{deviation + 1:,.0f} times"


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
            message = f"{key} is {length:,}, and {config.model.name} has {most:,} positions."
            remedy = facts.remedy(f"{most:,} tokens", {key: most})
            findings.append(Finding("too_long", "error", key, message, (remedy,)))
    return findings


def _half_precision_sum(facts: Facts) -> list[Finding]:
    """Torch keeps the sum of micro-batches in the format of the weights. ZeRO-2 with offload does so too where
    DeepSpeed is older; 0.19 heeds `grad_accum_dtype: fp32` (`_use_compact_grad_partition_buffer`)."""
    engine, work = facts.config.engine, facts.work
    if work is None or work.formats.weights != 2 or facts.batch.accumulation < MANY_STEPS:
        return []
    code, loss = "half_precision_accumulation", "which rounds them (about 0.3 % off an fp32 sum at 651)"
    if work.deepspeed and engine.offload != "none":
        message = (
            f"An older DeepSpeed with the optimizer in host RAM adds the gradients of {facts.batch.accumulation} "
            f"micro-batches in {engine.precision}, {loss}. trainwiz asks for grad_accum_dtype fp32, which 0.19 heeds, "
            "for 4 bytes a parameter on the GPU; a larger micro-batch adds less often."
        )
        return [Finding(code, "warning", "engine.offload", message)]
    if work.deepspeed or work.lora:
        return []
    message = (
        f"Weights and gradients in {engine.precision} add {facts.batch.accumulation} micro-batches in 16 bits, {loss}; "
        "mixed precision keeps them in fp32, and a larger micro-batch adds less often."
    )
    remedy = facts.remedy("bf16 with fp32 weights", {"engine.precision": "bf16"})
    return [Finding(code, "warning", "engine.precision", message, (remedy,))]
