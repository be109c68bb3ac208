"""Read this computer: one Machine, every value that cannot be read with its reason."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from trainwiz.core.errors import os_reason
from trainwiz.core.hardware import host, network
from trainwiz.core.hardware.apple import apple_gpu
from trainwiz.core.hardware.describe import describe
from trainwiz.core.hardware.gpus import GpuReading, read_gpus
from trainwiz.core.hardware.libraries import find_libraries, torch_cuda_version
from trainwiz.core.hardware.machine import Accelerator, Gpu, Machine
from trainwiz.core.hardware.visible import VARIABLE, mark_visible
from trainwiz.core.language import tr

T = TypeVar("T")


def probe_machine(disk_path: Path | None = None, environment: Mapping[str, str] | None = None) -> Machine:
    """This computer as it is now. Takes some 20 ms without a driver, a second or two where GPUs are asleep.

    `disk_path` is where output will go (it need not exist yet; default: the current folder);
    `environment` holds CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER (default: this process's own).
    Imports neither torch nor any other training library.
    """
    environment = os.environ if environment is None else environment
    unavailable: dict[str, str] = {}
    notes: list[str] = []
    memory = host.read_memory()
    if memory.limited:
        notes.append(tr("RAM is limited by a cgroup (a container or batch job), below what the machine has."))
    disk_path = Path.cwd() if disk_path is None else disk_path
    model = host.cpu_model()
    accelerator: Accelerator
    if sys.platform == "darwin":
        gpus, reading = _apple(model, memory, unavailable), GpuReading()
        accelerator = "mps" if gpus else "cpu"
    else:
        reading = read_gpus()
        gpus, cuda_notes = mark_visible(reading.gpus, environment, reading.old_mig_names)
        notes += cuda_notes
        accelerator = "cuda" if any(gpu.visible for gpu in gpus) else "cpu"
    unavailable |= reading.unavailable
    if reading.cuda_driver_version is None:
        unavailable.setdefault("cuda_driver_version", unavailable.get("gpus", tr("there is no NVIDIA driver")))
    unavailable |= {f"gpus.{gpu.index}": gpu.unavailable["gpu"] for gpu in gpus if "gpu" in gpu.unavailable}
    torch_cuda, reason = torch_cuda_version()
    if reason is not None:
        unavailable["torch_cuda"] = reason
    machine = Machine(
        gpus=gpus,
        cpu_cores=host.count_cores(),
        ram_total_bytes=memory.total_bytes,
        ram_available_bytes=memory.available_bytes,
        disk_free_bytes=_read("disk_free_bytes", lambda: host.free_disk(disk_path), unavailable),
        disk_path=str(disk_path.absolute()),
        platform=sys.platform,
        accelerator=accelerator,
        os_version=host.os_version(),
        wsl=host.is_wsl(),
        cpu_model=model,
        cpu_bf16=host.cpu_has_bf16(),
        shared_memory_bytes=_shared_memory(unavailable),
        network_interfaces=network.interfaces(),
        infiniband=network.infiniband_adapters(),
        cuda_driver_version=reading.cuda_driver_version,
        torch_cuda=torch_cuda,
        cuda_visible_devices=environment.get(VARIABLE),
        libraries=find_libraries(),
        unavailable=unavailable,
        notes=tuple(notes),
    )
    return replace(machine, description=describe(machine))


def _apple(model: str | None, memory: host.Memory, unavailable: dict[str, str]) -> tuple[Gpu, ...]:
    gpu, reason = apple_gpu(platform.machine(), host.os_version(), model, memory.total_bytes, memory.available_bytes)
    if gpu is None:
        unavailable["gpus"] = reason or tr("no Apple GPU")
        return ()
    return (gpu,)


def _shared_memory(unavailable: dict[str, str]) -> int | None:
    if sys.platform != "linux":
        unavailable["shared_memory_bytes"] = tr("only Linux has /dev/shm")
        return None
    return _read("shared_memory_bytes", host.shared_memory_size, unavailable)


def _read(name: str, read: Callable[[], T], unavailable: dict[str, str]) -> T | None:
    try:
        return read()
    except OSError as error:
        unavailable[name] = tr("cannot be read: {reason}", reason=os_reason(error))
        return None
