"""One reading of every GPU, cheap enough for once a second: the `gpus` of a line of system.jsonl."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from trainwiz.core.hardware.gpus import slice_profile
from trainwiz.core.hardware.nvml import NO_GPU, PERMANENT_CODES, NvmlSession, Unreadable, call, mig_handles
from trainwiz.core.language import tr
from trainwiz.core.telemetry.gpu_sensors import FIXED, READS, SENSORS, running_processes

RETRY_S = 10.0
"""How long to wait before NVML is initialised again, where it failed or found no GPU."""

DRIVER_FOLDER = Path("/proc/driver/nvidia/gpus")
"""Linux's driver keeps one folder here for each card that it serves.

NVML counts its devices when it is initialised: a card that comes later is seen only by a new start,
and this folder tells when that is worth it.
"""

NAME_LASTS_S = 60.0
"""How long the name of a process is believed: numbers are reused."""


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
    fixed: dict[str, Any] = field(default_factory=dict)
    """Sensors that never change: asked once."""


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
        temperature_c, power_w, power_limit_w, fan_percent, clock_mhz, clock_limit_mhz (of the SMs),
        throttle_reasons (words, empty when nothing holds the card back), processes ({pid, name, kind:
        compute|graphics, memory_used_bytes}).
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
        return None if count else tr(NO_GPU)

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
            for sensor in SENSORS:
                line[sensor] = self._read(device, sensor, unavailable, where)
        except Unreadable as error:
            # The whole card is gone: half a reading of it would look like a quiet card.
            line |= dict.fromkeys(SENSORS)
            unavailable[f"gpus.{device.index}"] = error.reason
        return line

    def _read(self, device: _Device, sensor: str, unavailable: dict[str, str], where: str) -> Any:
        """The value, or None with its reason in `unavailable`. Raises Unreadable for a lost card."""
        if sensor in device.fixed:
            return device.fixed[sensor]
        reason = device.permanent.get(sensor)
        if reason is None:
            try:
                value = self._processes(device.handle) if sensor == "processes" else READS[sensor](device.handle)
                if sensor in FIXED:
                    device.fixed[sensor] = value
                return value
            except Unreadable as error:
                if error.lost:
                    raise
                reason = error.reason
                if error.code in PERMANENT_CODES:
                    device.permanent[sensor] = reason
        unavailable[f"{where}.{sensor}"] = reason
        return None

    def _processes(self, handle: Any) -> list[dict[str, Any]]:
        return [
            {"pid": pid, "name": self._process_name(pid), "kind": kind, "memory_used_bytes": used}
            for pid, kind, used in running_processes(handle)
        ]

    def _process_name(self, pid: int) -> str | None:
        """Of the process, None where this user or container cannot see it. NAME_LASTS_S old at most."""
        now_s = self._clock()
        known = self._process_names.get(pid)
        if known is not None and now_s - known[0] < NAME_LASTS_S:
            return known[1]
        try:
            name = psutil.Process(pid).name()
        except (psutil.Error, OSError):
            name = None
        self._process_names = {one: at for one, at in self._process_names.items() if now_s - at[0] < NAME_LASTS_S}
        self._process_names[pid] = now_s, name
        return name
