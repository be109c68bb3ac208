"""A machine that is not here, for planning: from the GPU catalogue, or with figures given by hand."""

from __future__ import annotations

import re
from dataclasses import replace

from trainwiz.core.catalog.gpu import GpuSpec
from trainwiz.core.catalog.gpus import GIB, find_gpu, load_gpus, near_gpus
from trainwiz.core.errors import UsageError
from trainwiz.core.findings import Finding
from trainwiz.core.hardware.describe import describe
from trainwiz.core.hardware.machine import Accelerator, Gpu, Machine
from trainwiz.core.language import mark, tr

DEFAULT_RAM_BYTES = 64 * GIB
DEFAULT_CORES_PER_GPU = 8
DEFAULT_CORES = 8

USABLE_SHARE = 0.98
"""What CUDA reports of a card's memory, where the catalogue does not know: 0.97 to 0.99 over those that it knows."""

PLANNED = mark("this machine is planned, not probed")


def catalogue_machine(
    *,
    gpu: str | None,
    num_gpus: int,
    ram_bytes: int | None,
    cpu_cores: int | None = None,
    gpu_memory_bytes: int | None = None,
    tflops: float | None = None,
    capability: str | None = None,
) -> Machine:
    """A Machine with `num_gpus` cards of one kind, all of their memory free.

    Either `gpu` names a card of the catalogue, or `gpu_memory_bytes`, `tflops` (dense half precision)
    and `capability` ("8.6") describe one; given beside a name they replace the catalogue's value.
    RAM that is not given is taken as 64 GiB, cores as 8 for each GPU; both are then in `notes`.
    Raises UsageError with every finding: unknown name (with the near ones), missing or impossible figures.
    """
    findings = _check_figures(num_gpus, ram_bytes, cpu_cores, gpu_memory_bytes, tflops, capability)
    by_hand = gpu_memory_bytes is not None or tflops is not None or capability is not None
    spec: GpuSpec | None = None
    if gpu is not None:
        spec = find_gpu(gpu, gpu_memory_bytes) or find_gpu(gpu)
        if spec is None and not (gpu_memory_bytes and tflops and capability):
            findings.append(_unknown_gpu(gpu))
    elif num_gpus and by_hand:
        findings += _missing_figures(gpu_memory_bytes, tflops, capability)
    elif num_gpus and not by_hand:
        findings.append(_finding("gpu", tr("Name the GPU to plan for (--gpu NAME), or give its figures by hand.")))
    if findings:
        raise UsageError(findings)
    accelerator = _accelerator(spec, num_gpus)
    notes: list[str] = []
    if ram_bytes is None:
        ram_bytes = DEFAULT_RAM_BYTES if accelerator != "mps" or spec is None else spec.memory_bytes
        notes.append(tr("RAM is not given: {ram} GiB is assumed (--ram SIZE).", ram=ram_bytes // GIB))
    if cpu_cores is None:
        cpu_cores = max(DEFAULT_CORES, DEFAULT_CORES_PER_GPU * num_gpus)
    cards = tuple(
        _card(index, gpu, spec, accelerator, ram_bytes, gpu_memory_bytes, tflops, capability)
        for index in range(num_gpus)
    )
    machine = Machine(
        gpus=cards,
        cpu_cores=cpu_cores,
        ram_total_bytes=ram_bytes,
        ram_available_bytes=ram_bytes,
        platform="darwin" if accelerator == "mps" else "linux",
        accelerator=accelerator,
        os_version="14.0" if accelerator == "mps" else None,
        hypothetical=True,
        unavailable=dict.fromkeys(
            ("disk_free_bytes", "shared_memory_bytes", "cuda_driver_version", "torch_cuda", "libraries"), tr(PLANNED)
        ),
        notes=tuple(notes),
    )
    return replace(machine, description=describe(machine))


def _card(
    index: int,
    name: str | None,
    spec: GpuSpec | None,
    accelerator: Accelerator,
    ram_bytes: int,
    memory_bytes: int | None,
    tflops: float | None,
    capability: str | None,
) -> Gpu:
    if spec is not None and accelerator == "mps":
        total = usable = int(ram_bytes * 0.75)
    elif memory_bytes is not None or spec is None:
        total = memory_bytes or 0
        usable = int(total * USABLE_SHARE)
    else:
        total, usable = spec.memory_bytes, spec.usable_bytes or int(spec.memory_bytes * USABLE_SHARE)
    return Gpu(
        index=index,
        name=spec.name if spec is not None else name or tr("GPU given by hand"),
        memory_total_bytes=total,
        memory_free_bytes=usable,
        memory_other_bytes=0,
        compute_capability=capability or (spec.compute_capability if spec is not None else None),
        cuda_index=index,
        catalogue_name=spec.name if spec is not None and tflops is None else None,
        given_tflops=tflops,
        unavailable=dict.fromkeys(("uuid", "driver", "mig", "links"), tr(PLANNED)),
    )


def _accelerator(spec: GpuSpec | None, num_gpus: int) -> Accelerator:
    if num_gpus == 0:
        return "cpu"
    return "mps" if spec is not None and spec.compute_capability is None else "cuda"


def _check_figures(
    num_gpus: int,
    ram_bytes: int | None,
    cpu_cores: int | None,
    memory_bytes: int | None,
    tflops: float | None,
    capability: str | None,
) -> list[Finding]:
    findings = []
    if not 0 <= num_gpus <= 1024:
        findings.append(
            _finding(
                "num_gpus", tr("The number of GPUs is {num_gpus}; give 0 to 1024 (--num-gpus N).", num_gpus=num_gpus)
            )
        )
    for where, value, option in (
        ("ram", ram_bytes, "--ram 64G"),
        ("cpu_cores", cpu_cores, tr("a whole number")),
        ("gpu_memory", memory_bytes, "--gpu-memory 24G"),
        ("tflops", tflops, "--tflops 71"),
    ):
        if value is not None and not 0 < value < float("inf"):
            findings.append(
                _finding(
                    where,
                    tr(
                        "The value of {where} is {value}; give one above 0 ({option}).",
                        where=where,
                        value=value,
                        option=option,
                    ),
                )
            )
    if capability is not None and not re.fullmatch(r"\d{1,2}\.\d", capability):
        findings.append(
            _finding(
                "capability",
                tr(
                    '"{capability}" is not a compute capability. Example: 8.6.',
                    capability=capability,
                ),
            )
        )
    return findings


def _missing_figures(memory_bytes: int | None, tflops: float | None, capability: str | None) -> list[Finding]:
    given = {"--gpu-memory": memory_bytes, "--tflops": tflops, "--capability": capability}
    missing = [option for option, value in given.items() if value is None]
    if not missing:
        return []
    options = tr(" and ").join(missing)
    return [_finding("gpu", tr("A GPU given by hand also needs {options}; or name one with --gpu.", options=options))]


def _unknown_gpu(name: str) -> Finding:
    near = near_gpus(name) or list(load_gpus())
    return Finding(
        code="unknown_gpu",
        severity="error",
        where="gpu",
        message=tr(
            'The GPU catalogue has no single card called "{name}". Near: {near}. '
            "For another card give --gpu-memory, --tflops and --capability.",
            name=name,
            near=", ".join(near),
        ),
    )


def _finding(where: str, message: str) -> Finding:
    return Finding(code="bad_value", severity="error", where=where, message=message)
