"""What a process holds on its device beside its tensors: context, library workspaces, cached blocks."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.estimate.workload import Workload

GIB, MIB = 2**30, 2**20

CONTEXT_BYTES = int(0.45 * GIB)
"""CUDA context and library handles of one process: 0.3 to 0.7 GB on today's CUDA."""
CONTEXT_SPREAD_BYTES = int(0.2 * GIB)
KNOWN_CONTEXT_SPREAD_BYTES = int(0.1 * GIB)
"""Of a context that was stated or measured: CUDA loads kernels as they are first used, so it grows a little."""
NCCL_BYTES = int(0.35 * GIB)
"""Buffers of NCCL in each process of several: 0.2 to 0.5 GB."""
NCCL_SPREAD_BYTES = int(0.15 * GIB)
PROCESS_BYTES = int(0.75 * GIB)
"""Resident memory of a CPU training process before its model: torch, transformers and their allocator."""
PROCESS_SPREAD_BYTES = int(0.25 * GIB)
BLAS_HANDLES = 2
"""cuBLAS has a handle, and with it a workspace, in each thread that computes: forward and backward pass."""
BLAS_WORKSPACE_BYTES = int(8.125 * MIB)
"""Of one handle and stream: torch's default of eight blocks of 16 KiB and two of 4 MiB."""
HOPPER_WORKSPACE_BYTES = 32 * MIB
"""The same on sm 9.0."""
HOPPER = "9.0"


@dataclass(frozen=True, slots=True)
class Reserved:
    """Reserved over allocated memory, as factors."""

    low: float
    likely: float
    high: float


CACHED = Reserved(1.02, 1.07, 1.16)
"""Of torch's caching allocator, replayed over traces of forty families: 5 %, half and 90 % of those above 3 GiB. The last
is what must fit: beyond it are free blocks, which torch gives back before it fails."""
BEYOND_ALONE, BEYOND_VARIED, BEYOND_SHARDED = 0.1, 0.6, 0.4
"""The allocator may hold so much more than its replay: in one process on rows of one length, on rows of varied lengths (a
replay knows one length; each other leaves blocks that the next does not fill), in processes that share a model out (parts
are gathered and given back on streams of their own). Each is the smallest tenth that holds nine of ten published rows of
its kind: docs/estimator.md, "What nvidia-smi shows", and with each source left out in turn."""
RESIDENT = Reserved(1.0, 1.1, 1.4)
"""Of a process on a CPU: resident over live tensors."""
RESIDENT_IN_HALF = Reserved(1.1, 2.4, 3.0)
"""The same in half precision: of its first step, of a long run and of its peaks. oneDNN keeps blocks for every length of
rows, and glibc does not use freed memory between them again (docs/environment.md, "Memory that a process keeps")."""


@dataclass(frozen=True, slots=True)
class Overheads:
    """Bytes of one process."""

    context: int
    spread: int
    """The context may be so much more or less."""
    workspace: int
    """A part of what torch counts as allocated."""
    reserved: Reserved
    beyond: float
    """The process may hold so much more than is likely, as a share of that."""


def overheads(work: Workload) -> Overheads:
    if work.device == "cpu":
        resident = RESIDENT if work.precision in ("fp32", "tf32") else RESIDENT_IN_HALF
        return Overheads(PROCESS_BYTES, PROCESS_SPREAD_BYTES, 0, resident, resident.high / resident.likely - 1)
    if work.device != "cuda":
        return Overheads(CONTEXT_BYTES, CONTEXT_SPREAD_BYTES, 0, CACHED, _beyond(work))
    several = work.world_size > 1
    known = work.context_bytes
    workspace = HOPPER_WORKSPACE_BYTES if work.capability == HOPPER else BLAS_WORKSPACE_BYTES
    return Overheads(
        (CONTEXT_BYTES if known is None else known) + (NCCL_BYTES if several else 0),
        (CONTEXT_SPREAD_BYTES if known is None else KNOWN_CONTEXT_SPREAD_BYTES) + (NCCL_SPREAD_BYTES if several else 0),
        BLAS_HANDLES * workspace,
        CACHED,
        _beyond(work),
    )


def _beyond(work: Workload) -> float:
    """Rows that are filled up to the longest are taken to be of varied lengths."""
    shared = BEYOND_ALONE if work.strategy in ("single", "ddp") else BEYOND_SHARDED
    return max(shared, BEYOND_VARIED) if work.padded else shared
