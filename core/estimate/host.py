"""Host RAM, loader workers, disk and energy of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwiz.core.estimate.workload import SINGLE, Workload

if TYPE_CHECKING:
    from trainwiz.core.estimate.time import Range

MIB = 2**20

WORKER_BYTES = 40 * MIB
"""What one forked loader worker holds alone. Measured: 11 to 13 MiB in a run of minutes, 27 to 28 MiB once a garbage
collection has touched what is not frozen (tools/benchmarks/bench_host_ram.py, core/processes.py)."""
WORKERS_BYTES = (12 * MIB, WORKER_BYTES, WORKER_BYTES)


# How many loader workers hide the loading: from the time of making a micro-batch and that of computing one.

SPARE = 1.1
"""Workers are counted so much too slow: batches differ, and a number that is just enough is none."""
USUAL_PREFETCH = 2
"""Batches that each worker keeps ready, where nothing asks for more; torch's own number too."""
MOST_PREFETCH = 256
MOST_SHARED = 64
"""Batches that are not pinned wait in /dev/shm, of which a container has 64 MiB, each with some open files."""
WORTH_SHARE = 0.05
"""Of a step: less waiting than this is not worth a process."""


def loading_ratio(
    step_s: float, wait_s: float, workers: int, batches: int = 1, prefetch: int = USUAL_PREFETCH
) -> float:
    """Seconds of loading by one process for a second of computing, where a step took `step_s`, `wait_s` of it without
    a batch.

    A training that waits has loaders that never rest: `workers` of them spent `step_s` each on a step's batches, or the
    process itself spent `wait_s` where there are none. But a step takes all its `batches` (micro-batches) at once: where
    more than `workers` x `prefetch` can be ready, the rest is made while it waits, and the workers may rest after.
    """
    computing_s = max(step_s - wait_s, 1e-3 * step_s, 1e-9)
    if not workers:
        return wait_s / computing_s
    loading_s, late = step_s * workers, late_batches(workers, batches, prefetch)
    return (min(loading_s, wait_s * workers * batches / late) if late else loading_s) / computing_s


def late_batches(workers: int, batches: int, prefetch: int) -> int:
    """Of the micro-batches of a step, those that cannot be ready when it begins."""
    return max(0, batches - workers * prefetch)


def most_prefetch(workers: int, *, pinned: bool) -> int:
    return MOST_PREFETCH if pinned else MOST_SHARED // max(1, workers)


def workers_for(ratio: float) -> int:
    """As many as load what is computed meanwhile, which takes one of them `ratio` times as long."""
    return math.ceil(SPARE * ratio - 1e-9)


# Host RAM: training processes, loader workers, pinned batches, offloaded states, data. A prediction, with its range.

GIB = 2**30

LOW_MEMORY_BYTES = 15 * GIB
"""Below this much RAM: no loader workers, no pinned memory, streamed rows."""

TRAINER_BYTES = int(0.75 * GIB)
"""One training process without its model: torch, transformers, reporters, rows. Measured on a CPU build before the first
step: 476 to 563 MiB (tools/benchmarks/bench_host_ram.py); a process that trains came to 0.75 GiB."""
TRAINERS_BYTES = (int(0.5 * GIB), TRAINER_BYTES, GIB)
"""At least, likely and at most, as the next ones are."""
CUDA_BUILD_BYTES = int(0.1 * GIB)
"""`import torch` of a CUDA build over that of a CPU build: 322,040 kB (github.com/pytorch/pytorch/issues/113326) and
226,092 kB (measured here)."""
CUDA_CONTEXT_BYTES = 116_592 * 1024
"""Host memory of a context with lazily loaded kernels, published for one tensor on the GPU: 438,632 - 322,040 kB
(pytorch issue 113326, RTX 3090, torch 2.2, CUDA 11.8)."""
CUDA_LIBRARIES_BYTES = (CUDA_CONTEXT_BYTES + 531_410_944, CUDA_CONTEXT_BYTES + 839_086_080, int(1422.1 * MIB))
"""The same in a process that trains. With the growths of resident memory during Trainer.train() that are published, the model
being on its GPU before (fms-acceleration, scripts/benchmarks/README.md, A100, torch 2, which loads kernels lazily:
train_mem_cpu_alloc_delta); the last is of a first use of CUDA that loads all kernels at once, and NCCL (pytorch issue 106511,
torch 2.0, CUDA 11.8). CUDA 12.2 and later, which torch 2.13 is built with, loads lazily by default. Not measured here."""

SUPERVISOR_BYTES = 270 * MIB
"""The keeper's two processes (23 and 17 MiB) and the launcher, which imports torch: 229 MiB, each resident; measured in a
run of two processes on a CPU build. One launcher serves all processes of a machine."""
BYTES_PER_TOKEN = 3 * 8
"""Input, mask and labels of a batch are 8-byte integers."""
BYTES_PER_ROW = 2 * 8
"""The number of a row, and its place in the order of an epoch."""


@dataclass(frozen=True, slots=True)
class HostNeeds:
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
    low, likely, high = (
        max((_parts(needs, end, loading=loading) for loading in (False, True)), key=lambda parts: sum(parts.values()))
        for end in range(3)
    )
    return HostRam(likely, sum(low.values()), sum(high.values()))


def most_while_training(needs: HostNeeds) -> int:
    """Bytes of the moment that loader workers are part of, at the upper end: they are a choice, a run that is killed is not."""
    return sum(_parts(needs, 2, loading=False).values())


def batch_bytes(micro_batch: int, length: int, target_length: int) -> int:
    """One batch in host RAM, padded to its limits."""
    return micro_batch * (length + target_length) * BYTES_PER_TOKEN


def _parts(needs: HostNeeds, end: int, *, loading: bool) -> dict[str, int]:
    """Bytes by purpose, without empty ones; `end`: 0 at least, 1 likely, 2 at most."""
    from trainwiz.core.estimate.states import pinned

    process, cuda = needs.device_bytes[end], needs.on_gpu and needs.cuda
    if needs.on_gpu:
        process += TRAINERS_BYTES[end]
    if cuda:
        process += CUDA_BUILD_BYTES + (CUDA_CONTEXT_BYTES if loading else CUDA_LIBRARIES_BYTES[end])
    batch = batch_bytes(needs.micro_batch, needs.length, needs.target_length)
    waiting = needs.workers * needs.prefetch
    if loading:
        moment = {"loading": needs.processes * needs.weights_bytes if needs.on_gpu else 0}
    else:
        moment = {
            "saving": needs.saved_bytes if needs.on_gpu else 0,
            "workers": needs.processes * (needs.workers * WORKERS_BYTES[end] + waiting * batch),
            "pinned": needs.processes * (waiting + 1) * pinned(batch) if needs.pin_memory else 0,
        }
    parts = {
        "training": needs.processes * process,
        **moment,
        "offloaded": needs.processes * needs.offloaded_bytes,
        "data": needs.processes * (needs.data_bytes + needs.rows * BYTES_PER_ROW),
        "supervisor": SUPERVISOR_BYTES + CUDA_BUILD_BYTES * cuda,
    }
    return {name: size for name, size in parts.items() if size > 0}


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
    from trainwiz.core.estimate.states import whole_tables

    trainable, whole = work.trainable_parameters, work.architecture.parameters * work.formats.weights
    per_parameter = {"sgd": 0, "adafactor": 0, "adamw_bnb_8bit": 2, "paged_adamw_8bit": 2}.get(work.optimizer, 8)
    if work.lora:
        weights, states = trainable * SINGLE, trainable * 2 * SINGLE
    else:
        more = trainable * SINGLE if work.deepspeed else whole_tables(work)
        weights, states = whole, trainable * per_parameter + more
    twice = work.strategy == "fsdp" or (work.deepspeed and not work.lora)
    checkpoint = weights * (2 if twice else 1) + states + TOKENIZER_BYTES
    final = weights + TOKENIZER_BYTES + (whole * (merged + own_base) if work.lora else 0)
    return DiskNeeds(checkpoint, final, (keep + 1) * checkpoint + final + rows_bytes + LOG_BYTES)


BUSY_LOW, BUSY_HIGH = 0.5, 1.0
"""Share of a card's power limit while it trains. Large matrix products run into the limit; attention, optimizer and
loading do not. Assumed, not measured here: the monitor shows what a run really draws."""
IDLE_LOW, IDLE_HIGH = 0.25, 0.7
"""Likewise of a card that mostly waits for launches or data."""
HOST_LOW_W, HOST_HIGH_W = 50.0, 200.0
"""Processor, memory, disks and fans of one machine beside its cards: a desktop at rest, and a workstation at work."""
SUPPLY_LOW, SUPPLY_HIGH = 0.95, 0.85
"""Efficiency of the power supply: the meter counts what goes in."""
JOULES_PER_KWH = 3.6e6


def energy_kwh(limits_w: Sequence[float | None], nodes: int, time: Range, *, idle: bool) -> tuple[float, float] | None:
    """(low, high) at the wall over `time`, of `nodes` machines with these cards each, given by their power limits: little power for a short
    time, much for a long one. None where one is not known, or none is there."""
    known = [limit for limit in limits_w if limit is not None]
    if not known or len(known) < len(limits_w):
        return None
    low, high = (IDLE_LOW, IDLE_HIGH) if idle else (BUSY_LOW, BUSY_HIGH)
    low_w = nodes * (low * sum(known) + HOST_LOW_W) / SUPPLY_LOW
    high_w = nodes * (high * sum(known) + HOST_HIGH_W) / SUPPLY_HIGH
    return low_w * time.low / JOULES_PER_KWH, high_w * time.high / JOULES_PER_KWH
