"""NVML as values: one session, reads that give back the value or the reason, every NVIDIA GPU and how they are joined."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import pynvml
from trainwiz.core.catalog.gpus import find_gpu
from trainwiz.core.hardware.machine import UNKNOWN_LINK, Gpu
from trainwiz.core.language import mark, tr

T = TypeVar("T")

NO_LIBRARY = mark("no NVIDIA driver is installed: libnvidia-ml.so.1 was not found")
NOT_LOADED = mark("the NVIDIA driver is installed but not loaded")
DRIVER_UPDATED = mark("the NVIDIA driver was updated but the old one is still loaded: reboot, or reload the driver")
TOO_LATE = mark("the driver did not respond in time")
NO_GPU = mark("the NVIDIA driver works but finds no GPU")
"""Reasons that code compares, in the language in use: `reason == tr(NO_GPU)`."""

_REASONS: dict[int, str] = {
    pynvml.NVML_ERROR_UNINITIALIZED: mark("NVML is not initialized"),
    pynvml.NVML_ERROR_NOT_SUPPORTED: mark("this GPU does not report it"),
    pynvml.NVML_ERROR_NO_PERMISSION: mark("this user has no permission to read it"),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: NOT_LOADED,
    pynvml.NVML_ERROR_TIMEOUT: TOO_LATE,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: NO_LIBRARY,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: mark("this driver version does not report it"),
    pynvml.NVML_ERROR_GPU_IS_LOST: mark("the GPU is lost: it has fallen off the bus, or needs a reset or a reboot"),
    pynvml.NVML_ERROR_RESET_REQUIRED: mark("the GPU needs a reset"),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: DRIVER_UPDATED,
    pynvml.NVML_ERROR_UNKNOWN: mark("the driver reports an unknown error"),
}

LOST_CODES = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
"""Errors that concern the whole card, not one sensor."""


class Unreadable(Exception):
    """A value that NVML did not give: `code` is NVML's (None for a failure outside it), the text says why."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code

    @property
    def lost(self) -> bool:
        return self.code in LOST_CODES


def call(function: str, *arguments: Any) -> Any:
    try:
        value = getattr(pynvml, function)(*arguments)
    except pynvml.NVMLError as error:
        code = int(error.value)
        raise Unreadable(tr(_REASONS[code]) if code in _REASONS else str(error), code) from None
    except AttributeError:
        raise Unreadable(tr("the installed nvidia-ml-py has no {function}", function=function)) from None
    except (ValueError, TypeError, OSError) as error:
        raise Unreadable(tr("the driver's response could not be read ({error})", error=error)) from None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


ANSWER_S = 30.0
"""A driver that must first wake eight cards takes most of it."""
_hangs = False


def in_time(read: Callable[[], T], within_s: float | None = None) -> T:
    """What `read` gives. Raises Unreadable where the driver has not answered after `within_s` (ANSWER_S without it).

    It is not asked again then.
    A driver that has lost its card may never come back from a call, and nothing can end such a call.
    """
    global _hangs
    answers: list[T] = []
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            answers.append(read())
        except BaseException as error:  # noqa: BLE001 -- raised again by the one who waits
            failures.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(ANSWER_S if within_s is None else within_s)
    if failures:
        raise failures[0]
    if not answers:
        _hangs = True
        raise Unreadable(tr(TOO_LATE), pynvml.NVML_ERROR_TIMEOUT)
    return answers[0]


class Reader:
    def __init__(self) -> None:
        self.unavailable: dict[str, str] = {}
        self.lost: str | None = None

    def read(self, field: str, read: Callable[[], T]) -> T | None:
        """What `read` gives, or None with the reason under `unavailable[field]`."""
        try:
            return read()
        except Unreadable as error:
            self.unavailable[field] = error.reason
            if error.lost:
                self.lost = error.reason
            return None


class NvmlSession:
    """`with NvmlSession() as nvml`: `nvml.error` is None, or says why there is no NVML here."""

    def __init__(self) -> None:
        self.error: str | None = tr("NVML is not initialized")

    def open(self) -> bool:
        """Initialise NVML; True when it worked. Safe to call again after a failure or a close."""
        if self.error is None:
            return True
        if _hangs:
            self.error = tr(TOO_LATE)
            return False
        try:
            call("nvmlInit")
        except Unreadable as error:
            self.error = error.reason
            return False
        self.error = None
        return True

    def close(self) -> None:
        if self.error is not None:
            return
        self.error = tr("NVML is not initialized")
        try:
            call("nvmlShutdown")
        except Unreadable as error:
            self.error = error.reason

    def __enter__(self) -> NvmlSession:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def device_memory(handle: Any) -> tuple[int, int, int]:
    """(total, free, used) in bytes. Used leaves out what the driver itself reserves, where the driver says it."""
    try:
        info = call("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
    except Unreadable as error:
        if error.lost:
            raise
        info = call("nvmlDeviceGetMemoryInfo", handle)
    return int(info.total), int(info.free), int(info.used)


def mig_handles(card: Any) -> tuple[bool | None, list[Any]]:
    """(MIG is enabled, the handles of its slices); (None, []) for a card without MIG."""
    try:
        current, _ = call("nvmlDeviceGetMigMode", card)
    except Unreadable as error:
        if error.lost:
            raise
        return None, []
    if not current:
        return False, []
    slices = []
    for index in range(int(call("nvmlDeviceGetMaxMigDeviceCount", card))):
        try:
            slices.append(call("nvmlDeviceGetMigDeviceHandleByIndex", card, index))
        except Unreadable as error:
            if error.lost:
                raise
    return True, slices


# Every card and MIG slice, and how they are joined.

_LEVELS: dict[int, str] = {
    pynvml.NVML_TOPOLOGY_INTERNAL: mark("same board"),
    pynvml.NVML_TOPOLOGY_SINGLE: mark("one PCIe switch"),
    pynvml.NVML_TOPOLOGY_MULTIPLE: mark("several PCIe switches"),
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: mark("one PCIe host bridge"),
    pynvml.NVML_TOPOLOGY_NODE: mark("one CPU socket"),
    pynvml.NVML_TOPOLOGY_SYSTEM: mark("between CPU sockets"),
}

Bus = tuple[int, int, int]


def read_links(handles: Mapping[int, Any]) -> dict[int, tuple[str, ...]]:
    """For each card, one phrase for each other card: "GPU1: NVLink x4", "GPU1: one PCIe switch".

    `handles` maps NVML indexes to NVML handles. A link that cannot be read is "GPU1: unknown (reason)".
    """
    if len(handles) < 2:
        return {}
    buses = {index: _bus(handle) for index, handle in handles.items()}
    peers = {index: _nvlink_peers(handle) for index, handle in handles.items()}

    def link(one: int, other: int) -> str:
        direct = sum(bus == buses[other] for bus in peers[one][0])
        if direct:
            return f"NVLink x{direct}"
        if peers[one][1] and peers[other][1]:
            return tr("NVLink x{count} through NVSwitch", count=min(peers[one][1], peers[other][1]))
        try:
            level = int(call("nvmlDeviceGetTopologyCommonAncestor", handles[one], handles[other]))
        except Unreadable as error:
            return f"{tr(UNKNOWN_LINK)} ({error.reason})"
        return tr(_LEVELS[level]) if level in _LEVELS else tr("PCIe (topology level {level})", level=level)

    return {one: tuple(f"GPU{other}: {link(one, other)}" for other in handles if other != one) for one in handles}


def _bus(handle: Any) -> Bus | None:
    try:
        info = call("nvmlDeviceGetPciInfo", handle)
    except Unreadable:
        return None
    return int(info.domain), int(info.bus), int(info.device)


def _nvlink_peers(handle: Any) -> tuple[list[Bus], int]:
    """(bus of the card at the far end of each active link, number of active links that end in an NVSwitch)."""
    cards: list[Bus] = []
    switches = 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if not call("nvmlDeviceGetNvLinkState", handle, link):
                continue
            if call("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                switches += 1
                continue
            far = call("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
            cards.append((int(far.domain), int(far.bus), int(far.device)))
        except Unreadable:
            # The first link that the card does not have: there are none behind it.
            break
    return cards, switches


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What NVML said. `gpus` are in NVML's order (PCI bus), the slices of a MIG card after their card."""

    gpus: tuple[Gpu, ...] = ()
    cuda_driver_version: str | None = None
    unavailable: dict[str, str] = field(default_factory=dict)


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
        # 12090 is 12.9.
        number = "nvmlSystemGetCudaDriverVersion"
        cuda = reader.read("cuda_driver_version", lambda: "{}.{}".format(*divmod(call(number) // 10, 100)))
        count = reader.read("gpus", lambda: int(call("nvmlDeviceGetCount"))) or 0
        if count == 0 and "gpus" not in reader.unavailable:
            reader.unavailable["gpus"] = tr(NO_GPU)
        gpus: list[Gpu] = []
        handles: dict[int, Any] = {}
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
                slices = Reader().read("mig", partial(mig_handles, handle)) if card.mig == "enabled" else None
                gpus += [_read_slice(card, part, place) for place, part in enumerate(slices[1] if slices else [])]
        links = read_links(handles)
        linked = tuple(replace(gpu, links=links.get(gpu.index, ())) if gpu.parent_uuid is None else gpu for gpu in gpus)
        return GpuReading(linked, cuda, reader.unavailable)


def _unreadable(index: int, driver: str | None, reason: str, uuid: str | None = None, name: str | None = None) -> Gpu:
    """A card that is there and does not answer: nothing is known, and it cannot be used."""
    return Gpu(
        index=index, uuid=uuid, name=name, driver=driver, visible=False, unavailable={"gpu": reason, "visible": reason}
    )


def _fields(reader: Reader, handle: Any) -> dict[str, Any]:
    """What cards and slices have alike, by the names of Gpu."""
    uuid = reader.read("uuid", lambda: str(call("nvmlDeviceGetUUID", handle)))
    name = reader.read("name", lambda: str(call("nvmlDeviceGetName", handle)))
    memory = reader.read("memory", lambda: device_memory(handle))
    sizes = ("memory_total_bytes", "memory_free_bytes", "memory_other_bytes")
    if memory is None:
        # Read at once and shown as three fields.
        reader.unavailable |= dict.fromkeys(sizes, reader.unavailable.pop("memory"))
    return {"uuid": uuid, "name": name, **dict(zip(sizes, memory or (None, None, None), strict=True))}


def _read_card(index: int, handle: Any, driver: str | None) -> Gpu:
    reader = Reader()
    fields = _fields(reader, handle)
    capability = reader.read(
        "compute_capability", lambda: "{}.{}".format(*call("nvmlDeviceGetCudaComputeCapability", handle))
    )
    mig = reader.read("mig", lambda: mig_handles(handle)[0])
    limit = reader.read("power_limit_w", lambda: float(call("nvmlDeviceGetEnforcedPowerLimit", handle)) / 1000)
    if reader.lost is not None:
        return _unreadable(index, driver, reader.lost, fields["uuid"], fields["name"])
    reasons = reader.unavailable
    if driver is None:
        reasons["driver"] = tr("the driver does not report its version")
    spec = find_gpu(fields["name"], fields["memory_total_bytes"]) if fields["name"] is not None else None
    if spec is None:
        reasons["catalogue_name"] = tr("this GPU is not in the GPU catalog")
    if mig is None:
        reasons.setdefault("mig", tr("this GPU has no MIG"))
    return Gpu(
        index=index,
        **fields,
        compute_capability=capability,
        driver=driver,
        mig={None: None, True: "enabled", False: "disabled"}[mig],
        power_limit_w=limit,
        catalogue_name=spec.name if spec is not None else None,
        unavailable=reasons,
    )


def _read_slice(card: Gpu, handle: Any, position: int) -> Gpu:
    reader = Reader()
    fields = _fields(reader, handle)
    return Gpu(
        index=card.index,
        **{**fields, "name": fields["name"] or card.name},
        compute_capability=card.compute_capability,
        driver=card.driver,
        mig=slice_profile(fields["name"]) or f"slice {position}",
        parent_uuid=card.uuid,
        unavailable={
            **reader.unavailable,
            "catalogue_name": tr("a MIG slice has only a share of its GPU's throughput"),
        },
    )


def slice_profile(name: str | None) -> str | None:
    """The profile of a MIG slice, "1g.10gb" or "1c.3g.20gb", from its name."""
    match = re.search(r"\bMIG\s+(\S+)", name or "")
    return match.group(1) if match else None
