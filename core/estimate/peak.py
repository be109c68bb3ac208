"""The peak of one training step: the maximum over its moments, each with what is alive then."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.estimate.activations import block_bytes, checkpoint_bytes, weight_copy_bytes, working_bytes
from trainwiz.core.estimate.evaluation import evaluation_parts, generation_parts
from trainwiz.core.estimate.logits import (
    handed_out_bytes,
    loss_backward_bytes,
    loss_forward_bytes,
    positions_of,
    slice_weight_bytes,
    sliced,
)
from trainwiz.core.estimate.moment import KINDS, Moment, layer_name
from trainwiz.core.estimate.states import States, states_of
from trainwiz.core.estimate.workload import HALF, Workload
from trainwiz.core.language import mark

__all__ = ["KINDS", "Moment", "Peak", "evaluation_peak", "held_parts", "peak_of"]


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
        _handed_out(work, states, kept),
        _loss_forward(work, states, kept),
        _loss_backward(work, states, kept),
        _backward(work, states, kept),
        _last_block(work, states),
        _token_table(work, states),
        _optimizer_step(states),
    )
    return Peak(max(moments, key=lambda moment: moment.bytes), moments, states)


def held_parts(work: Workload, states: States, *, backward: bool) -> dict[str, int]:
    """What is there at every moment before the step, gradients too when micro-batches are summed.

    `backward`: the buffers of communication are there, and gradients that are one buffer.
    """
    whole = states.flat_gradients and backward
    there = states.gradients if work.accumulation > 1 or states.standing_gradients or whole else 0
    return {
        "weights": states.weights + states.gathered,
        "gradients": there + states.buckets + (states.backward_buffers if backward else 0),
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
    width = architecture.hidden * positions_of(work, work.micro_batch)
    if sliced(work):
        # The labelled rows of the head's input are taken out of it; their gradient is as large.
        width_of_rows = 2 * width * formats.residual
        return width_of_rows + (
            width * (3 * formats.residual + 3 * formats.compute) if architecture.transform_head else 0
        )
    if not architecture.transform_head:
        return width * (formats.norm + (0 if work.lora else formats.compute))
    copies = {"erf_unfused": 3}.get(architecture.blocks[-1].activation, 1)
    return width * (2 * formats.residual + (2 + copies) * formats.compute)


def _vocabulary_copy(work: Workload) -> int:
    """Autocast's copy of the weights of the head, which the backward pass needs again."""
    architecture = work.architecture
    transform = architecture.hidden**2 if architecture.transform_head else 0
    if sliced(work):
        return weight_copy_bytes(work, transform)
    return weight_copy_bytes(work, architecture.vocabulary_parameters + transform)


def _blocks_weight_copy(work: Workload) -> int:
    """With checkpointing, autocast's cache still holds every weight until the forward pass ends."""
    if not work.checkpointing:
        return 0
    if work.lora:
        return HALF * work.adapter_parameters if work.formats.autocast else 0
    return weight_copy_bytes(work, sum(block.layers * block.cast_parameters for block in work.architecture.blocks))


def _forward_end(work: Workload, states: States, kept: int) -> Moment:
    """The model's last product, while autocast still keeps the copies of all weights."""
    parts = held_parts(work, states, backward=False)
    parts["activations"] = kept + _head_bytes(work)
    parts["temporary"] = _vocabulary_copy(work) + _blocks_weight_copy(work)
    if sliced(work):
        parts["temporary"] += slice_weight_bytes(work, backward=False)
        parts["logits"] = loss_forward_bytes(work)
    else:
        positions = positions_of(work, work.micro_batch)
        parts["logits"] = work.formats.compute * positions * work.architecture.vocabulary
    return Moment(mark("the end of the forward pass"), parts)


def _handed_out(work: Workload, states: States, kept: int) -> Moment:
    """accelerate's copy of the logits in fp32, beside the logits themselves."""
    parts = held_parts(work, states, backward=False)
    parts["activations"] = kept + _head_bytes(work)
    parts["temporary"] = _vocabulary_copy(work)
    parts["logits"] = handed_out_bytes(work)
    return Moment(mark("the end of the forward pass, with its outputs in fp32"), parts)


def _loss_forward(work: Workload, states: States, kept: int) -> Moment:
    parts = held_parts(work, states, backward=False)
    parts["activations"] = kept + _head_bytes(work)
    parts["temporary"] = _vocabulary_copy(work)
    parts["logits"] = 0 if sliced(work) else loss_forward_bytes(work)
    return Moment(mark("the end of the forward pass, with the loss"), parts)


def _loss_backward(work: Workload, states: States, kept: int) -> Moment:
    """The kept log-softmax and two gradients of the same size; the logits themselves are gone."""
    parts = held_parts(work, states, backward=False)
    if work.deepspeed:
        # Its buckets are made before the backward pass begins, as the traced tier counts them.
        parts["gradients"] += states.backward_buffers
    parts["activations"] = kept + _head_bytes(work)
    parts["temporary"] = _vocabulary_copy(work) + slice_weight_bytes(work, backward=True)
    parts["logits"] = loss_backward_bytes(work)
    return Moment(mark("the start of the backward pass, in the loss"), parts)


def _backward(work: Workload, states: States, kept: int) -> Moment:
    """The last block's backward pass, while every other block still waits with its activations."""
    parts = held_parts(work, states, backward=True)
    last = work.architecture.blocks[-1]
    parts["activations"] = kept + (block_bytes(work, last) if work.checkpointing else 0)
    parts["temporary"] = working_bytes(work, last) + _waiting_table(work, states)
    if _gradients_grow(work, states):
        parts["gradients"] += work.architecture.vocabulary_parameters * work.formats.weights
    return Moment(layer_name(work.architecture.layers), parts)


def _last_block(work: Workload, states: States) -> Moment:
    """The backward pass of the first block: every other gradient is there, the token table's not yet."""
    parts = held_parts(work, states, backward=True)
    first = work.architecture.blocks[0]
    if work.accumulation == 1 and not states.flat_gradients:
        late = first.parameters + work.architecture.embedding_parameters
        if work.architecture.tied:
            late -= work.architecture.vocabulary_parameters
        share = states.weights / max(1, states.weights + states.gathered) if states.gathered else 1.0
        parts["gradients"] += max(0, states.gradients - (0 if work.lora else int(late * work.formats.weights * share)))
    parts["gradients"] += states.half_gradients
    parts["activations"] = block_bytes(work, first)
    if work.checkpointing:
        parts["activations"] += checkpoint_bytes(work, first) + _embedding_bytes(work)
    parts["temporary"] = working_bytes(work, first) + _waiting_table(work, states)
    return Moment(layer_name(1), parts)


def _waiting_table(work: Workload, states: States) -> int:
    """The head's gradient of a tied table waits for the embedding's; it counts as a gradient unless those are there."""
    if work.lora or not work.architecture.tied or _gradients_grow(work, states):
        return 0
    return work.architecture.vocabulary_parameters * work.formats.weights


def _token_table(work: Workload, states: States) -> Moment:
    """The end of the backward pass. A tied table has two gradients, which are added up."""
    parts = held_parts(work, states, backward=True)
    if work.accumulation == 1 and not states.flat_gradients:
        parts["gradients"] += states.gradients
    parts["gradients"] += states.half_gradients
    if work.architecture.tied and not work.lora:
        table = work.architecture.vocabulary_parameters * work.formats.weights
        # Both of its uses give a gradient; the one that stays is one of them unless micro-batches are summed.
        parts["temporary"] = 2 * table if work.accumulation > 1 or states.flat_gradients else table
    return Moment(mark("the end of the backward pass, at the token table"), parts)


def _gradients_grow(work: Workload, states: States) -> bool:
    """One gradient after the other appears in this backward pass."""
    return work.accumulation == 1 and not work.lora and not states.flat_gradients and states.gradients > 0


def _optimizer_step(states: States) -> Moment:
    return Moment(
        mark("the optimizer step"),
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
    standing = states.gradients if states.standing_gradients else 0
    there = {
        "weights": states.weights + states.gathered,
        "gradients": states.buckets + standing,
        "optimizer": states.optimizer,
    }
    moments = [Moment(mark("an evaluation"), {**there, **evaluation_parts(work)})]
    if work.generation_length:
        moments.append(Moment(mark("generating text in an evaluation"), {**there, **generation_parts(work)}))
    return Peak(max(moments, key=lambda moment: moment.bytes), tuple(moments), states)
