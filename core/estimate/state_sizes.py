"""Sizes of weights, gradients and optimizer states: by when they are there, and for each parameter."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.estimate.architecture import Architecture
from trainwiz.core.estimate.workload import SINGLE, Workload

EIGHT_BIT_ADAM = "adamw_bnb_8bit"


@dataclass(frozen=True, slots=True)
class States:
    """Bytes on one device, by when they are there."""

    weights: int
    """The process's own, or its share."""
    gradients: int
    """Once all are there, until the step."""
    optimizer: int
    buckets: int = 0
    """Communication buffers that are there from the start."""
    backward_buffers: int = 0
    """Communication buffers of the backward pass alone."""
    gathered: int = 0
    """Whole weights of what is computed now, where each process keeps a share; not there in the step."""
    step_temporary: int = 0
    """Copies that the optimizer makes while it steps."""
    host: int = 0
    """Bytes in host RAM."""
    flat_gradients: bool = False
    """Gradients are one buffer that is there whole from the first one on; otherwise they come one by one."""
    standing_gradients: bool = False
    """That buffer is never given back."""
    half_gradients: int = 0
    """Gradients in half precision that come one by one in the backward pass and are added to that buffer at its end."""


def single_states(work: Workload) -> States:
    """Of a process that keeps all of them itself."""
    formats = work.formats
    trainable = work.trainable_parameters
    trainable_format = formats.adapters if work.lora else formats.weights
    adapters = work.adapter_parameters
    return States(
        weights=work.architecture.parameters * formats.weights + adapters * formats.adapters,
        gradients=trainable * trainable_format,
        optimizer=int(trainable * optimizer_bytes(work.optimizer, trainable_format)) + whole_tables(work),
        step_temporary=step_temporary(work, trainable, trainable_format),
    )


def whole_tables(work: Workload) -> int:
    """What 8-bit Adam keeps of embedding tables beyond its two bytes: the Trainer asks bitsandbytes for fp32 states there
    (register_module_override in transformers/trainer.py)."""
    if work.lora or work.optimizer != EIGHT_BIT_ADAM:
        return 0
    tables = max(0, work.architecture.embedding_parameters - work.architecture.frozen_parameters)
    return int(tables * (2 * SINGLE - optimizer_bytes(EIGHT_BIT_ADAM, SINGLE)))


def step_temporary(work: Workload, trainable: int, element: int) -> int:
    """Copies that the optimizer makes while it steps, in bytes: the foreach AdamW makes one of everything, fused none; so
    does SGD, for its weight decay. Adafactor makes two of one parameter after the other, and fp32 ones of its weights
    and gradient where those are not."""
    if work.optimizer in ("adamw_torch", "sgd"):
        return trainable * element
    if work.optimizer == "adafactor":
        return largest_trained(work) * SINGLE * (2 if element == SINGLE else 4)
    return 0


def largest_trained(work: Workload) -> int:
    """Elements of the largest trained parameter."""
    if not work.lora:
        return largest_matrix(work.architecture)
    sizes = [max(inputs, outputs) for block in work.architecture.blocks for _, inputs, outputs in block.linears]
    return work.lora_rank * max(sizes, default=1)


def largest_matrix(architecture: Architecture) -> int:
    """Elements of the largest single parameter: most often the token table."""
    matrices = [inputs * outputs for block in architecture.blocks for _, inputs, outputs in block.linears]
    experts = [block.expert_parameters * 2 // 3 for block in architecture.blocks]
    return max(architecture.vocabulary_parameters, *matrices, *experts)


def optimizer_bytes(optimizer: str, element: int) -> float:
    """States per trainable parameter. 8-bit Adam keeps two bytes and a block scale; Adafactor rows and columns."""
    match optimizer:
        case "sgd":
            return 0.0
        case "adafactor":
            return 0.02
        case "adamw_bnb_8bit":
            return 2.05
        case "paged_adamw_8bit":
            return 0.1  # pages move to host RAM when the GPU is full
        case _:
            return 2.0 * element
