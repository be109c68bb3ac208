"""GPUs as samples: memory, load, clocks, and the processes on them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psutil
import pynvml
from trainwiz.core.hardware.machine import Gpu
from trainwiz.core.hardware.nvml import (
    NO_GPU,
    NvmlSession,
    Unreadable,
    call,
    device_memory,
    mig_handles,
    slice_profile,
)
from trainwiz.core.language import mark, tr

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import GpuReading

# The sensors of one card or MIG slice: which there are, and how each is read.

THROTTLE_WORDS: dict[int, str] = {
    pynvml.nvmlClocksEventReasonSwPowerCap: mark("power limit"),
    pynvml.nvmlClocksEventReasonHwSlowdown: mark("hardware slowdown"),
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: mark("heat (software)"),
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: mark("heat (hardware)"),
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: mark("power brake"),
}
"""Bits of NVML's clock event reasons that hold a working card back against its user's will.

Records hold these words and programs compare them: they are codes, and `tr` makes words of them where they are drawn.
"""

MOST_FAN_PERCENT = 200
"""Of its normal speed; what is above is no speed of a fan but a driver that does not know."""


def _fan(handle: Any) -> int:
    percent = int(call("nvmlDeviceGetFanSpeed", handle))
    if not 0 <= percent <= MOST_FAN_PERCENT:
        raise Unreadable(tr("the driver reports {percent}%", percent=percent))
    return percent


def _throttling(handle: Any) -> list[str]:
    """What holds the clock back, in words; empty when nothing does."""
    bits = int(call("nvmlDeviceGetCurrentClocksEventReasons", handle))
    return [word for bit, word in THROTTLE_WORDS.items() if bits & bit]


def running_processes(handle: Any) -> list[dict[str, Any]]:
    """Each process on the card; one that both computes and draws computes.

    The pids are those of the machine: in a container they name none of its own processes.
    """
    compute = call("nvmlDeviceGetComputeRunningProcesses", handle)
    kinds = [*((process, "compute") for process in compute), *((process, "graphics") for process in _graphics(handle))]
    found: dict[int, dict[str, Any]] = {}
    for process, kind in kinds:
        pid, used = int(process.pid), process.usedGpuMemory
        found.setdefault(pid, {"pid": pid, "name": _process_name(pid), "kind": kind, "memory_used_bytes": used})
    return list(found.values())


def _graphics(handle: Any) -> list[Any]:
    """Processes that draw. Servers' drivers may not know the question; no answer is then no desktop."""
    try:
        return list(call("nvmlDeviceGetGraphicsRunningProcesses", handle))
    except Unreadable as error:
        if error.lost:
            raise
        return []


def _process_name(pid: int) -> str | None:
    """None where this user or container cannot see it."""
    try:
        return psutil.Process(pid).name()
    except (psutil.Error, OSError):
        return None


READS: Mapping[str, Callable[[Any], Any]] = {
    "memory_total_bytes": lambda handle: device_memory(handle)[0],
    # Without what the driver keeps for itself.
    "memory_used_bytes": lambda handle: device_memory(handle)[2],
    # Of the last sampling period, in which a kernel ran.
    "utilization_percent": lambda handle: int(call("nvmlDeviceGetUtilizationRates", handle).gpu),
    "temperature_c": lambda handle: float(call("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU)),
    "power_w": lambda handle: float(call("nvmlDeviceGetPowerUsage", handle)) / 1000,
    "power_limit_w": lambda handle: float(call("nvmlDeviceGetEnforcedPowerLimit", handle)) / 1000,
    "fan_percent": _fan,
    # Of the streaming multiprocessors, in MHz: now, and the highest that the card is made for.
    "clock_mhz": lambda handle: int(call("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM)),
    "clock_limit_mhz": lambda handle: int(call("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_SM)),
    "throttle_reasons": _throttling,
    "processes": running_processes,
}

# One reading of every GPU, cheap enough for once a second: the `gpus` of a line of system.jsonl.

RETRY_S = 10.0
"""How long to wait before NVML is initialised again, where it failed or found no GPU."""


@dataclass
class _Device:
    """A card or MIG slice; `problem` says why it has no handle."""

    index: int
    handle: Any = None
    uuid: str | None = None
    name: str | None = None
    mig: str | None = None
    is_slice: bool = False
    problem: str = ""


class GpuSampler:
    """Samples all NVIDIA GPUs (and MIG slices) of this computer. Never raises; not for use by two threads at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._session = NvmlSession()
        self._devices: list[_Device] = []
        self._next_open_s: float | None = None
        self._known: dict[int, _Device] = {}
        """The cards as they were opened last: a lost one no longer says which it is."""

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

    def _prepare(self) -> str | None:
        """Bring the list of devices up to date; the reason where there is none.

        A lost card is no cause for a new start: NVML may then fail as a whole and blank the others.
        """
        now_s = self._clock()
        if self._next_open_s is not None and now_s >= self._next_open_s:
            self.close()
            self._next_open_s = None
        if self._session.error is not None and self._next_open_s is None:
            self._session.open()
        reason = self._session.error or self._list_devices()
        if reason is not None and self._next_open_s is None:
            self._next_open_s = now_s + RETRY_S
        return reason

    def _list_devices(self) -> str | None:
        try:
            count = int(call("nvmlDeviceGetCount"))
        except Unreadable as error:
            self._devices = []
            return error.reason
        if count != len({device.index for device in self._devices}) or any(device.problem for device in self._devices):
            self._devices = [device for index in range(count) for device in self._open_card(index)]
        return None if count else tr(NO_GPU)

    def _open_card(self, index: int) -> list[_Device]:
        """The card, and behind it its slices."""
        try:
            handle = call("nvmlDeviceGetHandleByIndex", index)
            card = _opened(index, handle)
            card.mig, slices = mig_handles(handle)
        except Unreadable as error:
            known = self._known.get(index, _Device(index))
            return [replace(known, handle=None, mig=None, problem=error.reason)]
        self._known[index] = card
        return [card, *(self._open_slice(card, handle) for handle in slices)]

    def _open_slice(self, card: _Device, handle: Any) -> _Device:
        try:
            part = _opened(card.index, handle)
        except Unreadable:
            part = _Device(card.index, handle, name=card.name)
        return replace(part, mig=slice_profile(part.name), is_slice=True)

    def _sample_device(self, device: _Device, unavailable: dict[str, str]) -> dict[str, Any]:
        line: dict[str, Any] = {"index": device.index, "uuid": device.uuid, "name": device.name, "mig": device.mig}
        line |= dict.fromkeys(READS)
        where = f"gpus.{device.index}" + (f".{device.uuid}" if device.is_slice else "")
        if device.problem:
            unavailable[f"gpus.{device.index}"] = device.problem
            return line
        for sensor, read in READS.items():
            try:
                line[sensor] = read(device.handle)
            except Unreadable as error:
                if error.lost:
                    # The whole card is gone: half a reading of it would look like a quiet card.
                    unavailable[f"gpus.{device.index}"] = error.reason
                    return line | dict.fromkeys(READS)
                unavailable[f"{where}.{sensor}"] = error.reason
        return line


def _opened(index: int, handle: Any) -> _Device:
    """Raises Unreadable."""
    uuid, name = str(call("nvmlDeviceGetUUID", handle)), str(call("nvmlDeviceGetName", handle))
    return _Device(index, handle, uuid, name)


MOVED_BYTES = 2**29
"""So much more or less on a card is another capacity to plan with; what a desktop takes and gives is less."""


@dataclass(frozen=True, slots=True)
class GpuLoads:
    """All of them at one moment."""

    gpus: tuple[GpuReading, ...] = ()
    problem: str = ""
    """Why there is none."""

    def of(self, gpu: Gpu) -> GpuReading | None:
        """The load of one GPU of a machine; by its place where it had no UUID."""
        if gpu.uuid is not None:
            return next((load for load in self.gpus if load.uuid == gpu.uuid), None)
        return next((load for load in self.gpus if load.index == gpu.index and gpu.parent_uuid is None), None)


class LoadReader:
    """Reads the loads, again and again; its driver session stays open between two readings. Never raises."""

    def __init__(self) -> None:
        self._sampler = GpuSampler()
        self._lock = threading.Lock()

    def read(self) -> GpuLoads:
        # Loaded with the first reading: the wizard's first frame does without.
        from trainwiz.core.telemetry.machine import MachineHistory

        with self._lock:
            rows, unavailable = self._sampler.sample()
        history = MachineHistory()
        history.add_rows([{"gpus": rows, "unavailable": unavailable}])
        return GpuLoads(history.gpus(), unavailable.get("gpus", "") if not rows else "")

    def close(self) -> None:
        """End the driver's session: only the first one that is opened after all others are closed sees new cards."""
        with self._lock:
            self._sampler.close()


def read_loads() -> GpuLoads:
    with closing(LoadReader()) as reader:
        return reader.read()


def free_bytes(gpu: Gpu, load: GpuReading | None) -> int | None:
    """Memory of `gpu` that is free now: what was free when the machine was read, less what came to be used since.

    By the difference, since what the driver keeps for itself counts in neither: the same number as a plan's capacity.
    """
    before, used_before = gpu.memory_free_bytes, gpu.memory_other_bytes
    if before is None or used_before is None or load is None or load.memory_used_bytes is None:
        return before
    free = before + used_before - load.memory_used_bytes
    return max(0, free if gpu.memory_total_bytes is None else min(free, gpu.memory_total_bytes))


def is_outdated(gpus: Sequence[Gpu], loads: GpuLoads) -> bool:
    """Since `gpus` were read, some have come or gone, or much of the memory of one was taken or given back."""
    before = {gpu.uuid or str(gpu.index) for gpu in gpus if "gpu" not in gpu.unavailable}
    now = {load.uuid or str(load.index) for load in loads.gpus if not load.problem}
    free = ((gpu.memory_free_bytes or 0, free_bytes(gpu, loads.of(gpu)) or 0) for gpu in gpus if gpu.visible)
    return before != now or any(abs(free_now - free_then) >= MOVED_BYTES for free_then, free_now in free)
