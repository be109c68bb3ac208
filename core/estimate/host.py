"""Host RAM: training processes, loader workers, pinned batches, offloaded states, data."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.estimate.sharded_states import pinned

MIB = 2**20
GIB = 2**30

LOW_MEMORY_BYTES = 15 * GIB
"""Below this much RAM: no loader workers, no pinned memory, streamed rows."""
TRAINER_BYTES = int(0.9 * GIB)
"""Resident memory of one training process without its model (torch, transformers, datasets)."""
CUDA_LIBRARY_BYTES = int(1.6 * GIB)
"""What the CUDA libraries add to the process that uses a GPU."""
WORKER_BYTES = 350 * MIB
"""One forked loader worker with its own tokenizer and row buffers."""
SUPERVISOR_BYTES = 60 * MIB
BYTES_PER_TOKEN = 3 * 8
"""Input, mask and labels of a batch are 8-byte integers."""


@dataclass(frozen=True, slots=True)
class HostNeeds:
    """What decides host RAM."""

    processes: int
    on_gpu: bool
    workers: int
    prefetch: int
    pin_memory: bool
    micro_batch: int
    length: int
    target_length: int
    data_bytes: int
    """Rows held in memory, 0 when streamed."""
    weights_bytes: int
    """The model, once, while it is loaded."""
    offloaded_bytes: int
    """Optimizer states and weights of one process that live in host RAM."""
    device_bytes: int = 0
    """Without a GPU: the training memory of one process (its own baseline included)."""
    cuda: bool = True
    """The GPU is an NVIDIA one, with CUDA's libraries in each process."""


def host_ram_parts(needs: HostNeeds) -> dict[str, int]:
    """Bytes by purpose, for all processes of this machine."""
    batch = needs.micro_batch * (needs.length + needs.target_length) * BYTES_PER_TOKEN
    baseline = TRAINER_BYTES + (CUDA_LIBRARY_BYTES if needs.cuda else 0) if needs.on_gpu else 0
    parts = {
        "training": needs.processes * (baseline + needs.device_bytes),
        "loading": needs.processes * needs.weights_bytes if needs.on_gpu else 0,
        "offloaded": needs.processes * needs.offloaded_bytes,
        "workers": needs.processes * needs.workers * (WORKER_BYTES + needs.prefetch * batch),
        "pinned": needs.processes * (needs.workers * needs.prefetch + 1) * pinned(batch) if needs.pin_memory else 0,
        "data": needs.processes * needs.data_bytes,
        "supervisor": SUPERVISOR_BYTES,
    }
    return {name: size for name, size in parts.items() if size > 0}
