"""Which machine a plan is made for, and which of its devices a run uses."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Literal

from trainwiz.core.catalog.gpus import GpuSpec, load_gpus, spec_of
from trainwiz.core.config import RunConfig
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.errors import Finding, Remedy
from trainwiz.core.hardware.machine import Gpu, Machine, describe_gpus, gpu_label
from trainwiz.core.hardware.read import catalogue_machine
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plan.result import mode_words, number_of_mode, set_words
from trainwiz.core.plan.words import aside
from trainwiz.core.profile.profile import Profile, ProfileHardware

# Devices: which part of the machine a run uses, how many processes that is, and how much memory each has.

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


# Target: which machine a plan is made for, this one or the one that the profile or the user names.


@dataclass(frozen=True, slots=True)
class Target:
    """The machine of a plan, and what there is to say about the choice."""

    machine: Machine
    findings: tuple[Finding, ...] = ()


def choose_target(request: PlanRequest, profile: Profile | None, here: Machine) -> Target:
    """This machine where it will do; else the named one.

    A profile that names a GPU is planned for this machine's CUDA GPUs when there are any (with a
    warning when they are others or fewer), else for the profile's own machine with the error
    `missing_hardware`. A smoke run is always for this machine. Raises UsageError for a GPU name
    that the catalogue does not know.
    """
    if _names_a_machine(request):
        return Target(_named(request, profile))
    wanted = profile.hardware if profile is not None else ProfileHardware()
    if wanted.gpu is None or request.mode == "smoke" or request.overrides.get("engine.device") == "cpu":
        return Target(here)
    if _is_apple(wanted.gpu) and here.accelerator == "mps":
        return Target(here)
    cards = here.visible_gpus if here.accelerator == "cuda" else ()
    if not cards:
        own = catalogue_machine(
            gpu=wanted.gpu, num_gpus=wanted.num_gpus, ram_bytes=wanted.ram_bytes, cpu_cores=wanted.cpu_cores
        )
        return Target(own, (_missing(request, profile, wanted, here),))
    return Target(here, _differences(profile, wanted, cards))


def _is_apple(gpu: str) -> bool:
    """All Apple chips run what is made for one: their memory is the machine's RAM, which the plan measures."""
    spec = load_gpus().get(gpu)
    return spec is not None and spec.compute_capability is None


def _names_a_machine(request: PlanRequest) -> bool:
    values = (request.gpu, request.num_gpus, request.ram_bytes, request.gpu_memory_bytes, request.tflops)
    return any(value is not None for value in (*values, request.capability))


def _named(request: PlanRequest, profile: Profile | None) -> Machine:
    wanted = profile.hardware if profile is not None else ProfileHardware()
    by_hand = request.gpu_memory_bytes is not None or request.tflops is not None or request.capability is not None
    gpu = request.gpu if request.gpu is not None or by_hand else wanted.gpu
    count = request.num_gpus
    if count is None:
        count = wanted.num_gpus if gpu is not None or by_hand else 0
    return catalogue_machine(
        gpu=gpu,
        num_gpus=count,
        ram_bytes=request.ram_bytes if request.ram_bytes is not None else wanted.ram_bytes,
        cpu_cores=wanted.cpu_cores,
        gpu_memory_bytes=request.gpu_memory_bytes,
        tflops=request.tflops,
        capability=request.capability,
    )


def _missing(request: PlanRequest, profile: Profile | None, wanted: ProfileHardware, here: Machine) -> Finding:
    name = profile.name if profile is not None else tr("this run")
    reason = next(
        (why for key, why in here.unavailable.items() if "gpu" in key or "nvml" in key or "driver" in key), ""
    )
    kind = "Apple" if wanted.gpu is not None and _is_apple(wanted.gpu) else "NVIDIA"
    if here.accelerator == "mps":
        reason = tr("it has an Apple GPU, which runs other profiles")
    message = tr(
        "{name} is made for {machine}, and this machine has no {kind} GPU{why}. The plan shown is for that machine.",
        name=name,
        machine=f"{wanted.num_gpus} × {wanted.gpu}",
        kind=kind,
        why=aside(reason if kind == "NVIDIA" else ""),
    )
    written = ["trainwiz", "--profile", name, *mode_words(request.mode, number_of_mode(request))]
    written += [*set_words(request.overrides), "--dry-run"]
    return Finding(
        "missing_hardware",
        "error",
        "hardware",
        message,
        (
            Remedy(tr("try the same engine here with a tiny model"), f"trainwiz --profile {name} --smoke --yes"),
            Remedy(tr("write the folder for the machine that has it"), shlex.join(written)),
        ),
    )


def _differences(profile: Profile | None, wanted: ProfileHardware, cards: tuple[Gpu, ...]) -> tuple[Finding, ...]:
    name = profile.name if profile is not None else tr("this run")
    same = [gpu for gpu in cards if gpu.catalogue_name == wanted.gpu]
    if len(same) == len(cards) and len(cards) >= wanted.num_gpus:
        return ()
    have = describe_gpus(cards)
    made_for = f"{wanted.num_gpus} × {wanted.gpu}"
    message = tr(
        "{name} is made for {made_for}; the plan is for what is here: {have}.", name=name, made_for=made_for, have=have
    )
    if same and len(same) < len(cards):
        indices = ",".join(str(gpu.index) for gpu in same)
        remedy = Remedy(
            tr("use the {gpu} alone", gpu=gpu_label(same[0])),
            f"trainwiz --profile {name} --gpus {indices}",
            {"engine.gpus": [str(gpu.index) for gpu in same]},
        )
        return (Finding("other_hardware", "warning", "hardware", message, (remedy,)),)
    return (Finding("other_hardware", "warning", "hardware", message),)
