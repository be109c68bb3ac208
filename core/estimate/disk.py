"""Disk: checkpoints x retention, the final model, and logs."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.estimate.state_sizes import whole_tables
from trainwiz.core.estimate.workload import SINGLE, Workload

LOG_BYTES = 20 * 2**20
"""Metrics, samples of the machine, TensorBoard files and the log of an ordinary run."""
TOKENIZER_BYTES = 5 * 2**20


@dataclass(frozen=True, slots=True)
class DiskNeeds:
    checkpoint_bytes: int
    final_bytes: int
    total_bytes: int


def disk_needs(
    work: Workload, keep: int, *, merged: bool = False, own_base: bool = False, rows_bytes: int = 0
) -> DiskNeeds:
    """Bytes on the file system of the run folder.

    A checkpoint holds weights and two moments for each trained parameter; DeepSpeed adds its fp32
    copy, and it and FSDP write the weights a second time in files of their own. One checkpoint more than are kept exists while the newest is being written. A LoRA run
    saves adapters alone: `merged` adds the whole model at its end, `own_base` a base that was drawn
    at random and is nowhere else. `rows_bytes`: streamed rows that are written beside the run, so
    that they can be read in any order.
    """
    parameters, trainable = work.architecture.parameters, work.trainable_parameters
    copies = 0
    if work.lora:
        weights, states = trainable * SINGLE, trainable * 2 * SINGLE
    else:
        weights = parameters * work.formats.weights
        per_parameter = {"sgd": 0, "adafactor": 0, "adamw_bnb_8bit": 2, "paged_adamw_8bit": 2}.get(work.optimizer, 8)
        states = trainable * per_parameter + whole_tables(work)
        if work.deepspeed:
            states = trainable * (per_parameter + SINGLE)
            copies = weights
    if work.strategy == "fsdp":
        copies = weights
    checkpoint = weights + copies + states + TOKENIZER_BYTES
    final = weights + TOKENIZER_BYTES
    if work.lora:
        base = parameters * work.formats.weights
        final += base * (merged + own_base)
    return DiskNeeds(checkpoint, final, (keep + 1) * checkpoint + final + rows_bytes + LOG_BYTES)
