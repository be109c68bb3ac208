"""The batch: micro-batch from memory, accumulation from the target, rounding."""

from __future__ import annotations

import math
from dataclasses import replace

from trainwiz.core.batch import accumulation_for, solve_batch
from trainwiz.core.catalog.model_config import TRIED
from trainwiz.core.data.lengths import joins_texts, longest_generation
from trainwiz.core.estimate.memory import estimate_evaluation, estimate_memory, largest_micro_batch
from trainwiz.core.estimate.workload import HALF, Workload
from trainwiz.core.language import tr
from trainwiz.core.plan.result import BatchAlternative, BatchPlan, Plan
from trainwiz.core.plan.rows import arrangement_of, step_padding
from trainwiz.core.plan.tasks import evaluates
from trainwiz.core.plan.words import counted, gib
from trainwiz.core.plan.workload import workload_of

# Resolves data.pad_to_multiple_of: how far the length of a micro-batch is rounded up for the kernels.

FIRST_TENSOR_CORES = (7, 0)
BYTES_AT_ONCE = 16
"""Kernels of tensor cores read rows of a matrix in pieces of so many bytes (NVIDIA, Matrix Multiplication Background,
"Tensor Core Requirements"); where the mask of SDPA is not so aligned, torch copies it in every layer (pad_bias in
aten/src/ATen/native/transformers/attention.cpp)."""
LENGTHS_OF_ONEDNN = 32
"""Most lengths of micro-batches in half precision on a CPU. oneDNN keeps blocks for each, and the memory that is freed between
these is not used again (docs/environment.md, "Memory that a process keeps")."""
BYTES_OF_A_NUMBER = {"fp16": 2, "bf16": 2, "bf16-true": 2, "tf32": 4}


def resolve_rounding(plan: Plan) -> None:
    """Device, precision and joined texts are resolved before; of the data the longest row counts.

    torch.compile asks for no more: with lengths that may change it makes two graphs, whatever the lengths are
    (training/compiling.py), and each further bucket of fixed length would only add padding.
    """
    precision, device = str(plan.get("engine.precision")), plan.devices.device
    if precision == "fp32" and plan.get("engine.tf32"):
        precision = "tf32"
    multiple = 1
    old = any(gpu.capability is not None and gpu.capability < FIRST_TENSOR_CORES for gpu in plan.devices.gpus)
    if joins_texts(plan.view()):
        why = tr("concatenated texts have one length")
    elif device == "cpu" and BYTES_OF_A_NUMBER.get(precision) == HALF:
        longest = int(plan.get(LENGTH))
        if plan.data is not None and len(plan.data.lengths):
            longest = min(longest, max((*plan.data.lengths, *plan.data.target_lengths)))
        while longest > multiple * LENGTHS_OF_ONEDNN:
            multiple *= 2
        why = tr(
            "in {precision}, a CPU keeps memory for each micro-batch length: at most {n} lengths",
            precision=precision,
            n=-(-longest // multiple),
        )
    elif device != "cuda" or precision not in BYTES_OF_A_NUMBER or old:
        why = tr("only tensor cores benefit from a larger one, and {precision} uses none here", precision=precision)
    else:
        multiple = BYTES_AT_ONCE // BYTES_OF_A_NUMBER[precision]
        why = tr(
            "tensor cores process {bytes} bytes at a time: {n} values in {precision}",
            bytes=BYTES_AT_ONCE,
            n=multiple,
            precision=precision,
        )
    plan.resolve("data.pad_to_multiple_of", multiple, why)


# Resolves the batch: micro-batch from memory, accumulation from the target, checkpointing where it is needed.

GPU_CEILING = 256
"""Larger micro-batches fill no modern card better."""
CPU_CEILING = 16
"""A CPU gains nothing from a larger one."""
FEW = 4
"""Below this many sequences at once a card is badly used, and recomputing activations pays."""


LENGTH, TARGET = "batch.sequence_length", "batch.target_length"
TARGETS = ("batch.target_samples", "batch.target_tokens", "batch.target_real_tokens")
"""In the order in which they are followed."""
ROUND_LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
MICRO, ACCUMULATION = "batch.micro_batch_size", "batch.gradient_accumulation_steps"
EVALUATED, CHECKPOINTING = "batch.eval_micro_batch_size", "engine.checkpointing"


def resolve_sizes(plan: Plan) -> None:
    """Fills micro-batch, accumulation and checkpointing. Without a known architecture the micro-batch is 1."""
    target, micro, work = target_samples(plan), plan.get(MICRO), workload_of(plan, evaluates=evaluates(plan))
    was_open = plan.is_open(CHECKPOINTING)
    largest = _in_slices(plan, work, target, _resolve_checkpointing(plan, work, target), was_open=was_open)
    plan.solution = solve_batch(
        target_samples=target,
        world_size=plan.devices.world_size,
        largest_micro_batch=largest if micro is None else micro,
        micro_batch=micro,
        accumulation=plan.get(ACCUMULATION),
    )
    chosen = plan.solution.chosen
    plan.resolve(MICRO, chosen.micro_batch, _micro_reason(plan, work, chosen.micro_batch, largest))
    reason = tr(
        "{factors} = {samples} sequences, {tokens} tokens",
        factors=f"{chosen.micro_batch} × {chosen.accumulation} × {chosen.world_size}",
        **counted(samples=chosen.samples, tokens=chosen.samples * int(plan.get(LENGTH))),
    )
    plan.resolve(ACCUMULATION, chosen.accumulation, reason)


# The loss in slices of the vocabulary: chosen where the logits fill the card, and slices cost no time.

CHUNK, LOSS_CHUNK = "training.loss_chunk", 512
LEAST_SAVED = 0.2
"""Of the peak: what saves less is not worth another way to compute."""
MOST_LEARNT = 0.6
"""Of the tokens. Slices are made of learnt tokens alone, and once more in the backward pass: at most 3 products with the
vocabulary for 2 of whole logits. With 40 % learnt, steps on a CPU took 0.75 of the time; with all learnt 1.11 (adapters) and
1.27 (all weights) times as long, where the vocabulary is 39 % of the model."""


def _in_slices(plan: Plan, work: Workload | None, target: float | None, largest: int, *, was_open: bool) -> int:
    """The largest micro-batch that fits: with the loss in slices where that is chosen, else `largest`.

    `was_open`: nobody chose checkpointing, which is decided anew.
    """
    share = plan.share_bytes
    # A profile is a recipe, which says so where its loss is in slices.
    chosen = not plan.is_open(CHUNK) or plan.config.origin(CHUNK).origin == "you" or plan.based_on is not None
    tried = plan.devices.device == "cuda" and plan.model_type in TRIED and plan.get("task") == "causal-lm"
    alone = plan.get("engine.strategy") in ("single", "ddp") and not plan.get("engine.compile")
    if chosen or work is None or share is None or not tried or not alone:
        return largest
    size, checkpoints = int(plan.get(MICRO) or largest), bool(plan.get(CHECKPOINTING))
    whole = replace(work.with_micro_batch(size, work.accumulation), checkpointing=checkpoints)
    now, then = (estimate_memory(replace(whole, loss_chunk=chunk), plan.evidence) for chunk in (None, LOSS_CHUNK))
    if then.allocated_bytes > (1 - LEAST_SAVED) * now.allocated_bytes:
        return largest
    kept = dict(plan.values), dict(plan.reasons)
    if was_open:
        plan.values[CHECKPOINTING] = None
    more = _resolve_checkpointing(plan, replace(work, loss_chunk=LOSS_CHUNK), target)
    # What outweighs the product that slices cost: few tokens in them, a run that fits, no recomputing, or a card in use.
    fits = now.verdict(share) != "fits" and then.verdict(share) == "fits"
    spares = checkpoints and not plan.get(CHECKPOINTING)
    if _learns_little(plan) or fits or spares or largest < FEW <= more:
        logits = gib(now.allocated_bytes - then.allocated_bytes)
        plan.put(CHUNK, LOSS_CHUNK, tr("full logits would take {logits} more at the peak", logits=logits))
        return more
    plan.values, plan.reasons = kept
    return largest


def _learns_little(plan: Plan) -> bool:
    look = plan.data.chats if plan.data is not None else None
    if look is None or look.problem:
        return False
    learnt, tokens = (sum(map(sum, part)) for part in (look.learnt, look.lengths))
    return learnt <= MOST_LEARNT * tokens


def resolve_evaluation(plan: Plan) -> None:
    """How many sequences are evaluated at once: as many as in training, fewer where their logits need more memory."""
    micro, share, work = int(plan.get(MICRO)), plan.share_bytes, workload_of(plan)
    if not plan.is_open(EVALUATED):
        return
    if work is None or share is None:
        plan.put(EVALUATED, micro, tr("as in training"))
        return
    longest = longest_generation(plan.view()) if plan.get("evaluation.generate") else 0
    size = max(1, most_evaluated(plan, replace(work, generation_length=longest), micro))
    reason = tr("as in training") if size == micro else tr("a larger one would need more memory than training")
    plan.put(EVALUATED, size, reason)


def most_evaluated(plan: Plan, work: Workload, size: int) -> int:
    """`size` where so many fit or need no more than training, else half of it, a quarter, ...; 0 for none."""
    training = estimate_memory(work, plan.evidence)
    while size:
        then = estimate_evaluation(replace(work, eval_micro_batch=size), plan.evidence)
        safe = then is None or then.safe_bytes <= (plan.share_bytes or 0)
        if then is None or safe or then.allocated_bytes <= training.allocated_bytes:
            return size
        size //= 2
    return 0


def target_samples(plan: Plan) -> float | None:
    """The target in sequences: a token target counts full-length ones, one of real tokens those of the data.

    None without a target, and for one of real tokens where the lengths of the rows are not known.
    """
    tokens, samples = plan.get("batch.target_tokens"), plan.get("batch.target_samples")
    real = plan.get("batch.target_real_tokens")
    if samples is not None:
        return float(samples)
    if tokens is not None:
        return float(tokens / int(plan.get("batch.sequence_length")))
    return None if real is None or not plan.mean_length else float(real / plan.mean_length)


def _resolve_checkpointing(plan: Plan, work: Workload | None, target: float | None) -> int:
    """Decides checkpointing where it is open; returns the largest micro-batch that then fits (at least 1)."""
    devices, evidence, given, share = plan.devices, plan.evidence, plan.get(MICRO), plan.share_bytes
    if work is None or share is None:
        plan.resolve(CHECKPOINTING, False, tr("off: the memory it would save is unknown"))
        return int(given or 1)
    ceiling = CPU_CEILING if devices.device == "cpu" else GPU_CEILING
    if target is not None:
        ceiling = max(1, min(ceiling, math.ceil(target / devices.world_size)))
    fixed, evaluated = plan.get(ACCUMULATION), plan.get(EVALUATED)

    def sized(size: int, checkpointing: bool) -> Workload:
        """With the accumulation that comes with so many sequences at once, and as many evaluated."""
        accumulation = fixed or 1
        if fixed is None and target is not None:
            accumulation = accumulation_for(target, size, devices.world_size)
        sizes = replace(work.with_micro_batch(size, accumulation), checkpointing=checkpointing)
        return replace(sizes, eval_micro_batch=evaluated or size) if evaluates(plan) else sizes

    def safe_bytes(size: int, checkpointing: bool) -> int:
        return estimate_memory(sized(size, checkpointing), evidence).safe_bytes

    def largest(checkpointing: bool) -> int:
        """Up to the ceiling; 0 where not one fits. One alone, without a second micro-batch that meets the gradients of
        the first, may fit where a smaller one does not."""
        if safe_bytes(ceiling, checkpointing) <= share:
            return ceiling
        return largest_micro_batch(sized(1, checkpointing), share, max(1, ceiling - 1), evidence)

    if not plan.is_open(CHECKPOINTING):
        return int(given or max(1, largest(work.checkpointing)))
    without = within = int(given or largest(False))
    on = given is not None and safe_bytes(without, False) > share
    if given is None and without < min(FEW, ceiling):
        within = largest(True)
        # One sequence that only may fit without it is safe with it.
        on = within > without or (within == 1 and safe_bytes(1, False) > share >= safe_bytes(1, True))
    why = tr("off: a micro-batch of {micro} fits without it", micro=without)
    if on:
        why = tr("a micro-batch of {micro} does not fit safely without it", micro=within)
    elif not without:
        why = tr("off: it would not make a larger micro-batch fit")
    plan.put(CHECKPOINTING, on, why)
    return max(1, within)


def _micro_reason(plan: Plan, work: Workload | None, chosen: int, largest: int) -> str:
    capacity = plan.devices.capacity_bytes
    if work is None or capacity is None:
        return tr("memory use is unknown: the smallest")
    if chosen == 1:
        one = replace(work.with_micro_batch(1, work.accumulation), checkpointing=bool(plan.get(CHECKPOINTING)))
        if estimate_memory(one, plan.evidence).verdict(capacity) == "does_not_fit":
            return tr("the smallest; even one sequence doesn't fit")
    if chosen == largest:
        return tr("the largest useful value that fits in {free}", free=gib(capacity))
    return tr("closest to the target; up to {largest} fit in {free}", largest=largest, free=gib(capacity))


def batch_plan(plan: Plan) -> None:
    """The batch as it is shown."""
    chosen, length, cost = plan.solution.chosen, int(plan.get("batch.sequence_length")), plan.padded
    drawn, padding = (step_padding(plan, arrangement) for arrangement in ("drawn", arrangement_of(plan)))
    plan.batch = BatchPlan(
        micro_batch=chosen.micro_batch,
        accumulation=chosen.accumulation,
        world_size=chosen.world_size,
        sequence_length=length,
        effective_samples=chosen.samples,
        effective_tokens=chosen.samples * length,
        real_tokens=round(padding.real) if padding else None,
        deviation=plan.solution.deviation,
        alternatives=tuple(
            BatchAlternative(other.micro_batch, other.accumulation, other.samples, other.samples * length, off)
            for other, off in plan.solution.alternatives
        ),
        **{name: plan.get(f"batch.{name}") for name in ("target_tokens", "target_samples", "target_real_tokens")},
        padded_tokens=round(padding.padded) if padding else None,
        padding_waste=padding.waste if padding else None,
        drawn_tokens=round(drawn.padded) if drawn else None,
        drawn_waste=drawn.waste if drawn else None,
        arranged_waste=padding.arranged_waste if padding else None,
        operations_gain=cost.drawn.flops / cost.cost.flops if cost else None,
        possible_operations_gain=cost.drawn.flops / cost.unpadded.flops if cost else None,
    )
