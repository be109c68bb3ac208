"""The peak of one training step: the maximum over its moments, each with what is alive then."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.estimate.activations import block_bytes, checkpoint_bytes, weight_copy_bytes, working_bytes
from trainwiz.core.estimate.evaluation import evaluation_parts, generation_parts
from trainwiz.core.estimate.moment import KINDS, Moment
from trainwiz.core.estimate.states import States, states_of
from trainwiz.core.estimate.workload import HALF, SINGLE, Workload

__all__ = ["KINDS", "Moment", "Peak", "evaluation_peak", "logit_bytes", "peak_of"]

_CHECKPOINTS_UNTIL_COLLECTED = 8
"""Inputs of checkpointed blocks that still wait for Python's garbage collector (traced: 8 of 16, 8 of 33)."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The fullest moment, and all of them."""

    moment: Moment
    moments: tuple[Moment, ...]
    states: States

    @property
    def allocated_bytes(self) -> int:
        return self.moment.bytes


def peak_of(work: Workload) -> Peak:
    """Bytes allocated by torch on one device (CUDA context and cached free blocks not counted)."""
    states = states_of(work)
    kept = _kept(work)
    moments = (
        _forward_end(work, states, kept),
        _loss_forward(work, states, kept),
        _loss(work, states, kept),
        _backward(work, states, kept),
        _last_block(work, states),
        _token_table(work, states),
        _optimizer_step(states),
    )
    return Peak(max(moments, key=lambda moment: moment.bytes), moments, states)


def _held(work: Workload, states: States) -> dict[str, int]:
    """What is there at every moment: gradients too when micro-batches are summed."""
    summed = states.gradients if work.accumulation > 1 else 0
    return {
        "weights": states.weights,
        "gradients": summed + states.buckets,
        "optimizer": states.optimizer,
        "activations": 0,
        "logits": 0,
        "temporary": 0,
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
    tokens = work.micro_batch * work.decoded_length
    width = architecture.hidden * tokens
    if not architecture.transform_head:
        return width * (formats.norm + (0 if work.lora else formats.compute))
    copies = {"erf_unfused": 3}.get(architecture.blocks[-1].activation, 1)
    return width * (2 * formats.residual + (2 + copies) * formats.compute)


def logit_bytes(work: Workload, positions: int, *, backward: bool = False) -> int:
    """The loss at its fullest: three tensors of the logits' size in fp32, forward as backward.

    Forward: the model's logits, those of the labelled positions, and their log-softmax. Backward:
    the log-softmax and two gradients. A loss in slices has the last two for one slice alone, and
    the logits twice in the format that the model hands out (core/training/loss.py).
    """
    vocabulary = work.architecture.vocabulary
    if work.loss_chunk is None or work.loss_chunk >= positions:
        return 3 * SINGLE * positions * vocabulary
    handed_out = SINGLE if work.formats.autocast else work.formats.compute
    slice_copies = 3 if backward or handed_out != SINGLE else 2
    return vocabulary * (2 * handed_out * positions + slice_copies * SINGLE * work.loss_chunk)


def _vocabulary_copy(work: Workload) -> int:
    architecture = work.architecture
    transform = architecture.hidden**2 if architecture.transform_head else 0
    return weight_copy_bytes(work, architecture.vocabulary_parameters + transform)


def _blocks_weight_copy(work: Workload) -> int:
    """With checkpointing, autocast's cache still holds every weight until the forward pass ends."""
    if not work.checkpointing:
        return 0
    if work.lora:
        return HALF * work.adapter_parameters if work.formats.autocast else 0
    return weight_copy_bytes(work, sum(block.layers * block.linear_parameters for block in work.architecture.blocks))


def _forward_end(work: Workload, states: States, kept: int) -> Moment:
    """The model's last product, while autocast still keeps the copies of all weights."""
    parts = _held(work, states)
    parts["activations"] = kept + _head_bytes(work)
    parts["temporary"] = _vocabulary_copy(work) + _blocks_weight_copy(work)
    parts["logits"] = work.formats.compute * work.micro_batch * work.decoded_length * work.architecture.vocabulary
    return Moment("the end of the forward pass", parts)


def _loss_forward(work: Workload, states: States, kept: int) -> Moment:
    """The logits, their copy, and the log-softmax."""
    parts = _held(work, states)
    parts["activations"] = kept + _head_bytes(work)
    parts["temporary"] = _vocabulary_copy(work)
    parts["logits"] = logit_bytes(work, work.micro_batch * work.decoded_length)
    return Moment("the end of the forward pass, with the loss", parts)


def _loss(work: Workload, states: States, kept: int) -> Moment:
    """The kept log-softmax and two gradients of the same size; the logits themselves are gone."""
    parts = _held(work, states)
    parts["activations"] = kept + _head_bytes(work)
    parts["temporary"] = _vocabulary_copy(work)
    parts["logits"] = logit_bytes(work, work.micro_batch * work.decoded_length, backward=True)
    return Moment("the start of the backward pass, in the loss", parts)


def _backward(work: Workload, states: States, kept: int) -> Moment:
    """The last block's backward pass, while every other block still waits with its activations."""
    parts = _held(work, states)
    last = work.architecture.blocks[-1]
    parts["activations"] = kept + (block_bytes(work, last) if work.checkpointing else 0)
    parts["temporary"] = working_bytes(work, last)
    head = work.architecture.vocabulary_parameters * work.formats.weights
    if work.accumulation == 1 and not work.lora and not states.host:
        parts["gradients"] += head
    return Moment(f"the backward pass of layer {work.architecture.layers}", parts)


def _last_block(work: Workload, states: States) -> Moment:
    """The backward pass of the first block: every other gradient is there, the token table's not yet."""
    parts = _held(work, states)
    first = work.architecture.blocks[0]
    if work.accumulation == 1:
        late = first.parameters + work.architecture.embedding_parameters
        if work.architecture.tied:
            late -= work.architecture.vocabulary_parameters
        parts["gradients"] += max(0, states.gradients - (0 if work.lora else late * work.formats.weights))
    parts["activations"] = block_bytes(work, first)
    if work.checkpointing:
        waiting = min(first.layers, _CHECKPOINTS_UNTIL_COLLECTED) * checkpoint_bytes(work, first)
        parts["activations"] += waiting + _embedding_bytes(work)
    parts["temporary"] = working_bytes(work, first)
    return Moment("the backward pass of layer 1", parts)


def _token_table(work: Workload, states: States) -> Moment:
    """The end of the backward pass. A tied table collects its gradients out of place: three copies at once (traced)."""
    parts = _held(work, states)
    if work.accumulation == 1:
        parts["gradients"] += states.gradients
    if work.architecture.tied and not work.lora and not states.host:
        parts["temporary"] = 2 * work.architecture.vocabulary_parameters * work.formats.weights
    if work.checkpointing:
        first = work.architecture.blocks[0]
        parts["activations"] = min(first.layers, _CHECKPOINTS_UNTIL_COLLECTED) * checkpoint_bytes(work, first)
    return Moment("the end of the backward pass, at the token table", parts)


def _optimizer_step(states: States) -> Moment:
    return Moment(
        "the optimizer step",
        {
            "weights": states.weights,
            "gradients": states.gradients + states.buckets,
            "optimizer": states.optimizer,
            "activations": 0,
            "logits": 0,
            "temporary": states.step_temporary,
        },
    )


def evaluation_peak(work: Workload) -> Peak | None:
    """Likewise between two steps, while held-out rows are evaluated; None where there are none.

    Gradients are gone then, optimizer states and communication buffers are not.
    """
    if work.eval_micro_batch == 0:
        return None
    states = states_of(work)
    there = {"weights": states.weights, "gradients": states.buckets, "optimizer": states.optimizer}
    moments = [Moment("an evaluation", {**there, **evaluation_parts(work)})]
    if work.generation_length:
        moments.append(Moment("generating text in an evaluation", {**there, **generation_parts(work)}))
    return Peak(max(moments, key=lambda moment: moment.bytes), tuple(moments), states)
