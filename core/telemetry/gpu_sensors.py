"""The sensors of one card or MIG slice: which there are, and how each is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pynvml
from trainwiz.core.hardware.nvml import Unreadable, call, device_memory
from trainwiz.core.language import mark, tr

THROTTLE_WORDS: dict[int, str] = {
    pynvml.nvmlClocksEventReasonSwPowerCap: mark("power limit"),
    pynvml.nvmlClocksEventReasonHwSlowdown: mark("hardware slowdown"),
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: mark("heat (software)"),
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: mark("heat (hardware)"),
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: mark("power brake"),
    pynvml.nvmlClocksEventReasonSyncBoost: mark("sync boost"),
    pynvml.nvmlClocksEventReasonApplicationsClocksSetting: mark("clock setting"),
    pynvml.nvmlClocksEventReasonDisplayClockSetting: mark("display clock setting"),
}
"""Bits of NVML's clock event reasons that hold a working card back (an idle card is not held back).

Records hold these words and programs compare them: they are codes, and `tr` makes words of them where they are drawn.
"""

MOST_FAN_PERCENT = 200
"""Of its normal speed; what is above is no speed of a fan but a driver that does not know."""

Read = Callable[[Any], Any]


def read_memory_total(handle: Any) -> int:
    """In bytes; it does not change while a card or slice is there."""
    return device_memory(handle)[0]


def read_memory_used(handle: Any) -> int:
    """In bytes, without what the driver keeps for itself."""
    return device_memory(handle)[2]


def read_utilization(handle: Any) -> int:
    """Percent of the last sampling period in which a kernel ran."""
    return int(call("nvmlDeviceGetUtilizationRates", handle).gpu)


def read_temperature(handle: Any) -> float:
    return float(call("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU))


def read_power(handle: Any) -> float:
    """In watts."""
    return float(call("nvmlDeviceGetPowerUsage", handle)) / 1000


def read_power_limit(handle: Any) -> float:
    """In watts, as it is enforced now."""
    return float(call("nvmlDeviceGetEnforcedPowerLimit", handle)) / 1000


def read_fan(handle: Any) -> int:
    """Percent of the highest normal speed that the fan is told to run at."""
    percent = int(call("nvmlDeviceGetFanSpeed", handle))
    if not 0 <= percent <= MOST_FAN_PERCENT:
        raise Unreadable(tr("the driver says {percent} %", percent=percent))
    return percent


def read_clock(handle: Any) -> int:
    """Of the streaming multiprocessors, in MHz."""
    return int(call("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM))


def read_clock_limit(handle: Any) -> int:
    """The highest SM clock that the card is made for, in MHz."""
    return int(call("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_SM))


def read_throttling(handle: Any) -> list[str]:
    """What holds the clock back, in words; empty when nothing does."""
    try:
        bits = int(call("nvmlDeviceGetCurrentClocksEventReasons", handle))
    except Unreadable as error:
        if error.lost:
            raise
        # Drivers before 535 know it by its older name.
        bits = int(call("nvmlDeviceGetCurrentClocksThrottleReasons", handle))
    return [word for bit, word in THROTTLE_WORDS.items() if bits & bit]


READS: Mapping[str, Read] = {
    "memory_total_bytes": read_memory_total,
    "memory_used_bytes": read_memory_used,
    "utilization_percent": read_utilization,
    "temperature_c": read_temperature,
    "power_w": read_power,
    "power_limit_w": read_power_limit,
    "fan_percent": read_fan,
    "clock_mhz": read_clock,
    "clock_limit_mhz": read_clock_limit,
    "throttle_reasons": read_throttling,
}

FIXED = frozenset({"memory_total_bytes", "clock_limit_mhz"})
"""Read once for each card."""

SENSORS = (*READS, "processes")


def running_processes(handle: Any) -> list[tuple[int, str, int | None]]:
    """(pid, "compute" or "graphics", bytes or None) of each process on the card. One that does both computes.

    The pids are those of the machine: in a container they name none of its own processes.
    """
    found: dict[int, tuple[int, str, int | None]] = {}
    compute = call("nvmlDeviceGetComputeRunningProcesses", handle)
    for kind, processes in (("compute", compute), ("graphics", _graphics(handle))):
        for process in processes:
            pid, used = int(process.pid), process.usedGpuMemory
            found.setdefault(pid, (pid, kind, None if used is None else int(used)))
    return list(found.values())


def _graphics(handle: Any) -> list[Any]:
    """Processes that draw. Servers' drivers may not know the question; no answer is then no desktop."""
    try:
        return list(call("nvmlDeviceGetGraphicsRunningProcesses", handle))
    except Unreadable as error:
        if error.lost:
            raise
        return []
