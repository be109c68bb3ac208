"""A machine in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trainwiz.core.hardware.machine import Gpu, Machine
from trainwiz.core.language import tr, trn

GIB = 1024**3


def describe(machine: Machine) -> str:
    """ "1 x RTX 3080 10GB, 12 cores, 62.7 GiB RAM"."""
    parts = [describe_gpus(machine.visible_gpus)]
    parts.append(trn("{n} core", "{n} cores", machine.cpu_cores))
    parts.append(tr("{size} GiB RAM", size=f"{machine.ram_total_bytes / GIB:.1f}"))
    return tr(", ").join(parts)


def describe_gpus(gpus: Sequence[Gpu]) -> str:
    """ "2 x RTX 3090 + 1 x T4", or "no GPU"."""
    counts = Counter(gpu_label(gpu) for gpu in gpus)
    return " + ".join(f"{count} x {label}" for label, count in counts.items()) or tr("no GPU")


def gpu_label(gpu: Gpu) -> str:
    """The catalogue's name, which tells memory sizes apart, else the driver's without its maker."""
    if gpu.catalogue_name is not None:
        return gpu.catalogue_name
    name = (gpu.name or tr("unknown GPU")).removeprefix("NVIDIA ").removeprefix("GeForce ")
    if gpu.parent_uuid is not None and gpu.mig is not None and gpu.mig not in name:
        return f"{name} MIG {gpu.mig}"
    return name
