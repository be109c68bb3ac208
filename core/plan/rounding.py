"""Settles data.pad_to_multiple_of: how far the length of a micro-batch is rounded up for the kernels."""

from __future__ import annotations

from trainwiz.core.data.joining import joins_texts
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.estimate.workload import HALF
from trainwiz.core.language import tr
from trainwiz.core.plan.devices import Devices
from trainwiz.core.plan.draft import Draft

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


def settle_rounding(draft: Draft, devices: Devices, data: DataSummary | None) -> None:
    """Device, precision and joined texts are settled before; of `data` the longest row counts.

    torch.compile asks for no more: with lengths that may change it makes two graphs, whatever the lengths are
    (training/compiling.py), and each further bucket of fixed length would only add padding.
    """
    multiple, why = _multiple(draft, devices, data)
    draft.settle(KEY, multiple, why)


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
