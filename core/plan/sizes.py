"""The batch: micro-batch from memory, accumulation from the target, rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from trainwiz.core.batch import BatchSolution, accumulation_for, solve_batch
from trainwiz.core.data.lengths import joins_texts, longest_generation
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.memory import estimate_evaluation, estimate_memory, largest_micro_batch
from trainwiz.core.estimate.traced import NO_EVIDENCE, Evidence
from trainwiz.core.estimate.workload import HALF, Workload
from trainwiz.core.language import tr, trn
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.draft import Draft
from trainwiz.core.plan.result import BatchAlternative, BatchPlan
from trainwiz.core.plan.rows import PaddedCost, arranged_padding, arrangement_of, multiple_of, step_padding
from trainwiz.core.plan.words import GIB

# Resolves data.pad_to_multiple_of: how far the length of a micro-batch is rounded up for the kernels.

KEY = "data.pad_to_multiple_of"
FIRST_TENSOR_CORES = (7, 0)
BYTES_AT_ONCE = 16
"""Kernels of tensor cores read rows of a matrix in pieces of so many bytes (NVIDIA, Matrix Multiplication Background,
"Tensor Core Requirements"); where the mask of SDPA is not so aligned, torch copies it in every layer (pad_bias in
aten/src/ATen/native/transformers/attention.cpp)."""
LENGTHS_OF_ONEDNN = 32
"""Most lengths of micro-batches in half precision on a CPU. oneDNN keeps blocks for each, and the memory that is freed between
these is not used again (docs/environment.md, "Memory that a process keeps")."""
BYTES_OF_A_NUMBER = {"fp16": 2, "bf16": 2, "bf16-true": 2, "tf32": 4}


def resolve_rounding(draft: Draft, devices: Devices, data: DataSummary | None) -> None:
    """Device, precision and joined texts are resolved before; of `data` the longest row counts.

    torch.compile asks for no more: with lengths that may change it makes two graphs, whatever the lengths are
    (training/compiling.py), and each further bucket of fixed length would only add padding.
    """
    multiple, why = _multiple(draft, devices, data)
    draft.resolve(KEY, multiple, why)


def _multiple(draft: Draft, devices: Devices, data: DataSummary | None) -> tuple[int, str]:
    precision = str(draft.get("engine.precision"))
    if precision == "fp32" and draft.get("engine.tf32"):
        precision = "tf32"
    if joins_texts(draft.view()):
        return 1, tr("joined texts have one length")
    if devices.device == "cpu" and BYTES_OF_A_NUMBER.get(precision) == HALF:
        return _of_onednn(draft, precision, data)
    if devices.device != "cuda":
        return 1, tr("only tensor cores gain from more")
    if precision not in BYTES_OF_A_NUMBER:
        return 1, tr("{precision} does not use tensor cores", precision=precision)
    if any(_is_older(gpu.compute_capability) for gpu in devices.gpus):
        return 1, tr("the card has no tensor cores")
    multiple = BYTES_AT_ONCE // BYTES_OF_A_NUMBER[precision]
    return multiple, tr(
        "tensor cores take {bytes} bytes at once: {n} numbers of {precision}",
        bytes=BYTES_AT_ONCE,
        n=multiple,
        precision=precision,
    )


def _of_onednn(draft: Draft, precision: str, data: DataSummary | None) -> tuple[int, str]:
    longest = int(draft.get("batch.sequence_length"))
    if data is not None and len(data.lengths):
        longest = min(longest, max((*data.lengths, *data.target_lengths)))
    multiple = 1
    while longest > multiple * LENGTHS_OF_ONEDNN:
        multiple *= 2
    return multiple, tr(
        "in {precision} a CPU keeps memory for each length of a micro-batch: {n} of them at most",
        precision=precision,
        n=-(-longest // multiple),
    )


def _is_older(capability: str | None) -> bool:
    """Than tensor cores; an unknown one is taken for a newer."""
    parts = (capability or "").split(".")
    return all(part.isdigit() for part in parts) and tuple(map(int, parts)) < FIRST_TENSOR_CORES


# Resolves the batch: micro-batch from memory, accumulation from the target, checkpointing where it is needed.

GPU_CEILING = 256
"""Larger micro-batches fill no modern card better."""
CPU_CEILING = 16
"""A CPU gains nothing from a larger one."""
FEW = 4
"""Below this many sequences at once a card is badly used, and recomputing activations pays."""


def resolve_sizes(
    draft: Draft,
    work: Workload | None,
    devices: Devices,
    evidence: Evidence = NO_EVIDENCE,
    *,
    evaluates: bool = False,
) -> BatchSolution:
    """Fills micro-batch, accumulation and checkpointing. Without a known architecture the micro-batch is 1."""
    target = target_samples(draft)
    micro = draft.get("batch.micro_batch_size")
    accumulation = draft.get("batch.gradient_accumulation_steps")
    largest = _resolve_checkpointing(draft, work, devices, target, evidence, evaluates)
    solution = solve_batch(
        target_samples=target,
        world_size=devices.world_size,
        largest_micro_batch=largest if micro is None else micro,
        micro_batch=micro,
        accumulation=accumulation,
    )
    chosen = solution.chosen
    draft.resolve(
        "batch.micro_batch_size", chosen.micro_batch, _micro_reason(work, devices, chosen.micro_batch, largest)
    )
    length = int(draft.get("batch.sequence_length"))
    if target is None:
        reason = tr("no target batch: one micro-batch a step")
    else:
        reason = tr(
            "{factors} = {samples} sequences, {tokens} tokens",
            factors=f"{chosen.micro_batch} × {chosen.accumulation} × {chosen.world_size}",
            samples=f"{chosen.samples:,}",
            tokens=f"{chosen.samples * length:,}",
        )
    draft.resolve("batch.gradient_accumulation_steps", chosen.accumulation, reason)
    return solution


def resolve_evaluation(
    draft: Draft,
    work: Workload | None,
    devices: Devices,
    counted: DataSummary | None,
    evidence: Evidence = NO_EVIDENCE,
) -> None:
    """How many sequences are evaluated at once: as many as in training, fewer where their logits need more memory."""
    key = "batch.eval_micro_batch_size"
    micro = int(draft.get("batch.micro_batch_size"))
    if not draft.is_open(key):
        return
    if work is None or devices.capacity_bytes is None:
        draft.put(key, micro, tr("as in training"))
        return
    capacity = devices.capacity_bytes // (devices.processes if devices.device == "cpu" else 1)
    generates = bool(draft.get("evaluation.generate"))
    longest = longest_generation(draft.view()) if generates else 0
    size = micro
    while size > 1:
        evaluating = replace(work, eval_micro_batch=size, generation_length=longest)
        then = estimate_evaluation(evaluating, evidence)
        if then is None or then.safe_bytes <= capacity:
            break
        if then.allocated_bytes <= estimate_memory(evaluating, evidence).allocated_bytes:
            break
        size //= 2
    same, less = (
        tr("as in training: evaluation needs no more memory"),
        tr("more would need more memory than training"),
    )
    draft.put(key, size, same if size == micro else less)


def target_samples(draft: Draft) -> float | None:
    """The target in sequences: a token target counts full-length ones, one of real tokens those of the data.

    None without a target, and for one of real tokens where the lengths of the rows are not known.
    """
    tokens, samples = draft.get("batch.target_tokens"), draft.get("batch.target_samples")
    real = draft.get("batch.target_real_tokens")
    if samples is not None:
        return float(samples)
    if tokens is not None:
        return float(tokens / int(draft.get("batch.sequence_length")))
    return None if real is None or not draft.mean_length else float(real / draft.mean_length)


def _resolve_checkpointing(
    draft: Draft, work: Workload | None, devices: Devices, target: float | None, evidence: Evidence, evaluates: bool
) -> int:
    """Decides checkpointing where it is open; returns the largest micro-batch that then fits (at least 1)."""
    given = draft.get("batch.micro_batch_size")
    if work is None or devices.capacity_bytes is None:
        draft.resolve("engine.checkpointing", False, tr("off: the memory it would save is not known"))
        return int(given or 1)
    ceiling = CPU_CEILING if devices.device == "cpu" else GPU_CEILING
    if target is not None:
        ceiling = max(1, min(ceiling, math.ceil(target / devices.world_size)))
    share = devices.capacity_bytes // (devices.processes if devices.device == "cpu" else 1)
    fixed = draft.get("batch.gradient_accumulation_steps")

    evaluated = draft.get("batch.eval_micro_batch_size")

    def sized(size: int) -> Workload:
        """With the accumulation that comes with so many sequences at once, and as many evaluated."""
        accumulation = fixed or 1
        if fixed is None and target is not None:
            accumulation = accumulation_for(target, size, devices.world_size)
        sizes = work.with_micro_batch(size, accumulation)
        return replace(sizes, eval_micro_batch=evaluated or size) if evaluates else sizes

    if not draft.is_open("engine.checkpointing"):
        return max(1, _largest(sized, ceiling, share, evidence)) if given is None else int(given)
    if given is not None:
        plain = replace(sized(int(given)), checkpointing=False)
        fits = estimate_memory(plain, evidence).verdict(share) == "fits"
        reason = (
            tr("off: {given} sequences fit without", given=given)
            if fits
            else tr("{given} sequences do not fit without", given=given)
        )
        draft.resolve("engine.checkpointing", not fits, reason)
        return int(given)
    without = _largest(lambda size: replace(sized(size), checkpointing=False), ceiling, share, evidence)
    if without >= min(FEW, ceiling):
        draft.resolve(
            "engine.checkpointing", False, tr("off: {without} sequences at once fit without", without=without)
        )
        return without
    within = _largest(lambda size: replace(sized(size), checkpointing=True), ceiling, share, evidence)
    if within > without or (within == 1 and _safer(sized(1), share, evidence)):
        if within == without:
            reason = tr("one sequence at once fits safely with it, and not without")
        elif without:
            reason = trn(
                "{n} sequence at once fits without, {within} with it",
                "{n} sequences at once fit without, {within} with it",
                without,
                within=within,
            )
        else:
            reason = tr("no sequences at once fit without, {within} with it", within=within)
        draft.resolve("engine.checkpointing", True, reason)
        return within
    draft.resolve("engine.checkpointing", False, tr("off: it would not make a larger micro-batch fit"))
    return max(1, without)


def _safer(work: Workload, share: int, evidence: Evidence) -> bool:
    """Whether checkpointing makes this work fit with its upper estimate, which it does not without."""
    plain, less = (estimate_memory(replace(work, checkpointing=on), evidence).safe_bytes for on in (False, True))
    return plain > share >= less


def _largest(sized: Callable[[int], Workload], ceiling: int, share: int, evidence: Evidence) -> int:
    """The largest micro-batch up to `ceiling` that fits; 0 where not one does. One alone, without a second
    micro-batch that meets the gradients of the first, may fit where a smaller one does not."""
    if estimate_memory(sized(ceiling), evidence).safe_bytes <= share:
        return ceiling
    return largest_micro_batch(sized(1), share, max(1, ceiling - 1), evidence)


def _micro_reason(work: Workload | None, devices: Devices, chosen: int, largest: int) -> str:
    if work is None or devices.capacity_bytes is None:
        return tr("memory is not known: the smallest")
    if devices.device == "cpu":
        return (
            tr("enough to keep the cores busy")
            if chosen >= largest
            else tr("divides the target (up to {largest})", largest=largest)
        )
    free = f"{devices.capacity_bytes / GIB:.1f} GiB"
    if chosen == largest:
        return tr("the largest useful one that fits in {free}", free=free)
    return tr("hits the target best; up to {largest} fit in {free}", largest=largest, free=free)


def batch_plan(
    draft: Draft, solution: BatchSolution, data: DataSummary | None, computed: PaddedCost | None = None
) -> BatchPlan:
    """The batch as it is shown."""
    chosen, length = solution.chosen, int(draft.get("batch.sequence_length"))
    groups, joined = chosen.accumulation * chosen.world_size, bool(draft.get("data.concatenate"))
    multiple = multiple_of(draft.get)
    drawn = padding = step_padding(data, length, chosen.micro_batch, groups, joined=joined, multiple=multiple)
    arrangement = arrangement_of(draft.get)
    if arrangement != "drawn" and not joined:
        target = int(draft.get("batch.target_length") or length)
        padding = arranged_padding(data, length, target, chosen.micro_batch, groups, arrangement, multiple)
    return BatchPlan(
        micro_batch=chosen.micro_batch,
        accumulation=chosen.accumulation,
        world_size=chosen.world_size,
        sequence_length=length,
        effective_samples=chosen.samples,
        effective_tokens=chosen.samples * length,
        real_tokens=round(padding.real) if padding else None,
        target_tokens=draft.get("batch.target_tokens"),
        target_samples=draft.get("batch.target_samples"),
        deviation=solution.deviation,
        alternatives=tuple(
            BatchAlternative(one.micro_batch, one.accumulation, one.samples, one.samples * length, off)
            for one, off in solution.alternatives
        ),
        target_real_tokens=draft.get("batch.target_real_tokens"),
        padded_tokens=round(padding.padded) if padding else None,
        padding_waste=padding.waste if padding else None,
        drawn_tokens=round(drawn.padded) if drawn else None,
        drawn_waste=drawn.waste if drawn else None,
        arranged_waste=padding.arranged_waste if padding else None,
        operations_gain=computed.gain if computed else None,
        possible_operations_gain=computed.possible_gain if computed else None,
    )
