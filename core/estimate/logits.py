"""Bytes of the logits and of all that the loss makes of them (core/training/loss.py, sliced_loss.py, evaluation.py)."""

from __future__ import annotations

from trainwiz.core.estimate.logit_slices import COPY_BYTES, evaluation_slice
from trainwiz.core.estimate.workload import SINGLE, Workload


def positions_of(work: Workload, rows: int) -> int:
    """Positions of `rows` sequences that get logits."""
    return rows if work.architecture.pooled else rows * work.decoded_length


def sliced(work: Workload) -> bool:
    """The vocabulary product is computed in slices: whole logits never exist."""
    return work.loss_chunk is not None and not work.architecture.pooled


def slice_positions(work: Workload) -> int:
    return min(work.loss_chunk or 0, positions_of(work, work.micro_batch))


def handed_out_bytes(work: Workload) -> int:
    """At the end of the forward pass: the logits, and accelerate's fp32 copy of them under autocast."""
    if sliced(work):
        return 0
    each = work.formats.compute + (SINGLE if work.formats.autocast else 0)
    return _all(work) * each


def loss_forward_bytes(work: Workload) -> int:
    """The logits, an fp32 copy where they are not in fp32, and their log-softmax; of one slice where it is sliced."""
    compute = work.formats.compute
    if sliced(work):
        return _slice(work) * (compute + (SINGLE if compute != SINGLE else 0) + SINGLE)
    out = SINGLE if work.formats.autocast else compute
    return _all(work) * (out + (SINGLE if out != SINGLE else 0) + SINGLE)


def loss_backward_bytes(work: Workload) -> int:
    """The kept log-softmax and two gradients of the same size; a slice has its logits beside them."""
    if sliced(work):
        compute = work.formats.compute
        return _slice(work) * (3 * SINGLE + compute + (compute if compute != SINGLE else 0))
    return _all(work) * 3 * SINGLE


def slice_weight_bytes(work: Workload, *, backward: bool) -> int:
    """What a sliced loss holds of the vocabulary's weights: their cast, and in the backward pass the sum of their
    gradients and the part of one slice."""
    if not sliced(work):
        return 0
    formats, elements = work.formats, work.architecture.vocabulary_parameters
    cast = elements * formats.compute if formats.compute != formats.weights else 0
    if not backward or work.lora:
        return cast
    return cast + elements * (formats.weights + formats.compute)


def evaluation_bytes(work: Workload) -> int:
    """The model's own logits, which are read before anything copies them, and one slice."""
    vocabulary = work.architecture.vocabulary
    positions = positions_of(work, work.eval_micro_batch)
    if sliced(work):
        compute = work.formats.compute
        each = 2 * compute + 2 * SINGLE if compute != SINGLE else 2 * SINGLE
        return min(work.loss_chunk or 0, positions) * vocabulary * each
    own = positions * vocabulary * work.formats.compute
    if work.architecture.pooled:
        return own + positions * vocabulary * 2 * SINGLE
    return own + min(positions, evaluation_slice(vocabulary)) * vocabulary * COPY_BYTES


def _all(work: Workload) -> int:
    return positions_of(work, work.micro_batch) * work.architecture.vocabulary


def _slice(work: Workload) -> int:
    return slice_positions(work) * work.architecture.vocabulary
