"""The peak of one training step, of evaluating and of generating: the maximum over its moments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainwiz.core.estimate.activations import (
    block_bytes,
    checkpoint_bytes,
    evaluation_bytes,
    handed_out_bytes,
    loss_backward_bytes,
    loss_forward_bytes,
    position_bias_bytes,
    positions_of,
    slice_weight_bytes,
    sliced,
    weight_copy_bytes,
    working_bytes,
)
from trainwiz.core.estimate.architecture import Block
from trainwiz.core.estimate.states import States, states_of, whole_bytes
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


SCORE_COPIES = 4
"""fp32 tensors of one score for each beam and word: logits, log-softmax, the processed and the summed scores."""


def evaluation_parts(work: Workload) -> dict[str, int]:
    """activations, logits and temporary of one evaluation batch beside what the process holds anyway.

    The logits are read inside the forward pass, while autocast still keeps its copies of the weights.
    """
    rows = work.eval_micro_batch
    hidden = max(block.hidden for block in work.architecture.blocks)
    stream = rows * (work.length + (work.target_length if work.architecture.kind == "encoder-decoder" else 0)) * hidden
    inside = max(_inside(work, block, rows) for block in work.architecture.blocks)
    logits = evaluation_bytes(work)
    during = max(inside, logits)
    return {
        "activations": 2 * stream * work.formats.residual,
        "logits": logits if during == logits else 0,
        "temporary": _copies(work) + (0 if during == logits else during),
    }


def generation_parts(work: Workload) -> dict[str, int]:
    """The same for a batch that generates: keys and values of every beam, and the scores of one position."""
    rows = work.eval_micro_batch * work.beams
    cache, copies = rows * cache_bytes_per_row(work), _copies(work)
    if copies and not work.lora:
        # The encoder has run by then.
        copies -= HALF * sum(
            block.layers * block.cast_parameters for block in work.architecture.blocks if not block.causal
        )
    layers = sum(block.layers for block in work.architecture.blocks if block.causal)
    return {
        "activations": cache,
        "logits": SCORE_COPIES * SINGLE * rows * work.architecture.vocabulary,
        # Appending a position, and sorting the beams, copy the cache of one layer.
        "temporary": copies + cache // max(1, layers),
    }


def cache_bytes_per_row(work: Workload) -> int:
    """Keys and values of one beam at the end of its text; an encoder-decoder adds those of the source."""
    # A decoder's prompt and answer share the sequence (core/data/lengths.py); beside an encoder it has the source's too.
    source = work.generation_length if work.architecture.kind == "encoder-decoder" else 0
    positions = work.length + source
    total = sum(
        2 * block.layers * positions * block.kv_width * work.formats.compute
        for block in work.architecture.blocks
        if block.causal
    )
    if work.architecture.kind == "encoder-decoder":
        total += work.length * work.architecture.hidden * work.formats.residual
    return total


def weight_copies(work: Workload) -> int:
    """Autocast keeps a half-precision copy of every trained matrix through the forward pass, where nothing is shared out."""
    if not work.formats.autocast:
        return 0
    return HALF * (work.adapter_parameters if work.lora else work.architecture.linear_parameters)


def _copies(work: Workload) -> int:
    """FSDP gathers weights in the format that they compute in: autocast copies nothing."""
    return 0 if work.strategy == "fsdp" else weight_copies(work)


_COPIES = {"erf_unfused": 4, "tanh_unfused": 4, "relu": 2, "fused": 2}
"""Tensors of the feed-forward width that an activation function has at once."""


def _inside(work: Workload, block: Block, rows: int) -> int:
    """Temporaries in the middle of one block's forward pass."""
    queries = work.queries_of(block)
    wide = SINGLE if work.formats.autocast and block.activation == "tanh_unfused" else work.formats.compute
    copies = _COPIES[block.activation] + (1 if block.gated else 0)
    inside = whole_bytes(work) + rows * queries * (copies * block.ffn * wide + 2 * block.hidden * work.formats.residual)
    if work.attention == "eager":
        inside = max(inside, 2 * SINGLE * rows * block.heads * queries * max(queries, work.length))
    return inside + position_bias_bytes(work, block, rows, queries)


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
    states = states_of(work)
    kept = _kept(work)
    moments = (
        *_around_the_loss(work, states, kept),
        _backward(work, states, kept),
        _last_block(work, states),
        _token_table(work, states),
        _optimizer_step(states),
    )
    return Peak(moments, states)


def _held(work: Workload, states: States, *, backward: bool = False, gradients: int = 0, **more: int) -> dict[str, int]:
    """What is there at every moment before the step, gradients too when micro-batches are summed, and `more` by its kind.

    `backward`: the buffers of communication are there, and gradients that are one buffer.
    """
    whole = states.flat_gradients and backward
    there = states.gradients if work.accumulation > 1 or states.standing_gradients or whole else 0
    return {
        "weights": states.weights + states.gathered,
        "gradients": there + states.buckets + (states.backward_buffers if backward else 0) + gradients,
        "optimizer": states.optimizer,
        "activations": 0,
        "logits": 0,
        "temporary": 0,
        **more,
    }


def _kept(work: Workload) -> int:
    """Activations of all blocks and of the embedding at the end of the forward pass."""
    kept = checkpoint_bytes if work.checkpointing else block_bytes
    total = sum(block.layers * kept(work, block) for block in work.architecture.blocks)
    return total + _embedding_bytes(work)


def _embedding_bytes(work: Workload) -> int:
    hidden = work.architecture.hidden * work.formats.residual
    streams = work.tokens * (1 + work.architecture.embedding_temporaries)
    if work.architecture.kind == "encoder-decoder":
        streams += work.micro_batch * (work.target_length + work.length)
    return streams * hidden


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


def _blocks_weight_copy(work: Workload) -> int:
    """With checkpointing, autocast's cache still holds every weight until the forward pass ends."""
    if not work.checkpointing:
        return 0
    if work.lora:
        return HALF * work.adapter_parameters if work.formats.autocast else 0
    return weight_copy_bytes(work, sum(block.layers * block.cast_parameters for block in work.architecture.blocks))


def _around_the_loss(work: Workload, states: States, kept: int) -> Iterator[Moment]:
    """From the model's last product to the gradient of its logits, with the copies of weights that autocast still keeps."""
    copies = _vocabulary_copy(work)
    whole = work.formats.compute * positions_of(work, work.micro_batch) * work.architecture.vocabulary
    loss = loss_forward_bytes(work)
    activations = kept + _head_bytes(work)

    def moment(name: str, logits: int, temporary: int = 0, gradients: int = 0) -> Moment:
        held = _held(
            work, states, gradients=gradients, activations=activations, logits=logits, temporary=copies + temporary
        )
        return Moment(name, held)

    in_slices = sliced(work)
    yield moment(
        mark("the end of the forward pass"),
        loss if in_slices else whole,
        _blocks_weight_copy(work) + slice_weight_bytes(work, backward=False),
    )
    # accelerate's copy of the logits in fp32, beside the logits themselves.
    yield moment(mark("the end of the forward pass, with outputs in fp32"), handed_out_bytes(work))
    yield moment(mark("the end of the forward pass, with the loss"), 0 if in_slices else loss)
    # The kept log-softmax and two gradients of the same size; the logits themselves are gone. DeepSpeed's buckets are
    # made before the backward pass begins, as the traced tier counts them.
    yield moment(
        mark("the start of the backward pass, in the loss"),
        loss_backward_bytes(work),
        slice_weight_bytes(work, backward=True),
        states.backward_buffers if work.deepspeed else 0,
    )


def _backward(work: Workload, states: States, kept: int) -> Moment:
    """The last block's backward pass, while every other block still waits with its activations."""
    last = work.architecture.blocks[-1]
    growing = work.architecture.vocabulary_parameters * work.formats.weights if _gradients_grow(work, states) else 0
    if work.trains_table and work.accumulation == 1:
        growing = work.architecture.vocabulary_parameters * work.formats.adapters
    parts = _held(
        work,
        states,
        backward=True,
        gradients=growing,
        activations=kept + (block_bytes(work, last) if work.checkpointing else 0),
        temporary=working_bytes(work, last) + _waiting_table(work, states),
    )
    return Moment(layer_name(work.architecture.layers), parts)


def _last_block(work: Workload, states: States) -> Moment:
    """The backward pass of the first block: every other gradient is there, the token table's not yet."""
    first, gradients = work.architecture.blocks[0], states.half_gradients
    if work.accumulation == 1 and not states.flat_gradients:
        late = first.parameters + work.architecture.embedding_parameters
        if work.architecture.tied:
            late -= work.architecture.vocabulary_parameters
        share = states.weights / max(1, states.weights + states.gathered) if states.gathered else 1.0
        gradients += max(0, states.gradients - (0 if work.lora else int(late * work.formats.weights * share)))
    again = checkpoint_bytes(work, first) + _embedding_bytes(work) if work.checkpointing else 0
    parts = _held(
        work,
        states,
        backward=True,
        gradients=gradients,
        activations=block_bytes(work, first) + again,
        temporary=working_bytes(work, first) + _waiting_table(work, states),
    )
    return Moment(layer_name(1), parts)


def _waiting_table(work: Workload, states: States) -> int:
    """The head's gradient of a tied table waits for the embedding's; it counts as a gradient unless those are there."""
    if work.lora or not work.architecture.tied or _gradients_grow(work, states):
        return 0
    return work.architecture.vocabulary_parameters * work.formats.weights


def _token_table(work: Workload, states: States) -> Moment:
    """The end of the backward pass. A tied table has two gradients, which are added up."""
    summed = work.accumulation > 1 or states.flat_gradients
    gradients = states.half_gradients + (0 if summed else states.gradients)
    table = 0
    if work.architecture.tied and not work.lora:
        # Both of its uses give a gradient; the one that stays is one of them unless micro-batches are summed.
        table = work.architecture.vocabulary_parameters * work.formats.weights * (2 if summed else 1)
    parts = _held(work, states, backward=True, gradients=gradients, temporary=table)
    return Moment(mark("the end of the backward pass, at the token embeddings"), parts)


def _gradients_grow(work: Workload, states: States) -> bool:
    """One gradient after the other appears in this backward pass."""
    return work.accumulation == 1 and not work.lora and not states.flat_gradients and states.gradients > 0


def _optimizer_step(states: States) -> Moment:
    parts = {
        "weights": states.weights,
        "gradients": states.gradients + states.buckets,
        "optimizer": states.optimizer,
        "temporary": states.step_temporary,
    }
    return Moment(mark("the optimizer step"), dict.fromkeys(KINDS, 0) | parts)


def evaluation_peak(work: Workload) -> Peak | None:
    """Likewise between two steps, while held-out rows are evaluated; None where there are none."""
    if work.eval_micro_batch == 0:
        return None
    return _between_steps(work, mark("an evaluation"), evaluation_parts(work))


def generation_peak(work: Workload) -> Peak | None:
    """Likewise while text is generated. No trace knows it: in 18 traced searches of six families this was 3 % below to
    6 % above, and training took more in each."""
    if work.eval_micro_batch == 0 or work.generation_length == 0:
        return None
    return _between_steps(work, mark("generating text in an evaluation"), generation_parts(work))


def _between_steps(work: Workload, name: str, parts: dict[str, int]) -> Peak:
    """Gradients are gone then, optimizer states and communication buffers are not."""
    states = states_of(work)
    standing = states.gradients if states.standing_gradients else 0
    there = {
        "weights": states.weights + states.gathered,
        "gradients": states.buckets + standing,
        "optimizer": states.optimizer,
    }
    return Peak((Moment(name, {**there, **parts}),), states)
