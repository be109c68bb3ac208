"""Apple Silicon: one GPU that shares the machine's memory. Decided from the platform, without torch."""

from __future__ import annotations

from trainwiz.core.catalog.gpus import find_gpu
from trainwiz.core.hardware.machine import Gpu
from trainwiz.core.language import tr

UNIFIED_SHARE = 0.75
"""Metal's recommended working set: two thirds of the RAM up to 36 GB, three quarters above."""
UNIFIED_SHARE_SMALL = 2 / 3
SMALL_BYTES = 36 * 1024**3

OLDEST_MACOS = (12, 3)
"""torch's MPS backend needs this macOS."""

BF16_MACOS = (14, 0)
"""The first macOS whose Metal has bfloat16."""


def version_tuple(version: str | None) -> tuple[int, ...]:
    """ "14.5" -> (14, 5); () where it is not known."""
    parts = (version or "").split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()


def apple_gpu(
    machine: str, macos: str, cpu_model: str | None, ram_total_bytes: int, ram_available_bytes: int
) -> tuple[Gpu | None, str | None]:
    """(the GPU, None), or (None, why torch's MPS cannot be used here).

    `machine` is what `platform.machine()` says: under Rosetta a Python for Intel says "x86_64" on an M-series Mac.
    """
    if machine != "arm64":
        return None, tr("MPS needs Apple Silicon and a Python built for it (this one is for Intel)")
    if version_tuple(macos) < OLDEST_MACOS:
        return None, tr("MPS needs macOS 12.3, this is {version}", version=macos or tr("unknown"))
    share = UNIFIED_SHARE_SMALL if ram_total_bytes <= SMALL_BYTES else UNIFIED_SHARE
    working_set = int(ram_total_bytes * share)
    spec = find_gpu(cpu_model) if cpu_model else None
    return (
        Gpu(
            index=0,
            name=cpu_model or tr("Apple GPU"),
            memory_total_bytes=working_set,
            memory_free_bytes=min(working_set, ram_available_bytes),
            catalogue_name=spec.name if spec is not None else None,
            unavailable={
                "compute_capability": tr("only NVIDIA cards have one"),
                "uuid": tr("an Apple GPU has none"),
                "driver": tr("part of macOS"),
                "mig": tr("only NVIDIA cards have it"),
                "memory_other_bytes": tr("the memory is shared with the CPU"),
            },
        ),
        None,
    )
