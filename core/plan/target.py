"""Target: which machine a plan is made for, this one or the one that the profile or the user names."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from trainwiz.core.catalog.gpus import load_gpus
from trainwiz.core.findings import Finding, Remedy
from trainwiz.core.hardware.describe import describe_gpus, gpu_label
from trainwiz.core.hardware.hypothetical import catalogue_machine
from trainwiz.core.hardware.machine import Gpu, Machine
from trainwiz.core.language import tr
from trainwiz.core.plan.command import mode_words, number_of_mode
from trainwiz.core.plan.request import PlanRequest
from trainwiz.core.plan.set_words import set_words
from trainwiz.core.plan.words import aside
from trainwiz.core.profile.profile import Profile, ProfileHardware


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
