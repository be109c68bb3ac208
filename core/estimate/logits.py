"""Bytes of the logits and of all that the loss makes of them (core/training/loss.py, sliced_loss.py, evaluation.py)."""

from __future__ import annotations

from trainwiz.core.estimate.logit_slices import evaluation_slice
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
    return _all(work) * (each + kept_bytes(work))


def loss_forward_bytes(work: Workload) -> int:
    """The logits, an fp32 copy where they are not in fp32, and their log-softmax; of one slice where it is sliced."""
    compute = work.formats.compute
    if sliced(work):
        return _slice(work) * (compute + (SINGLE if compute != SINGLE else 0) + SINGLE + kept_bytes(work))
    out = SINGLE if work.formats.autocast else compute
    return _all(work) * (out + (SINGLE if out != SINGLE else 0) + SINGLE + kept_bytes(work))


def loss_backward_bytes(work: Workload) -> int:
    """The kept log-softmax and two gradients of the same size; a slice has its logits beside them."""
    if sliced(work):
        compute = work.formats.compute
        return _slice(work) * (3 * SINGLE + compute + (compute if compute != SINGLE else 0) + kept_bytes(work))
    return _all(work) * (3 * SINGLE + kept_bytes(work))


def kept_bytes(work: Workload) -> int:
    """For each logit: what a cap on the logits keeps for its gradient (Gemma 2)."""
    return work.formats.compute if work.architecture.capped_logits else 0


def slice_weight_bytes(work: Workload, *, backward: bool) -> int:
    """What a sliced loss holds of the vocabulary's weights: their cast, and in the backward pass their gradient."""
    if not sliced(work):
        return 0
    formats, elements = work.formats, work.architecture.vocabulary_parameters
    cast = elements * formats.compute if formats.compute != formats.weights else 0
    if not backward or work.lora:
        return cast
    return cast + elements * formats.weights


def evaluation_bytes(work: Workload) -> int:
    """The model's own logits, which are read before anything copies them, and the fp32 of one slice."""
    vocabulary, compute = work.architecture.vocabulary, work.formats.compute
    positions = positions_of(work, work.eval_micro_batch)
    if sliced(work):
        return min(work.loss_chunk or 0, positions) * vocabulary * _read_bytes(compute)
    # A bias in fp32 makes the logits fp32 under autocast; the product is there until then.
    biased = work.architecture.biased_logits
    own = SINGLE if biased and work.formats.autocast else compute
    if work.architecture.pooled:
        return positions * vocabulary * (own + 2 * SINGLE)
    in_slice = min(positions, evaluation_slice(vocabulary)) * vocabulary * _read_bytes(own)
    changing = positions * vocabulary * compute if biased or work.architecture.capped_logits else 0
    return positions * vocabulary * own + max(in_slice, changing)


def _read_bytes(element: int) -> int:
    """For each logit that is read: itself, in fp32, and its log-softmax."""
    return element + (SINGLE if element != SINGLE else 0) + SINGLE


def _all(work: Workload) -> int:
    return positions_of(work, work.micro_batch) * work.architecture.vocabulary


def _slice(work: Workload) -> int:
    return slice_positions(work) * work.architecture.vocabulary
