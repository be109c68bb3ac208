"""One reading of every GPU, cheap enough for once a second: the `gpus` of a line of system.jsonl."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pynvml
from trainwiz.core.hardware.gpus import slice_profile
from trainwiz.core.hardware.nvml import (
    NO_GPU,
    PERMANENT_CODES,
    NvmlSession,
    Unreadable,
    call,
    device_memory,
    mig_handles,
)

RETRY_S = 10.0
"""How long to wait before NVML is initialised again, where it failed or found no GPU."""

DRIVER_FOLDER = Path("/proc/driver/nvidia/gpus")
"""Linux's driver keeps one folder here for each card that it serves.

NVML counts its devices when it is initialised: a card that comes later is seen only by a new start,
and this folder tells when that is worth it.
"""

THROTTLE_WORDS: dict[int, str] = {
    pynvml.nvmlClocksEventReasonSwPowerCap: "power limit",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "heat (software)",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "heat (hardware)",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync boost",
    pynvml.nvmlClocksEventReasonApplicationsClocksSetting: "clock setting",
    pynvml.nvmlClocksEventReasonDisplayClockSetting: "display clock setting",
}
"""Bits of NVML's clock event reasons that hold a working card back (an idle card is not held back)."""

SENSORS = (
    "utilization_percent",
    "memory_used_bytes",
    "memory_total_bytes",
    "temperature_c",
    "power_w",
    "power_limit_w",
    "throttle_reasons",
    "processes",
)


@dataclass
class _Device:
    index: int
    handle: Any = None
    uuid: str | None = None
    name: str | None = None
    mig: str | None = None
    is_slice: bool = False
    permanent: dict[str, str] = field(default_factory=dict)
    """Sensors that this card will never report, with the reason: not asked again."""


class GpuSampler:
    """Samples all NVIDIA GPUs (and MIG slices) of this computer. Never raises; not for use by two threads at once."""

    def __init__(
        self,
        *,
        retry_s: float = RETRY_S,
        clock: Callable[[], float] = time.monotonic,
        driver_folder: Path = DRIVER_FOLDER,
    ) -> None:
        self._retry_s = retry_s
        self._clock = clock
        self._driver_folder = driver_folder
        self._driver_cards: int | None = None
        self._session = NvmlSession()
        self._devices: list[_Device] = []
        self._count: int | None = None
        self._next_open_s: float | None = None
        self._known: dict[int, tuple[str | None, str | None]] = {}
        self._process_names: dict[int, tuple[float, str | None]] = {}

    def sample(self) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """(one dict for each card or MIG slice, reasons for what is None).

        Keys: index, uuid, name, mig, utilization_percent (0..100), memory_used_bytes, memory_total_bytes,
        temperature_c, power_w, power_limit_w, throttle_reasons (words, empty when nothing holds the card
        back), processes ({pid, name, kind: compute|graphics, memory_used_bytes}).
        Reasons are keyed "gpus" (no GPU at all), "gpus.0" (a lost card), "gpus.0.power_w" (one sensor);
        of a MIG slice "gpus.0.<slice uuid>.power_w".
        """
        reason = self._prepare()
        if reason is not None:
            return [], {"gpus": reason}
        unavailable: dict[str, str] = {}
        return [self._sample_device(device, unavailable) for device in self._devices], unavailable

    def close(self) -> None:
        self._session.close()
        self._devices = []
        self._count = None

    def _prepare(self) -> str | None:
        """Bring the list of devices up to date; the reason where there is none.

        A lost card is no cause for a new start: NVML may then fail as a whole and blank the others.
        """
        now_s = self._clock()
        cards = self._count_driver_cards()
        if self._driver_cards is not None and cards > self._driver_cards:
            self._next_open_s = now_s
        self._driver_cards = cards
        if self._next_open_s is not None and now_s >= self._next_open_s:
            self.close()
            self._next_open_s = None
        if self._session.error is not None and self._next_open_s is None:
            self._session.open()
        reason = self._session.error or self._list_devices()
        if reason is not None and self._next_open_s is None:
            self._next_open_s = now_s + self._retry_s
        return reason

    def _count_driver_cards(self) -> int:
        try:
            return sum(1 for _ in self._driver_folder.iterdir())
        except OSError:
            return 0

    def _list_devices(self) -> str | None:
        try:
            count = int(call("nvmlDeviceGetCount"))
        except Unreadable as error:
            self._count = None
            return error.reason
        if count != self._count or any(device.handle is None for device in self._devices):
            self._count = count
            self._devices = [device for index in range(count) for device in self._open_device(index)]
        return None if count else NO_GPU

    def _open_device(self, index: int) -> list[_Device]:
        uuid, name = self._known.get(index, (None, None))
        device = _Device(index, uuid=uuid, name=name)
        try:
            device.handle = call("nvmlDeviceGetHandleByIndex", index)
            device.uuid = str(call("nvmlDeviceGetUUID", device.handle))
            device.name = str(call("nvmlDeviceGetName", device.handle))
            self._known[index] = device.uuid, device.name
            enabled, slices = mig_handles(device.handle)
        except Unreadable as error:
            device.handle = None
            device.permanent["gpu"] = error.reason
            return [device]
        device.mig = {None: None, True: "enabled", False: "disabled"}[enabled]
        return [device, *(self._open_slice(device, handle) for handle in slices)]

    def _open_slice(self, card: _Device, handle: Any) -> _Device:
        one = _Device(card.index, handle, name=card.name, is_slice=True)
        try:
            one.uuid = str(call("nvmlDeviceGetUUID", handle))
            one.name = str(call("nvmlDeviceGetName", handle))
        except Unreadable as error:
            one.permanent["name"] = error.reason
        one.mig = slice_profile(one.name, handle)
        return one

    def _sample_device(self, device: _Device, unavailable: dict[str, str]) -> dict[str, Any]:
        line: dict[str, Any] = {
            "index": device.index,
            "uuid": device.uuid,
            "name": device.name,
            "mig": device.mig,
        } | dict.fromkeys(SENSORS)
        where = f"gpus.{device.index}" + (f".{device.uuid}" if device.is_slice else "")
        try:
            if device.handle is None:
                raise Unreadable(device.permanent["gpu"])
            for sensors, read in self._reads(device):
                self._read_into(line, device, sensors, read, unavailable, where)
        except Unreadable as error:
            # The whole card is gone: half a reading of it would look like a quiet card.
            line |= dict.fromkeys(SENSORS)
            unavailable[f"gpus.{device.index}"] = error.reason
        return line

    def _reads(self, device: _Device) -> tuple[tuple[tuple[str, ...], Callable[[], tuple[Any, ...]]], ...]:
        handle = device.handle
        return (
            (("memory_total_bytes", "memory_used_bytes"), lambda: device_memory(handle)[0::2]),
            (("utilization_percent",), lambda: (int(call("nvmlDeviceGetUtilizationRates", handle).gpu),)),
            (("temperature_c",), lambda: (float(call("nvmlDeviceGetTemperature", handle, 0)),)),
            (("power_w",), lambda: (call("nvmlDeviceGetPowerUsage", handle) / 1000,)),
            (("power_limit_w",), lambda: (call("nvmlDeviceGetEnforcedPowerLimit", handle) / 1000,)),
            (("throttle_reasons",), lambda: (_throttle_words(handle),)),
            (("processes",), lambda: (self._processes(handle),)),
        )

    def _read_into(
        self,
        line: dict[str, Any],
        device: _Device,
        sensors: tuple[str, ...],
        read: Callable[[], tuple[Any, ...]],
        unavailable: dict[str, str],
        where: str,
    ) -> None:
        if sensors[0] in device.permanent:
            reason = device.permanent[sensors[0]]
        else:
            try:
                line |= dict(zip(sensors, read(), strict=True))
                return
            except Unreadable as error:
                if error.lost:
                    raise
                reason = error.reason
                if error.code in PERMANENT_CODES:
                    device.permanent[sensors[0]] = reason
        unavailable |= {f"{where}.{sensor}": reason for sensor in sensors}

    def _processes(self, handle: Any) -> list[dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        compute = call("nvmlDeviceGetComputeRunningProcesses", handle)
        for kind, processes in (("compute", compute), ("graphics", _graphics(handle))):
            for process in processes:
                pid, used = int(process.pid), process.usedGpuMemory
                found.setdefault(
                    pid,
                    {
                        "pid": pid,
                        "name": self._process_name(pid),
                        "kind": kind,
                        "memory_used_bytes": None if used is None else int(used),
                    },
                )
        return list(found.values())

    def _process_name(self, pid: int) -> str | None:
        """Of the process, None where this user or container cannot see it. A minute old at most: numbers are reused."""
        now_s = self._clock()
        known = self._process_names.get(pid)
        if known is not None and now_s - known[0] < 60:
            return known[1]
        try:
            name = psutil.Process(pid).name()
        except (psutil.Error, OSError):
            name = None
        self._process_names = {one: at for one, at in self._process_names.items() if now_s - at[0] < 60}
        self._process_names[pid] = now_s, name
        return name


def _graphics(handle: Any) -> list[Any]:
    """Processes that draw. Servers' drivers may not know the question; no answer is then no desktop."""
    try:
        return list(call("nvmlDeviceGetGraphicsRunningProcesses", handle))
    except Unreadable as error:
        if error.lost:
            raise
        return []


def _throttle_words(handle: Any) -> list[str]:
    try:
        bits = int(call("nvmlDeviceGetCurrentClocksEventReasons", handle))
    except Unreadable as error:
        if error.lost:
            raise
        # Drivers before 535 know it by its older name.
        bits = int(call("nvmlDeviceGetCurrentClocksThrottleReasons", handle))
    return [word for bit, word in THROTTLE_WORDS.items() if bits & bit]
