"""Devices: which part of the machine a run uses, how many processes that is, and how much memory each has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from trainwiz.core.catalog.gpu import GpuSpec
from trainwiz.core.catalog.gpus import spec_of
from trainwiz.core.config import RunConfig
from trainwiz.core.findings import Finding, Remedy
from trainwiz.core.hardware.describe import describe_gpus, gpu_label
from trainwiz.core.hardware.machine import Gpu, Machine
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plan.words import aside

Device = Literal["cuda", "mps", "cpu"]


@dataclass(frozen=True, slots=True)
class Devices:
    """What one run computes on."""

    device: Device
    gpus: tuple[Gpu, ...]
    """The chosen ones; empty on a CPU."""
    processes: int
    """On each node."""
    nodes: int
    capacity_bytes: int | None
    """Memory that is free now on the fullest of them; None where it cannot be read."""
    label: str
    spec: GpuSpec | None
    """Rates of the slowest card; None where it is not in the catalogue."""

    @property
    def world_size(self) -> int:
        return self.processes * self.nodes


HOST_RAM = mark("host RAM")
"""The label of the memory of a CPU run: code compares it, screens translate it."""
SMOKE_PROCESSES = 2
"""Of a smoke run on a CPU, for a profile with several GPUs: enough for the engine to be the same."""
INSTALL_CUDA_TORCH = "pip install --force-reinstall torch"


def torch_misses_gpu(machine: Machine) -> bool:
    """A CPU build of torch beside an NVIDIA GPU."""
    return not machine.hypothetical and machine.accelerator == "cuda" and machine.torch_cuda is None


def choose_devices(
    machine: Machine, config: RunConfig, *, any_device: bool = False, cpu_processes: int = 1
) -> tuple[Devices, tuple[Finding, ...]]:
    """The devices of a run, with errors for GPUs that are asked for and not there.

    A run that is made for `any_device` takes the CPU, with a warning, where the torch that is
    installed cannot use the GPU. On a CPU there are `cpu_processes` where the config leaves it open.
    """
    engine = config.engine
    idle_gpu = any_device and engine.device is None and engine.gpus is None and torch_misses_gpu(machine)
    device: Device = "cpu" if idle_gpu else engine.device or machine.accelerator
    if device == "cpu" or not machine.visible_gpus:
        count = engine.processes or (1 if engine.strategy == "single" else cpu_processes)
        devices = Devices("cpu", (), count, engine.nodes, machine.ram_available_bytes or None, HOST_RAM, None)
        if idle_gpu:
            return devices, _idle_gpu(machine)
        return devices, _no_gpu(machine, device) if device != "cpu" else ()
    gpus, findings = _selected(machine, engine.gpus)
    if engine.strategy == "single" and engine.processes is None:
        gpus = gpus[:1]
    processes = engine.processes or len(gpus)
    if processes > len(gpus):
        findings += (
            Finding(
                "too_many_processes",
                "error",
                "engine.processes",
                trn(
                    "engine.processes is {processes}, and there is {n} GPU: one process uses one GPU.",
                    "engine.processes is {processes}, and there are {n} GPUs: one process uses one GPU.",
                    len(gpus),
                    processes=processes,
                ),
            ),
        )
    gpus = gpus[:processes]
    free = [gpu.memory_free_bytes for gpu in gpus]
    capacity = None if any(size is None for size in free) else min(size for size in free if size is not None)
    specs = [spec_of(gpu) for gpu in gpus]
    known = [spec for spec in specs if spec is not None]
    slowest = min(known, key=lambda spec: spec.fp16_flops or spec.fp32_flops) if len(known) == len(gpus) else None
    label = f"GPU {gpus[0].index} · {gpu_label(gpus[0])}" if len(gpus) == 1 else describe_gpus(gpus)
    return Devices(device, gpus, processes, engine.nodes, capacity, label, slowest), findings


def _selected(machine: Machine, wanted: list[str] | None) -> tuple[tuple[Gpu, ...], tuple[Finding, ...]]:
    visible = machine.visible_gpus
    if wanted is None:
        return visible, ()
    offered = (*visible, *other_slices(machine))
    chosen: list[Gpu] = []
    missing: list[str] = []
    for name in wanted:
        match = [gpu for gpu in offered if name == gpu.uuid or (gpu in visible and name == str(gpu.index))]
        chosen += [gpu for gpu in match if gpu not in chosen]
        missing += [] if match else [name]
    if len(chosen) > 1 and any(gpu.parent_uuid is not None for gpu in chosen):
        message = tr("A program sees one MIG slice and no other GPU; name one of them (engine.gpus).")
        alone = Remedy(tr("use {gpu}", gpu=gpu_label(chosen[0])), changes={"engine.gpus": [chosen[0].uuid]})
        return tuple(chosen[:1]), (Finding("unknown_gpu", "error", "engine.gpus", message, (alone,)),)
    if not missing:
        return tuple(chosen), ()
    there = ", ".join(f"{gpu.index} ({gpu_label(gpu)})" for gpu in visible)
    message = tr("There is no GPU {missing} to use here; there are {there}.", missing=", ".join(missing), there=there)
    kept = [name for name in wanted if name not in missing]
    rest = Remedy(tr("go on with the GPUs that are here"), changes={"engine.gpus": kept or None})
    return tuple(chosen) or visible[:1], (Finding("unknown_gpu", "error", "engine.gpus", message, (rest,)),)


def other_slices(machine: Machine) -> tuple[Gpu, ...]:
    """MIG slices that a run can be given by name: CUDA shows a program one, which CUDA_VISIBLE_DEVICES decides.

    Where that variable is set already, it stands for what the user or the batch system allows.
    """
    if machine.cuda_visible_devices is not None:
        return ()
    slices = (gpu for gpu in machine.gpus if gpu.parent_uuid is not None and gpu.uuid is not None and not gpu.visible)
    return tuple(replace(gpu, visible=True, cuda_index=0) for gpu in slices if "gpu" not in gpu.unavailable)


def _idle_gpu(machine: Machine) -> tuple[Finding, ...]:
    why = machine.unavailable.get("torch_cuda")
    message = tr("The GPU stays idle: the torch that is installed cannot use it{why}.", why=aside(why))
    install = Remedy(tr("install the CUDA build"), INSTALL_CUDA_TORCH)
    return (Finding("torch_without_cuda", "warning", "engine.device", message, (install,)),)


def _no_gpu(machine: Machine, device: str) -> tuple[Finding, ...]:
    why = next((reason for key, reason in machine.unavailable.items() if "gpu" in key or "driver" in key), "")
    message = tr("engine.device is {device}, and this machine has no such device{why}.", device=device, why=aside(why))
    return (Finding("missing_hardware", "error", "engine.device", message),)
