"""The peak of one training step, of evaluating and of generating: the maximum over its moments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from trainwiz.core.estimate.activations import (
    block_bytes,
    checkpoint_bytes,
    evaluation_bytes,
    loss_bytes,
    positions_of,
    slice_weight_bytes,
    sliced,
    weight_copy_bytes,
    working_bytes,
)
from trainwiz.core.estimate.states import States, states_of
from trainwiz.core.estimate.workload import HALF, KINDS, SINGLE, Moment, Workload, layer_name
from trainwiz.core.language import mark

# What a process holds on its device beside its tensors: context, library workspaces, cached blocks.

GIB, MIB = 2**30, 2**20

CONTEXT_BYTES = int(0.45 * GIB)
"""CUDA context and library handles of one process: 0.3 to 0.7 GB on today's CUDA."""
HOPPER_CONTEXT_BYTES = int(0.72 * GIB)
"""The same on an H100 with CUDA 13: 0.70 to 0.74 GiB in four runs."""
CONTEXT_SPREAD_BYTES = int(0.2 * GIB)
KNOWN_CONTEXT_SPREAD_BYTES = int(0.1 * GIB)
"""Of a context that was stated or measured: CUDA loads kernels as they are first used, so it grows a little."""
NCCL_BYTES = int(0.35 * GIB)
"""Buffers of NCCL in each process of several: 0.2 to 0.5 GB."""
NCCL_SPREAD_BYTES = int(0.15 * GIB)
PROCESS_BYTES = int(0.75 * GIB)
"""Resident memory of a CPU training process before its model: torch, transformers and their allocator."""
PROCESS_SPREAD_BYTES = int(0.25 * GIB)
BLAS_HANDLES = 2
"""cuBLAS has a handle, and with it a workspace, in each thread that computes: forward and backward pass."""
BLAS_WORKSPACE_BYTES = int(8.125 * MIB)
"""Of one handle and stream: torch's default of eight blocks of 16 KiB and two of 4 MiB."""
HOPPER_WORKSPACE_BYTES = 32 * MIB
"""The same on sm 9.0."""
HOPPER = "9.0"


@dataclass(frozen=True, slots=True)
class Reserved:
    low: float
    likely: float
    high: float


CACHED = Reserved(1.02, 1.07, 1.16)
"""Of torch's caching allocator, replayed over traces of forty families: 5 %, half and 90 % of those above 3 GiB. The last
is what must fit: beyond it are free blocks, which torch gives back before it fails."""
VARIED = Reserved(1.02, 1.5, 1.16)
"""The same where rows are of varied lengths and no replay knows them: each longer row leaves blocks that the next does not
fill. Half of the replays in docs/estimator.md, "Rows of varied lengths"."""
BEYOND_ALONE, BEYOND_VARIED, BEYOND_SHARDED = 0.4, 0.7, 0.3
"""The allocator may hold so much more: than its replay in one process; than VARIED; than its replay in processes that share a
model out (parts are gathered and given back on streams of their own). With the first and the last, plans of today hold nine
of ten published rows, most of them of older code: rows whose code was read and traced need 10 % in one process. The middle
one is of replays for varied lengths (docs/estimator.md)."""
RESIDENT = Reserved(1.0, 1.1, 1.4)
"""Of a process on a CPU: resident over live tensors."""
RESIDENT_IN_HALF = Reserved(1.1, 2.4, 3.0)
"""The same in half precision: of its first step, of a long run and of its peaks. oneDNN keeps blocks for every length of
rows, and glibc does not use freed memory between them again (docs/environment.md, "Memory that a process keeps")."""


@dataclass(frozen=True, slots=True)
class Overheads:
    context: int
    spread: int
    """The context may be so much more or less."""
    workspace: int
    """A part of what torch counts as allocated."""
    reserved: Reserved


def overheads(work: Workload) -> Overheads:
    if work.device == "cpu":
        resident = RESIDENT if work.precision in ("fp32", "tf32") else RESIDENT_IN_HALF
        return Overheads(PROCESS_BYTES, PROCESS_SPREAD_BYTES, 0, resident)
    if work.device != "cuda":
        return Overheads(CONTEXT_BYTES, CONTEXT_SPREAD_BYTES, 0, CACHED)
    hopper = work.capability == HOPPER
    context, spread = HOPPER_CONTEXT_BYTES if hopper else CONTEXT_BYTES, CONTEXT_SPREAD_BYTES
    if work.context_bytes is not None:
        context, spread = work.context_bytes, KNOWN_CONTEXT_SPREAD_BYTES
    if work.world_size > 1:
        context, spread = context + NCCL_BYTES, spread + NCCL_SPREAD_BYTES
    workspace = HOPPER_WORKSPACE_BYTES if hopper else BLAS_WORKSPACE_BYTES
    return Overheads(context, spread, BLAS_HANDLES * workspace, CACHED)


def lengths_guessed(work: Workload, *, replayed: bool) -> bool:
    """Rows on a GPU vary, or may, and no replay knows how."""
    return work.device != "cpu" and work.varies and not (replayed and work.step_lengths)


def beyond(work: Workload, *, replayed: bool) -> float:
    """The process may hold so much more than is likely, as a share of that; `replayed`: than the most of its replays."""
    if work.device == "cpu":
        resident = overheads(work).reserved
        return resident.high / resident.likely - 1
    shared = BEYOND_SHARDED if work.shares_states else BEYOND_ALONE
    return max(shared, BEYOND_VARIED) if lengths_guessed(work, replayed=replayed) else shared


@dataclass(frozen=True, slots=True)
class Peak:
    """The moments of a step, and the fullest one."""

    moments: tuple[Moment, ...]
    states: States

    @property
    def moment(self) -> Moment:
        return max(self.moments, key=lambda moment: moment.bytes)

    @property
    def allocated_bytes(self) -> int:
        return self.moment.bytes


def peak_of(work: Workload) -> Peak:
    """Bytes allocated by torch on one device (CUDA context and cached free blocks not counted)."""
    states, kept = states_of(work), _kept(work)
    return Peak(
        (*_around_the_loss(work, states, kept), *_backward(work, states, kept), _optimizer_step(states)), states
    )


def _around_the_loss(work: Workload, states: States, kept: int) -> tuple[Moment, ...]:
    """The end of the forward pass, and the loss's backward pass, with the copies of weights that autocast still keeps."""
    before = partial(_before_step, work, states, activations=kept + _head_bytes(work))
    copies, positions = _vocabulary_copy(work), positions_of(work, work.micro_batch)
    logits = 0 if sliced(work) else work.formats.compute * positions * work.architecture.vocabulary
    # With checkpointing, autocast's cache still holds every weight.
    every_copy = max(copies, _copies(work) * work.checkpointing)
    # The logits themselves are gone in the loss. DeepSpeed's buckets are made before the backward pass begins, as the traced
    # tier counts them.
    buffers = states.backward_buffers if work.deepspeed else 0
    in_loss = copies + slice_weight_bytes(work)
    return (
        before(mark("the end of the forward pass"), logits=logits, temporary=every_copy),
        before(
            mark("the start of the backward pass, in the loss"),
            gradients=buffers,
            logits=loss_bytes(work),
            temporary=in_loss,
        ),
    )


def _backward(work: Workload, states: States, kept: int) -> tuple[Moment, ...]:
    """The last block's backward pass, while every other block still waits with its activations; that of the first one, when
    every other gradient is there, the token table's not yet; and that of the token table."""
    before, architecture = partial(_before_step, work, states, backward=True), work.architecture
    first, last, rows = architecture.blocks[0], architecture.blocks[-1], work.micro_batch
    table, tied = architecture.vocabulary_parameters * work.formats.weights, architecture.tied and not work.lora
    # Micro-batches are summed into gradients that are there already; alone, one gradient after the other appears.
    summed = work.accumulation > 1 or states.flat_gradients
    growing = 0 if summed or work.lora or not states.gradients else table
    if work.trains_table and work.accumulation == 1:
        growing = architecture.vocabulary_parameters * work.formats.adapters
    # The head's gradient of a tied table waits for the embedding's; it counts as a gradient unless those are there.
    waiting = table if tied and not growing else 0
    late = first.parameters + architecture.embedding_parameters - tied * architecture.vocabulary_parameters
    present = 1.0 if work.lora else max(0.0, 1 - late / architecture.trainable_parameters)
    gradients = 0 if summed else states.gradients
    recomputed = block_bytes(work, last) if work.checkpointing else 0
    again = checkpoint_bytes(work, first) + _embedding_bytes(work) if work.checkpointing else 0
    return (
        before(
            layer_name(architecture.layers),
            gradients=growing,
            activations=kept + recomputed,
            temporary=working_bytes(work, last, rows) + waiting,
        ),
        before(
            layer_name(1),
            gradients=states.half_gradients + int(gradients * present),
            activations=block_bytes(work, first) + again,
            temporary=working_bytes(work, first, rows) + waiting,
        ),
        # A tied table has two gradients, which are added up; the one that stays is one of them unless micro-batches are
        # summed.
        before(
            mark("the end of the backward pass, at the token embeddings"),
            gradients=states.half_gradients + gradients,
            temporary=table * tied * (2 if summed else 1),
        ),
    )


def _optimizer_step(states: States) -> Moment:
    return _moment(
        mark("the optimizer step"),
        weights=states.weights,
        gradients=states.gradients + states.buckets,
        optimizer=states.optimizer,
        temporary=states.step_temporary,
    )


def _moment(name: str, **parts: int) -> Moment:
    return Moment(name, dict.fromkeys(KINDS, 0) | parts)


def _before_step(
    work: Workload, states: States, name: str, *, backward: bool = False, gradients: int = 0, **parts: int
) -> Moment:
    """With what is there at every moment before the step, gradients too when micro-batches are summed.

    `backward`: the buffers of communication are there, and gradients that are one buffer.
    """
    stand = work.accumulation > 1 or states.standing_gradients or (backward and states.flat_gradients)
    gradients += states.buckets + states.gradients * stand + states.backward_buffers * backward
    weights = states.weights + states.gathered
    return _moment(name, weights=weights, gradients=gradients, optimizer=states.optimizer, **parts)


def _kept(work: Workload) -> int:
    """Activations of all blocks and of the embedding at the end of the forward pass."""
    kept = checkpoint_bytes if work.checkpointing else block_bytes
    total = sum(block.layers * kept(work, block) for block in work.architecture.blocks)
    return total + _embedding_bytes(work)


def _embedding_bytes(work: Workload) -> int:
    streams = work.tokens * (1 + work.architecture.embedding_temporaries)
    if work.architecture.kind == "encoder-decoder":
        streams += work.micro_batch * (work.target_length + work.length)
    return streams * work.architecture.hidden * work.formats.residual


def _head_bytes(work: Workload) -> int:
    """The final norm, and the transform of a masked-LM head."""
    formats, architecture = work.formats, work.architecture
    width = architecture.hidden * positions_of(work, work.micro_batch)
    if sliced(work):
        # The labelled rows of the head's input are taken out of it; their gradient is as large.
        transformed = 3 * formats.residual + 3 * formats.compute if architecture.transform_head else 0
        return width * (2 * formats.residual + transformed)
    if not architecture.transform_head:
        return width * (formats.norm + (0 if work.lora else formats.compute))
    copies = 3 if architecture.blocks[-1].activation == "erf_unfused" else 1
    return width * (2 * formats.residual + (2 + copies) * formats.compute)


def _vocabulary_copy(work: Workload) -> int:
    """Autocast's copy of the weights of the head, which the backward pass needs again."""
    architecture = work.architecture
    elements = architecture.hidden**2 if architecture.transform_head else 0
    return weight_copy_bytes(work, elements + (0 if sliced(work) else architecture.vocabulary_parameters))


def _copies(work: Workload) -> int:
    """Of autocast, on this device. FSDP gathers weights in the format that they compute in."""
    return 0 if work.strategy == "fsdp" else weight_copies(work)


def weight_copies(work: Workload) -> int:
    """Autocast keeps a half-precision copy of every trained matrix through the forward pass, where nothing is shared out."""
    if not work.formats.autocast:
        return 0
    return HALF * (work.adapter_parameters if work.lora else work.architecture.linear_parameters)


def evaluation_peak(work: Workload) -> Peak | None:
    """Between two steps, while held-out rows are evaluated; None where there are none.

    The logits are read inside the forward pass, while autocast still keeps its copies of the weights.
    """
    if work.eval_micro_batch == 0:
        return None
    rows, architecture = work.eval_micro_batch, work.architecture
    hidden = max(block.hidden for block in architecture.blocks)
    stream = rows * (work.length + (work.target_length if architecture.kind == "encoder-decoder" else 0)) * hidden
    # Forward, what goes into the activation function is still there.
    inside = max(
        working_bytes(work, block, rows) + rows * work.queries_of(block) * block.ffn * work.formats.compute
        for block in architecture.blocks
    )
    logits = evaluation_bytes(work)
    return _between_steps(
        work,
        mark("an evaluation"),
        activations=2 * stream * work.formats.residual,
        logits=logits if logits >= inside else 0,
        temporary=_copies(work) + (0 if logits >= inside else inside),
    )


SCORE_COPIES = 4
"""fp32 tensors of one score for each beam and word: logits, log-softmax, the processed and the summed scores."""


def generation_peak(work: Workload) -> Peak | None:
    """Likewise while text is generated: keys and values of every beam, and the scores of one position. No trace knows it:
    in 18 traced searches of six families this was 3 % below to 6 % above, and training took more in each."""
    if work.eval_micro_batch == 0 or work.generation_length == 0:
        return None
    beams = work.eval_micro_batch * work.beams
    cache = beams * cache_bytes_per_row(work)
    layers = sum(block.layers for block in work.architecture.blocks if block.causal)
    # The encoder has run by then.
    encoder = sum(block.layers * block.cast_parameters for block in work.architecture.blocks if not block.causal)
    copies = max(0, _copies(work) - HALF * encoder * (not work.lora))
    return _between_steps(
        work,
        mark("generating text in an evaluation"),
        activations=cache,
        logits=SCORE_COPIES * SINGLE * beams * work.architecture.vocabulary,
        # Appending a position, and sorting the beams, copy the cache of one layer.
        temporary=copies + cache // max(1, layers),
    )


def _between_steps(work: Workload, name: str, **parts: int) -> Peak:
    """Gradients are gone then, optimizer states and communication buffers are not."""
    states = states_of(work)
    gradients = states.buckets + (states.gradients if states.standing_gradients else 0)
    there = {"weights": states.weights + states.gathered, "gradients": gradients, "optimizer": states.optimizer}
    return Peak((_moment(name, **there, **parts),), states)


def cache_bytes_per_row(work: Workload) -> int:
    """Keys and values of one beam at the end of its text; an encoder-decoder adds those of the source, and its states."""
    # A decoder's prompt and answer share the sequence (core/data/lengths.py); beside an encoder it has the source's too.
    paired = work.architecture.kind == "encoder-decoder"
    positions = work.length + (work.generation_length if paired else 0)
    width = sum(2 * block.layers * block.kv_width for block in work.architecture.blocks if block.causal)
    encoded = work.length * work.architecture.hidden * work.formats.residual if paired else 0
    return width * positions * work.formats.compute + encoded
