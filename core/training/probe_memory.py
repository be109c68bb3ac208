"""What one training process holds: RAM at its most, and the GPU's memory as nvidia-smi counts it."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch


def peak_rss_bytes() -> int:
    """Of this process, at its most so far."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    # Inherited from the parent where that was larger, so the second choice.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def device_used_bytes() -> int | None:
    """GPU memory of this process by NVML's count; None where it does not tell (no driver, other name space of pids)."""
    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        handle: Any = pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except Exception:  # noqa: BLE001 - NVML raises its own kinds, and no figure is no failure
        return None
    mine = [one for one in found if one.pid == os.getpid()]
    # In a container NVML names processes as the host does: one alone is this one.
    one = mine[0] if mine else found[0] if len(found) == 1 else None
    return None if one is None or one.usedGpuMemory is None else int(one.usedGpuMemory)


def memory_figures(device: torch.device) -> dict[str, int | None]:
    """allocated_bytes, reserved_bytes and used_bytes of the GPU (None without one), rss_bytes, of this process."""
    cuda = device.type == "cuda"
    return {
        "allocated_bytes": int(torch.cuda.max_memory_allocated()) if cuda else None,
        "reserved_bytes": int(torch.cuda.max_memory_reserved()) if cuda else None,
        "used_bytes": device_used_bytes() if cuda else None,
        "rss_bytes": peak_rss_bytes(),
    }
