"""Keys of devices: what a measurement was made on, and whether it counts for the devices of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainwiz.core.hardware.machine import Gpu, Machine

GIB = 1024**3


def gpu_key(device: str, name: str | None, memory_bytes: int | None) -> str:
    """ "cuda:NVIDIA GeForce RTX 3080:10 GiB". Two cards of one kind are alike."""
    memory = "unknown memory" if memory_bytes is None else f"{round(memory_bytes / GIB)} GiB"
    return f"{device}:{name or 'unknown GPU'}:{memory}"


def cpu_key(model: str | None, cores: int) -> str:
    """ "cpu:AMD EPYC 7763:8 cores". The cores are those that trainwiz may use."""
    return f"cpu:{model or 'unknown processor'}:{cores} cores"


def device_key(machine: Machine, device: str, gpus: Sequence[Gpu] = ()) -> str | None:
    """The key of what a run computes on: `device` is "cuda", "mps" or "cpu", `gpus` the chosen cards.

    None where one key would not say it: no card, or cards of several kinds.
    """
    if device == "cpu":
        return cpu_key(machine.cpu_model, machine.cpu_cores)
    keys = {gpu_key(device, gpu.name, gpu.memory_total_bytes) for gpu in gpus}
    return keys.pop() if len(keys) == 1 else None


def keys_of(machine: Machine) -> frozenset[str]:
    """Keys of everything that this machine can compute on; none for a machine that is only planned."""
    if machine.hypothetical:
        return frozenset()
    keys = {gpu_key(machine.accelerator, gpu.name, gpu.memory_total_bytes) for gpu in machine.gpus}
    return frozenset({cpu_key(machine.cpu_model, machine.cpu_cores), *keys})


def short_names(keys: Iterable[str]) -> str:
    """For a sentence: "NVIDIA GeForce RTX 3080" of each key."""
    return ", ".join(sorted({key.split(":")[1] for key in keys}))
