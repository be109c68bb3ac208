"""This computer as one Machine, or one that is not here, from the catalogue or by hand."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path

from trainwiz.core.catalog.gpus import GIB, GpuSpec, find_gpu, gpus_called, near_gpus, spec_of
from trainwiz.core.errors import Finding, UsageError, after, os_reason
from trainwiz.core.hardware import host
from trainwiz.core.hardware.install import find_installer
from trainwiz.core.hardware.machine import Accelerator, Gpu, Machine, find_libraries, torch_cuda_version
from trainwiz.core.hardware.nvml import read_gpus
from trainwiz.core.hardware.visible import VARIABLE, mark_visible
from trainwiz.core.language import mark, tr

NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASS = "0x03"
"""PCI class of graphics cards; server cards are "3D controllers" of the same class."""


@dataclass(frozen=True, slots=True)
class Tools:
    nvidia_cards: int = 0
    """NVIDIA graphics cards on the PCI bus, with or without a driver."""
    cpp_compiler: str | None = None
    nvcc: str | None = None
    python_headers: bool = False
    distribution: str = ""
    """ID of /etc/os-release: "ubuntu", "debian", "fedora", ..."""
    container: bool = False

    def install(self, apt: str, dnf: str, pacman: str) -> str:
        """The command that installs system packages here."""
        if self.distribution in {"fedora", "rhel", "centos", "rocky", "almalinux", "amzn"}:
            return f"sudo dnf install {dnf}"
        if self.distribution in {"arch", "manjaro", "endeavouros"}:
            return f"sudo pacman -S {pacman}"
        return f"sudo apt install {apt}"


def find_tools() -> Tools:
    devices = (host.ROOT / "sys/bus/pci/devices").glob("*")
    kinds = [(host.text_of(device / "vendor"), host.text_of(device / "class")) for device in devices]
    release = re.search(r'^ID="?(\w+)', host.text_of(host.ROOT / "etc/os-release"), re.MULTILINE)
    toolkit = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    return Tools(
        nvidia_cards=sum(vendor.strip() == NVIDIA_VENDOR and kind.startswith(DISPLAY_CLASS) for vendor, kind in kinds),
        cpp_compiler=shutil.which(os.environ.get("CXX") or "c++"),
        nvcc=shutil.which("nvcc", path=f"{toolkit}/bin") or shutil.which("nvcc"),
        python_headers=(Path(sysconfig.get_paths()["include"]) / "Python.h").exists(),
        distribution=release[1] if release else "",
        container=any((host.ROOT / mark).exists() for mark in (".dockerenv", "run/.containerenv")),
    )


def probe_machine(disk_path: Path | None = None, environment: Mapping[str, str] | None = None) -> Machine:
    """This computer as it is now. Takes some 20 ms without a driver, a second or two where GPUs are asleep.

    `disk_path` is where output will go (it need not exist yet; default: the current folder);
    `environment` holds CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER (default: this process's own).
    Imports neither torch nor any other training library.
    """
    environment = os.environ if environment is None else environment
    disk_path = Path.cwd() if disk_path is None else disk_path
    memory, model = host.read_memory(), host.cpu_model()
    notes: tuple[str, ...] = ()
    if sys.platform == "darwin":
        found = host.apple_gpu(platform.machine(), host.os_version(), model, memory)
    else:
        found = read_gpus()
        gpus, notes = mark_visible([_sharing_ram(gpu, memory) for gpu in found.gpus], environment)
        found = replace(found, gpus=gpus)
    if memory.limited:
        notes = (tr("RAM is limited by a cgroup (container or batch job) to less than the machine has."), *notes)
    kind: Accelerator = "mps" if sys.platform == "darwin" else "cuda"
    unavailable = found.unavailable
    if found.cuda_driver_version is None:
        unavailable.setdefault("cuda_driver_version", unavailable.get("gpus", tr("no NVIDIA driver")))
    unavailable |= {f"gpus.{gpu.index}": gpu.unavailable["gpu"] for gpu in found.gpus if "gpu" in gpu.unavailable}
    torch_cuda, reason = torch_cuda_version()
    if reason is not None:
        unavailable["torch_cuda"] = reason
    return replace(
        found,
        cpu_cores=host.count_cores(),
        ram_total_bytes=memory.total_bytes,
        ram_available_bytes=memory.available_bytes,
        disk_free_bytes=_bytes("disk_free_bytes", lambda: host.free_disk(disk_path), unavailable),
        disk_path=str(disk_path.absolute()),
        platform=sys.platform,
        accelerator=kind if any(gpu.visible for gpu in found.gpus) else "cpu",
        os_version=host.os_version(),
        wsl="microsoft" in host.text_of(host.ROOT / "proc/sys/kernel/osrelease").lower(),
        cpu_model=model,
        cpu_bf16=host.cpu_has_bf16(),
        shared_memory_bytes=_bytes("shared_memory_bytes", lambda: shutil.disk_usage("/dev/shm").total, unavailable),
        network_interfaces=host.interfaces(),
        infiniband=host.infiniband_adapters(),
        torch_cuda=torch_cuda,
        cuda_visible_devices=environment.get(VARIABLE),
        amd_gpu=Path("/dev/kfd").exists(),
        installer=find_installer(),
        libraries=find_libraries(),
        notes=notes,
    )


def _sharing_ram(gpu: Gpu, memory: host.Memory) -> Gpu:
    """A GPU whose memory is the machine's RAM with what there is of it: NVML has no figure for it."""
    spec = spec_of(gpu)
    if spec is None or not spec.unified:
        return gpu
    return replace(
        gpu,
        unified=True,
        memory_total_bytes=memory.total_bytes,
        memory_free_bytes=max(0, memory.available_bytes - KEPT_FOR_THE_HOST),
        unavailable={name: why for name, why in gpu.unavailable.items() if name not in _OF_SHARED_RAM},
    )


def _bytes(name: str, read: Callable[[], int], unavailable: dict[str, str]) -> int | None:
    try:
        return read()
    except OSError as error:
        unavailable[name] = tr("cannot be read: {reason}", reason=os_reason(error))
        return None


DEFAULT_RAM_BYTES = 64 * GIB
CORES_PER_GPU = 8

_OF_SHARED_RAM = ("memory_total_bytes", "memory_free_bytes")
KEPT_FOR_THE_HOST = 4 * GIB
"""Of RAM that a GPU shares: never counted as the GPU's. A training process takes about as much beside its GPU memory."""
USABLE_SHARE = 0.98
"""What CUDA reports of a card's memory, where the catalogue does not know: 0.97 to 0.99 over those that it knows."""

PLANNED = mark("this machine is planned for, not probed")
UNPLANNED = ("disk_free_bytes", "shared_memory_bytes", "cuda_driver_version", "torch_cuda", "libraries")


def catalogue_machine(
    *,
    gpu: str | None,
    num_gpus: int,
    ram_bytes: int | None,
    cpu_cores: int | None = None,
    gpu_memory_bytes: int | None = None,
    tflops: float | None = None,
    capability: str | None = None,
    fp32_tflops: float | None = None,
    bandwidth: float | None = None,
) -> Machine:
    """A Machine with `num_gpus` cards of one kind, all of their memory free.

    Either `gpu` names a card of the catalogue, or `gpu_memory_bytes`, `tflops` (dense half precision) and `capability` ("8.6")
    describe one; beside a name they replace the catalogue's value, as `fp32_tflops` and `bandwidth` (GB/s) do.
    RAM that is not given is taken as 64 GiB (and noted), cores as 8 for each GPU.
    Raises UsageError with every finding: unknown name (with the near ones), missing or impossible figures.
    """
    figures = {"ram": ram_bytes, "cpu_cores": cpu_cores, "gpu_memory": gpu_memory_bytes, "tflops": tflops}
    figures |= {"fp32_tflops": fp32_tflops, "bandwidth": bandwidth}
    findings = [*_bad_figures(num_gpus, capability, figures)]
    spec = find_gpu(gpu, gpu_memory_bytes) or find_gpu(gpu) if gpu is not None else None
    described = {"--gpu-memory": gpu_memory_bytes, "--tflops": tflops, "--capability": capability}
    missing = tr(" and ").join(option for option, figure in described.items() if figure is None)
    if spec is None and missing and (num_gpus or gpu is not None):
        findings += _not_described(gpu, missing)
    if findings:
        raise UsageError(findings)
    accelerator: Accelerator = "cuda" if num_gpus else "cpu"
    if num_gpus and spec is not None and spec.compute_capability is None:
        accelerator = "mps"
    ram, total, usable = _sizes(spec, ram_bytes, gpu_memory_bytes)
    assumed = tr("RAM is not specified: {ram} GiB is assumed (--ram SIZE).", ram=ram // GIB)
    card = Gpu(
        index=0,
        name=spec.name if spec is not None else gpu or tr("GPU specified manually"),
        memory_total_bytes=total,
        memory_free_bytes=usable,
        memory_other_bytes=0,
        compute_capability=capability or (spec.compute_capability if spec is not None else None),
        catalogue_name=spec.name if spec is not None and tflops is None else None,
        unified=spec is not None and spec.unified,
        given_tflops=tflops,
        given_fp32_tflops=fp32_tflops,
        given_bandwidth=bandwidth,
        unavailable=dict.fromkeys(("uuid", "driver", "mig", "links"), tr(PLANNED)),
    )
    return Machine(
        gpus=tuple(replace(card, index=index, cuda_index=index) for index in range(num_gpus)),
        cpu_cores=CORES_PER_GPU * max(1, num_gpus) if cpu_cores is None else cpu_cores,
        ram_total_bytes=ram,
        ram_available_bytes=ram,
        platform="darwin" if accelerator == "mps" else "linux",
        accelerator=accelerator,
        os_version="14.0" if accelerator == "mps" else None,
        hypothetical=True,
        unavailable=dict.fromkeys(UNPLANNED, tr(PLANNED)),
        notes=(assumed,) if ram_bytes is None else (),
    )


def _sizes(spec: GpuSpec | None, ram_bytes: int | None, memory_bytes: int | None) -> tuple[int, int, int]:
    """Bytes of the RAM, of a card's memory, and of what CUDA or Metal gives of it to programs."""
    if spec is not None and (spec.unified or spec.compute_capability is None):
        ram = ram_bytes or spec.usable_bytes or spec.memory_bytes
        share = int(ram * host.UNIFIED_SHARE)
        return (ram, ram, max(0, ram - KEPT_FOR_THE_HOST)) if spec.unified else (ram, share, share)
    total = memory_bytes or (spec.memory_bytes if spec is not None else 0)
    usable = spec.usable_bytes if spec is not None and memory_bytes is None else None
    return ram_bytes or DEFAULT_RAM_BYTES, total, usable or int(total * USABLE_SHARE)


def _bad_figures(num_gpus: int, capability: str | None, figures: Mapping[str, float | None]) -> Iterator[Finding]:
    if not 0 <= num_gpus <= 1024:
        message = tr("The number of GPUs is {num_gpus}; set 0 to 1024 (--num-gpus N).", num_gpus=num_gpus)
        yield _finding("num_gpus", message)
    for where, value in figures.items():
        if value is not None and not 0 < value < inf:
            yield _finding(where, tr("{where} is {value}; set a value above 0.", where=where, value=value))
    if capability is not None and not re.fullmatch(r"\d{1,2}\.\d", capability):
        message = tr('"{capability}" is not a compute capability. Example: 8.6.', capability=capability)
        yield _finding("capability", message)


def _not_described(name: str | None, options: str) -> Iterator[Finding]:
    """Of a card that the catalogue does not have: `options` are those of its figures that are not given."""
    if name is None:
        yield _finding("gpu", tr("Specify the GPU to plan for (--gpu NAME), or set {options} too.", options=options))
    elif called := [spec.name for spec in gpus_called(name)]:
        message = tr('"{name}" matches several GPUs. Which one: {cards}?', name=name, cards=", ".join(called))
        yield Finding("unknown_gpu", "error", "gpu", message)
    else:
        message = tr('The GPU catalog has no GPU named "{name}".', name=name)
        if near := near_gpus(name):
            message += after(tr("Closest: {near}.", near=", ".join(near)))
        message += after(tr("For any other GPU, set --gpu-memory, --tflops and --capability."))
        yield Finding("unknown_gpu", "error", "gpu", message)


_finding = partial(Finding, "bad_value", "error")
