"""Host RAM: training processes, loader workers, pinned batches, offloaded states, data. A prediction, with its range."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.estimate.sharded_states import pinned
from trainwiz.core.estimate.worker_size import WORKER_BYTES, WORKER_LEAST_BYTES

MIB = 2**20
GIB = 2**30

LOW_MEMORY_BYTES = 15 * GIB
"""Below this much RAM: no loader workers, no pinned memory, streamed rows."""

TRAINER_BYTES = int(0.75 * GIB)
"""One training process without its model: torch, transformers, reporters, rows. Measured on a CPU build before the first
step: 497 to 560 MiB (tests/benchmarks/bench_host_ram.py); a process that trains came to 0.75 GiB (overheads.py)."""
TRAINER_SPREAD_BYTES = int(0.25 * GIB)
CUDA_BUILD_BYTES = int(0.1 * GIB)
"""`import torch` of a CUDA build over that of a CPU build: 322,040 kB (github.com/pytorch/pytorch/issues/113326) and
226,092 kB (measured here)."""
CUDA_CONTEXT_BYTES = 116_592 * 1024
"""Host memory of a context with lazily loaded kernels, published for one tensor on the GPU: 438,632 - 322,040 kB
(pytorch issue 113326, RTX 3090, torch 2.2, CUDA 11.8)."""
CUDA_LIBRARY_BYTES = CUDA_CONTEXT_BYTES + 839_086_080
"""The same in a process that trains: with the larger of the two growths of resident memory during Trainer.train() that
are published, the model being on its GPU before (fms-acceleration, scripts/benchmarks/README.md, A100, torch 2, which
loads kernels lazily: train_mem_cpu_alloc_delta 531,410,944 and 839,086,080). Not measured here."""
CUDA_LIBRARY_LEAST_BYTES = CUDA_CONTEXT_BYTES + 531_410_944
CUDA_LIBRARY_MOST_BYTES = int(1422.1 * MIB)
"""Of a first use of CUDA that loads all kernels at once, and NCCL (pytorch issue 106511, torch 2.0, CUDA 11.8): more than
a lazy one has been seen to take. Older figures are of eager loading too, 1.65 GiB in issue 113326 where CUDA starts
before torch has asked for lazy loading; CUDA 12.2 and later, which torch 2.13 is built with, loads lazily by itself."""

SUPERVISOR_BYTES = 270 * MIB
"""The keeper's two processes (23 and 17 MiB) and the launcher, which imports torch: 229 MiB, each resident; measured in a
run of two processes on a CPU build. One launcher serves all processes of a machine."""
BYTES_PER_TOKEN = 3 * 8
"""Input, mask and labels of a batch are 8-byte integers."""
BYTES_PER_ROW = 2 * 8
"""The number of a row, and its place in the order of an epoch."""


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
    window_bytes: int
    """Streamed rows: what each loader worker holds of them, or the process itself without workers; else 0."""
    weights_bytes: int
    """The model of one process, once, while it is loaded."""
    offloaded_bytes: int
    """Optimizer states and weights of one process that live in host RAM."""
    device_bytes: tuple[int, int, int] = (0, 0, 0)
    """Without a GPU: the training memory of one process (its own baseline included), at least, likely and at most."""
    cuda: bool = True
    """The GPU is an NVIDIA one, with CUDA's libraries in each process."""
    saved_bytes: int = 0
    """Weights that the first process copies to host RAM to write them: safetensors holds all tensors of a file there
    (safetensors/torch.py, _to_ndarray)."""
    rows: int = 0


@dataclass(frozen=True, slots=True)
class HostRam:
    """A prediction of the peak, by purpose."""

    parts: dict[str, int]
    low_bytes: int
    high_bytes: int

    @property
    def total_bytes(self) -> int:
        return sum(self.parts.values())


def host_ram(needs: HostNeeds) -> HostRam:
    """The fuller of two moments, for all processes of this machine: models being loaded, and training with a save.

    A model goes to its GPU before the libraries compute anything, so both never hold their most together.
    """
    likely = _fuller(needs, LIKELY)
    low, high = (sum(_fuller(needs, each).values()) for each in (LEAST, MOST))
    return HostRam(likely, low, high)


def host_ram_parts(needs: HostNeeds) -> dict[str, int]:
    """Bytes by purpose at the peak."""
    return host_ram(needs).parts


def most_while_training(needs: HostNeeds) -> int:
    """Bytes of the moment that loader workers are part of, at the upper end: they are a choice, a run that is killed is not."""
    return sum(_training(needs, MOST).values())


def batch_bytes(micro_batch: int, length: int, target_length: int) -> int:
    """One batch in host RAM, padded to its limits."""
    return micro_batch * (length + target_length) * BYTES_PER_TOKEN


@dataclass(frozen=True, slots=True)
class _Process:
    """Bytes of one process and one worker."""

    end: int
    """Of the training memory: 0 at least, 1 likely, 2 at most."""
    trainer: int
    context: int
    libraries: int
    worker: int


LIKELY = _Process(1, TRAINER_BYTES, CUDA_CONTEXT_BYTES, CUDA_LIBRARY_BYTES, WORKER_BYTES)
LEAST = _Process(
    0, TRAINER_BYTES - TRAINER_SPREAD_BYTES, CUDA_CONTEXT_BYTES, CUDA_LIBRARY_LEAST_BYTES, WORKER_LEAST_BYTES
)
MOST = _Process(2, TRAINER_BYTES + TRAINER_SPREAD_BYTES, CUDA_CONTEXT_BYTES, CUDA_LIBRARY_MOST_BYTES, WORKER_BYTES)


def _fuller(needs: HostNeeds, each: _Process) -> dict[str, int]:
    moments = (_training(needs, each), _loading(needs, each))
    largest = max(moments, key=lambda parts: sum(parts.values()))
    return {name: size for name, size in largest.items() if size > 0}


def _training(needs: HostNeeds, each: _Process) -> dict[str, int]:
    batch = batch_bytes(needs.micro_batch, needs.length, needs.target_length)
    waiting = needs.workers * needs.prefetch
    baseline = _baseline(needs, each, each.libraries)
    return {
        "training": needs.processes * (baseline + needs.device_bytes[each.end]),
        "saving": needs.saved_bytes if needs.on_gpu else 0,
        "workers": needs.processes * (needs.workers * each.worker + waiting * batch),
        "pinned": needs.processes * (waiting + 1) * pinned(batch) if needs.pin_memory else 0,
        **_throughout(needs),
    }


def _loading(needs: HostNeeds, each: _Process) -> dict[str, int]:
    baseline = _baseline(needs, each, each.context)
    return {
        "training": needs.processes * (baseline + needs.device_bytes[each.end]),
        "loading": needs.processes * needs.weights_bytes if needs.on_gpu else 0,
        **_throughout(needs),
    }


def _throughout(needs: HostNeeds) -> dict[str, int]:
    rows_bytes = needs.data_bytes + max(1, needs.workers) * needs.window_bytes
    return {
        "offloaded": needs.processes * needs.offloaded_bytes,
        "data": needs.processes * (rows_bytes + needs.rows * BYTES_PER_ROW),
        "supervisor": SUPERVISOR_BYTES + (CUDA_BUILD_BYTES if needs.on_gpu and needs.cuda else 0),
    }


def _baseline(needs: HostNeeds, each: _Process, cuda: int) -> int:
    if not needs.on_gpu:
        return 0
    return each.trainer + (CUDA_BUILD_BYTES + cuda if needs.cuda else 0)
