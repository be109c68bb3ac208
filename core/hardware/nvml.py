"""NVML as values: one session, reads that give back the value or the reason, every NVIDIA GPU and how they are joined."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import pynvml
from trainwiz.core.catalog.gpus import find_gpu
from trainwiz.core.hardware.machine import UNKNOWN_LINK, Gpu, Machine
from trainwiz.core.language import mark, tr

T = TypeVar("T")

NO_LIBRARY = mark("no NVIDIA driver is installed: libnvidia-ml.so.1 was not found")
NOT_LOADED = mark("the NVIDIA driver is installed but not loaded")
DRIVER_UPDATED = mark("the NVIDIA driver was updated but the old one is still loaded: reboot, or reload the driver")
TOO_LATE = mark("the driver did not respond in time")
NOT_INITIALIZED = mark("NVML is not initialized")
NO_GPU = mark("the NVIDIA driver works but finds no GPU")
"""Reasons that code compares, in the language in use: `reason == tr(NO_GPU)`."""

_REASONS: dict[int, str] = {
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
    """A value that NVML did not give; the text says why. `code` is NVML's, None for a failure outside it."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.lost = code in LOST_CODES


def call(function: str, *arguments: Any) -> Any:
    try:
        return getattr(pynvml, function)(*arguments)
    except pynvml.NVMLError as error:
        code = int(error.value)
        raise Unreadable(tr(_REASONS[code]) if code in _REASONS else str(error), code) from None
    except (AttributeError, ValueError, TypeError, OSError) as error:
        raise Unreadable(tr("the driver's response could not be read ({error})", error=error)) from None


ANSWER_S = 30.0
"""A driver that must first wake eight cards takes most of it."""
_hangs = False


def in_time(read: Callable[[], T], within_s: float) -> T:
    """What `read` gives. Raises Unreadable where the driver has not answered after `within_s`; no session is opened then.

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
    asking.join(within_s)
    if failures:
        raise failures[0]
    if not answers:
        _hangs = True
        raise Unreadable(tr(TOO_LATE))
    return answers[0]


class NvmlSession:
    """`with NvmlSession() as nvml`: `nvml.error` is None, or says why there is no NVML here."""

    def __init__(self) -> None:
        self.error: str | None = tr(NOT_INITIALIZED)

    def open(self) -> None:
        """Initialise NVML where it is not. Safe to call again after a failure or a close."""
        if self.error is None:
            return
        try:
            if _hangs:
                raise Unreadable(tr(TOO_LATE))
            call("nvmlInit")
            self.error = None
        except Unreadable as error:
            self.error = error.reason

    def close(self) -> None:
        if self.error is None:
            self.error = tr(NOT_INITIALIZED)
            with suppress(Unreadable):
                call("nvmlShutdown")

    def __enter__(self) -> NvmlSession:
        self.open()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def device_memory(handle: Any) -> tuple[int, int, int]:
    """(total, free, used) in bytes. Used leaves out what the driver itself reserves (drivers from 510 on say it)."""
    info = call("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
    return int(info.total), int(info.free), int(info.used)


def mig_handles(card: Any) -> tuple[str | None, list[Any]]:
    """("enabled" or "disabled", the handles of its slices); (None, []) for a card without MIG."""
    modes = _asked("nvmlDeviceGetMigMode", card)
    if modes is None or not modes[0]:
        return None if modes is None else "disabled", []
    count = int(call("nvmlDeviceGetMaxMigDeviceCount", card))
    slices = (_asked("nvmlDeviceGetMigDeviceHandleByIndex", card, index) for index in range(count))
    return "enabled", [handle for handle in slices if handle is not None]


def _asked(function: str, *arguments: Any) -> Any:
    """None where the card does not have it. Raises Unreadable where the card is lost."""
    try:
        return call(function, *arguments)
    except Unreadable as error:
        if error.lost:
            raise
        return None


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
SWITCH = None
"""The far end of a link that is an NVSwitch."""


def read_links(handles: Mapping[int, Any]) -> dict[int, tuple[str, ...]]:
    """For each card, one phrase for each other card: "GPU1: NVLink x4", "GPU1: one PCIe switch".

    `handles` maps NVML indexes to NVML handles. A link that cannot be read is "GPU1: unknown (reason)".
    """
    ends = {index: _far_ends(handle) for index, handle in handles.items()} if len(handles) > 1 else {}

    def link(one: int, other: int) -> str:
        switched = min(ends[one][SWITCH], ends[other][SWITCH])
        try:
            if direct := ends[one][_bus(call("nvmlDeviceGetPciInfo", handles[other]))]:
                return f"NVLink x{direct}"
            if switched:
                return tr("NVLink x{count} through NVSwitch", count=switched)
            level = int(call("nvmlDeviceGetTopologyCommonAncestor", handles[one], handles[other]))
        except Unreadable as error:
            return f"{tr(UNKNOWN_LINK)} ({error.reason})"
        return tr(_LEVELS.get(level, UNKNOWN_LINK))

    return {one: tuple(f"GPU{other}: {link(one, other)}" for other in ends if other != one) for one in ends}


def _far_ends(handle: Any) -> Counter[Bus | None]:
    """Card at the far end, or SWITCH -> number of active links."""
    ends: Counter[Bus | None] = Counter()
    # The first link that the card does not have: there are none behind it.
    with suppress(Unreadable):
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            if call("nvmlDeviceGetNvLinkState", handle, link):
                kind = call("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
                is_switch = kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
                ends[SWITCH if is_switch else _bus(call("nvmlDeviceGetNvLinkRemotePciInfo", handle, link))] += 1
    return ends


def _bus(info: Any) -> Bus:
    return int(info.domain), int(info.bus), int(info.device)


Reads = Mapping[str, Callable[[Any], Any]]
_OF_SYSTEM: Reads = {
    "driver": lambda _: call("nvmlSystemGetDriverVersion"),
    # 12090 is 12.9.
    "cuda_driver_version": lambda _: "{}.{}".format(*divmod(call("nvmlSystemGetCudaDriverVersion") // 10, 100)),
    "gpus": lambda _: int(call("nvmlDeviceGetCount")),
}
_OF_SLICE: Reads = {
    "uuid": lambda handle: call("nvmlDeviceGetUUID", handle),
    "name": lambda handle: call("nvmlDeviceGetName", handle),
    "memory_total_bytes": lambda handle: device_memory(handle)[0],
    "memory_free_bytes": lambda handle: device_memory(handle)[1],
    "memory_other_bytes": lambda handle: device_memory(handle)[2],
}
_OF_CARD: Reads = {
    **_OF_SLICE,
    "compute_capability": lambda handle: "{}.{}".format(*call("nvmlDeviceGetCudaComputeCapability", handle)),
    "mig": lambda handle: mig_handles(handle)[0],
    "power_limit_w": lambda handle: float(call("nvmlDeviceGetEnforcedPowerLimit", handle)) / 1000,
}
"""Field of Gpu -> how it is read."""


def _values(reads: Reads, handle: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """(field -> value, field -> why there is none). Raises Unreadable where the whole card is lost."""
    values: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name, read in reads.items():
        try:
            values[name] = read(handle)
        except Unreadable as error:
            if error.lost:
                raise
            reasons[name] = error.reason
    return values, reasons


def read_gpus() -> Machine:
    """A Machine of which only the cards, in NVML's order (PCI bus) with their MIG slices behind them, are known.

    Without a driver it has none, with the reason under `unavailable["gpus"]`.
    """
    try:
        return in_time(_read_all, ANSWER_S)
    except Unreadable as error:
        return Machine(unavailable={"gpus": error.reason})


def _read_all() -> Machine:
    with NvmlSession() as nvml:
        if nvml.error is not None:
            return Machine(unavailable={"gpus": nvml.error})
        system, reasons = _values(_OF_SYSTEM, None)
        count, driver = system.get("gpus", 0), system.get("driver")
        if count == 0:
            reasons.setdefault("gpus", tr(NO_GPU))
        gpus: list[Gpu] = []
        handles: dict[int, Any] = {}
        for index in range(count):
            try:
                handle = call("nvmlDeviceGetHandleByIndex", index)
                gpus += _read_card(index, handle, driver)
                handles[index] = handle
            except Unreadable as error:
                # The card is there and does not answer: it cannot be used.
                reason = {"gpu": error.reason, "visible": error.reason}
                gpus.append(Gpu(index, driver=driver, visible=False, unavailable=reason))
        links = read_links(handles)
        linked = tuple(replace(gpu, links=links.get(gpu.index, ())) if gpu.parent_uuid is None else gpu for gpu in gpus)
        return Machine(linked, cuda_driver_version=system.get("cuda_driver_version"), unavailable=reasons)


def _read_card(index: int, handle: Any, driver: str | None) -> list[Gpu]:
    """The card, and its MIG slices behind it. Raises Unreadable where it is lost."""
    values, reasons = _values(_OF_CARD, handle)
    spec = find_gpu(values["name"], values.get("memory_total_bytes")) if "name" in values else None
    if spec is None:
        reasons["catalogue_name"] = tr("this GPU is not in the GPU catalog")
    if values.get("mig") is None:
        reasons.setdefault("mig", tr("this GPU has no MIG"))
    card = Gpu(index, **values, driver=driver, catalogue_name=spec.name if spec else None, unavailable=reasons)
    parts = mig_handles(handle)[1] if card.mig == "enabled" else []
    return [card, *(_read_slice(card, part, place) for place, part in enumerate(parts))]


def _read_slice(card: Gpu, handle: Any, place: int) -> Gpu:
    values, reasons = _values(_OF_SLICE, handle)
    reasons["catalogue_name"] = tr("a MIG slice has only a share of its GPU's throughput")
    return Gpu(
        card.index,
        **{"name": card.name, **values},
        compute_capability=card.compute_capability,
        driver=card.driver,
        mig=slice_profile(values.get("name")) or f"slice {place}",
        parent_uuid=card.uuid,
        unavailable=reasons,
    )


def slice_profile(name: str | None) -> str | None:
    """The profile of a MIG slice, "1g.10gb" or "1c.3g.20gb", from its name."""
    match = re.search(r"\bMIG\s+(\S+)", name or "")
    return match.group(1) if match else None
