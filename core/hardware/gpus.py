"""Every NVIDIA GPU of this computer, read by NVML. One card that fails leaves the others as they are."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from trainwiz.core.catalog.gpus import find_gpu
from trainwiz.core.hardware.links import read_links
from trainwiz.core.hardware.machine import Gpu
from trainwiz.core.hardware.nvml import (
    NO_GPU,
    NvmlSession,
    Reader,
    Unreadable,
    call,
    device_memory,
    in_time,
    mig_handles,
)
from trainwiz.core.language import tr


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What NVML said. `gpus` are in NVML's order (PCI bus), the slices of a MIG card after their card."""

    gpus: tuple[Gpu, ...] = ()
    cuda_driver_version: str | None = None
    unavailable: dict[str, str] = field(default_factory=dict)
    old_mig_names: dict[str, str] = field(default_factory=dict)
    """UUID of a slice -> "MIG-GPU-.../1/0", as drivers before 470 named it."""


def read_gpus() -> GpuReading:
    """All cards and MIG slices. Without a driver the reading is empty, with the reason under `unavailable["gpus"]`."""
    try:
        return in_time(_read_all)
    except Unreadable as error:
        return GpuReading(unavailable={"gpus": error.reason})


def _read_all() -> GpuReading:
    with NvmlSession() as nvml:
        if nvml.error is not None:
            return GpuReading(unavailable={"gpus": nvml.error})
        reader = Reader()
        driver = reader.read("driver", lambda: str(call("nvmlSystemGetDriverVersion")))
        cuda = reader.read("cuda_driver_version", lambda: _cuda_version(call("nvmlSystemGetCudaDriverVersion")))
        count = reader.read("gpus", lambda: int(call("nvmlDeviceGetCount"))) or 0
        if count == 0 and "gpus" not in reader.unavailable:
            reader.unavailable["gpus"] = tr(NO_GPU)
        gpus: list[Gpu] = []
        handles: dict[int, Any] = {}
        old_names: dict[str, str] = {}
        for index in range(count):
            try:
                handle = call("nvmlDeviceGetHandleByIndex", index)
            except Unreadable as error:
                gpus.append(_unreadable(index, driver, error.reason))
                continue
            card = _read_card(index, handle, driver)
            gpus.append(card)
            if "gpu" not in card.unavailable:
                handles[index] = handle
                gpus.extend(_read_slices(card, handle, old_names))
        links = read_links(handles)
        linked = tuple(replace(gpu, links=links.get(gpu.index, ())) if gpu.parent_uuid is None else gpu for gpu in gpus)
        return GpuReading(linked, cuda, reader.unavailable, old_names)


def _unreadable(index: int, driver: str | None, reason: str, uuid: str | None = None, name: str | None = None) -> Gpu:
    """A card that is there and does not answer: nothing is known, and it cannot be used."""
    return Gpu(
        index=index, uuid=uuid, name=name, driver=driver, visible=False, unavailable={"gpu": reason, "visible": reason}
    )


def _read_card(index: int, handle: Any, driver: str | None) -> Gpu:
    reader = Reader()
    uuid = reader.read("uuid", lambda: str(call("nvmlDeviceGetUUID", handle)))
    name = reader.read("name", lambda: str(call("nvmlDeviceGetName", handle)))
    memory = reader.read("memory", lambda: device_memory(handle))
    capability = reader.read("compute_capability", lambda: _capability(handle))
    mig = reader.read("mig", lambda: mig_handles(handle)[0])
    limit = reader.read("power_limit_w", lambda: float(call("nvmlDeviceGetEnforcedPowerLimit", handle)) / 1000)
    if reader.lost is not None:
        return _unreadable(index, driver, reader.lost, uuid, name)
    total, free, used = memory or (None, None, None)
    reasons = _by_field(reader.unavailable)
    if driver is None:
        reasons["driver"] = tr("the driver does not say its version")
    spec = find_gpu(name, total) if name is not None else None
    if spec is None:
        reasons["catalogue_name"] = tr("the GPU catalogue does not know this card")
    if mig is None:
        reasons.setdefault("mig", tr("the card has no MIG"))
    return Gpu(
        index=index,
        uuid=uuid,
        name=name,
        memory_total_bytes=total,
        memory_free_bytes=free,
        memory_other_bytes=used,
        compute_capability=capability,
        driver=driver,
        mig={None: None, True: "enabled", False: "disabled"}[mig],
        power_limit_w=limit,
        catalogue_name=spec.name if spec is not None else None,
        unavailable=reasons,
    )


def _read_slices(card: Gpu, handle: Any, old_names: dict[str, str]) -> list[Gpu]:
    if card.mig != "enabled":
        return []
    reader = Reader()
    slices = reader.read("mig", lambda: mig_handles(handle)[1]) or []
    found: list[Gpu] = []
    for position, slice_handle in enumerate(slices):
        found.append(_read_slice(card, slice_handle, position))
        uuid = found[-1].uuid
        ids = _instance_ids(slice_handle)
        if uuid is not None and ids is not None:
            old_names[uuid] = f"MIG-{card.uuid}/{ids[0]}/{ids[1]}"
    return found


def _read_slice(card: Gpu, handle: Any, position: int) -> Gpu:
    reader = Reader()
    uuid = reader.read("uuid", lambda: str(call("nvmlDeviceGetUUID", handle)))
    name = reader.read("name", lambda: str(call("nvmlDeviceGetName", handle)))
    memory = reader.read("memory", lambda: device_memory(handle))
    total, free, used = memory or (None, None, None)
    reasons = _by_field(reader.unavailable)
    reasons["catalogue_name"] = tr("a MIG slice has a share of its card's rates")
    return Gpu(
        index=card.index,
        uuid=uuid,
        name=name or card.name,
        memory_total_bytes=total,
        memory_free_bytes=free,
        memory_other_bytes=used,
        compute_capability=card.compute_capability,
        driver=card.driver,
        mig=slice_profile(name, handle) or f"slice {position}",
        parent_uuid=card.uuid,
        unavailable=reasons,
    )


def slice_profile(name: str | None, handle: Any) -> str | None:
    """The profile of a MIG slice, "1g.10gb" or "1c.3g.20gb": in the name with newer drivers, else from the slice counts."""
    match = re.search(r"\bMIG\s+(\S+)", name or "")
    if match:
        return match.group(1)
    try:
        counts = call("nvmlDeviceGetAttributes_v2", handle)
    except Unreadable:
        return None
    memory = f"{counts.gpuInstanceSliceCount}g.{-(-int(counts.memorySizeMB) // 1024)}gb"
    whole = counts.computeInstanceSliceCount == counts.gpuInstanceSliceCount
    return memory if whole else f"{counts.computeInstanceSliceCount}c.{memory}"


def _by_field(reasons: dict[str, str]) -> dict[str, str]:
    """Memory is read at once and shown as three fields."""
    spread: dict[str, str] = {}
    for name, reason in reasons.items():
        if name == "memory":
            spread |= dict.fromkeys(("memory_total_bytes", "memory_free_bytes", "memory_other_bytes"), reason)
        else:
            spread[name] = reason
    return spread


def _capability(handle: Any) -> str:
    major, minor = call("nvmlDeviceGetCudaComputeCapability", handle)
    return f"{major}.{minor}"


def _cuda_version(number: int) -> str:
    """12090 -> "12.9"."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _instance_ids(handle: Any) -> tuple[int, int] | None:
    try:
        return int(call("nvmlDeviceGetGpuInstanceId", handle)), int(call("nvmlDeviceGetComputeInstanceId", handle))
    except Unreadable:
        return None
