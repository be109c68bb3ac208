"""A fake NVIDIA driver for tests: a real libnvidia-ml.so.1 in C under the real nvidia-ml-py.

A conftest.py imports the fixtures from tests.fakes.nvml.fixtures. `write` may be called again while the program runs: a
card that is lost, gets hot, or comes late.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pynvml
import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")
LIBRARY = "libnvidia-ml.so.1"

MIB = 1024**2
GIB = 1024**3

NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
GPU_LOST = 15
VERSION_MISMATCH = 18
UNKNOWN = 999


@dataclass(frozen=True)
class FakeMig:
    """One slice of a MIG card."""

    uuid: str
    name: str = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    memory_total: int = 4864 * MIB
    memory_used: int = 0
    gpu_instance: int = 1
    graphics_slices: int = 1
    compute_slices: int = 1


KEYS = {
    "name": "name", "uuid": "uuid", "memory_total": "mem_total", "memory_used": "mem_used",
    "memory_reserved": "mem_reserved", "compute_capability": "cc", "utilization": "util", "temperature": "temp",
    "throttle": "throttle", "fan": "fan", "clock": "clock", "socket": "socket",
    "lost": "lost", "mig": "mig", "gpu_instance": "gi",
    "graphics_slices": "gslices", "compute_slices": "cslices",
}  # fmt: skip
"""Field -> the key that fake_nvml.c reads."""


def fields_of(one: FakeMig | FakeGpu) -> list[str]:
    values = {KEYS[name]: value for name, value in vars(one).items() if name in KEYS and value is not None}
    return [f"{key}={int(value) if isinstance(value, bool) else value}" for key, value in values.items()]


@dataclass(frozen=True)
class FakeGpu:
    """One card; memory in bytes, power in watts. `unsupported` names sensors as fake_nvml.c lists them."""

    name: str = "NVIDIA GeForce RTX 3080"
    uuid: str | None = None
    memory_total: int = 10 * GIB
    memory_used: int = 0
    memory_reserved: int = 0
    compute_capability: str = "8.6"
    utilization: int = 0
    temperature: int = 40
    power: float = 30.0
    power_limit: float = 320.0
    throttle: int = 0
    fan: int = 30
    clock: int = 1_400
    processes: Mapping[int, int] = field(default_factory=dict)
    """pid -> bytes."""
    graphics: Mapping[int, int] = field(default_factory=dict)
    nvlinks: Mapping[int | str, int] = field(default_factory=dict)
    """Card or "switch" -> number of links."""
    socket: int = 0
    mig: bool | None = None
    slices: Sequence[FakeMig] = ()
    lost: bool = False
    unsupported: Sequence[str] = ()
    failing: Mapping[str, int] = field(default_factory=dict)
    """Sensor as fake_nvml.c lists them -> NVML's error code."""

    def lines(self) -> list[str]:
        lines = ["[gpu]", *fields_of(self)]
        lines += [f"power={round(self.power * 1000)}", f"limit={round(self.power_limit * 1000)}"]
        lines += [f"unsupported={','.join(self.unsupported)}"] if self.unsupported else []
        lines += [f"fail={sensor}:{code}" for sensor, code in self.failing.items()]
        lines += [f"proc={pid}:{used}" for pid, used in self.processes.items()]
        lines += [f"graphics={pid}:{used}" for pid, used in self.graphics.items()]
        lines += [f"nvlink={to}:{count}" for to, count in self.nvlinks.items()]
        for one in self.slices:
            lines += ["[mig]", f"cc={self.compute_capability}", *fields_of(one)]
        return lines


class FakeNvml:
    """The built library and its state file."""

    def __init__(self, library_folder: Path, state_file: Path) -> None:
        self.library_folder = library_folder
        self.state_file = state_file

    def write(
        self,
        gpus: Sequence[FakeGpu] = (),
        *,
        driver: str = "575.51.03",
        cuda: int = 12090,
        init_error: int = 0,
        call_error: int = 0,
        delay_s: float = 0.0,
    ) -> None:
        """Replace the state in one step: a program that reads it meanwhile sees the old one or the new one."""
        lines = [f"driver={driver}", f"cuda={cuda}", f"init_error={init_error}", f"call_error={call_error}"]
        lines.append(f"delay_us={round(delay_s * 1_000_000)}")
        for gpu in gpus:
            lines += gpu.lines()
        fresh = self.state_file.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n", encoding="utf-8")
        fresh.replace(self.state_file)

    def environment(self, **extra: str) -> dict[str, str]:
        """This process's environment with the fake driver; CUDA_VISIBLE_DEVICES only if it is in `extra`."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_")}
        search = os.pathsep.join(filter(None, [str(self.library_folder), kept.get("LD_LIBRARY_PATH")]))
        return kept | {"LD_LIBRARY_PATH": search, "FAKE_NVML_FILE": str(self.state_file)} | extra

    def load_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make nvidia-ml-py in this process talk to the fake library until the test ends."""
        # A real library must be loaded first, or a later load by its plain name would find the fake one.
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            pynvml.nvmlShutdown()
        monkeypatch.setenv("FAKE_NVML_FILE", str(self.state_file))
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(self.library_folder / LIBRARY)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})


def build_library(folder: Path) -> Path:
    """Compile the library into `folder`; skips the test where there is no C compiler or no Linux."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no gcc: the fake NVML library cannot be built")
    if sys.platform != "linux":
        pytest.skip("the fake NVML library is for Linux")
    command = [compiler, "-shared", "-fPIC", "-O1", f"-Wl,-soname,{LIBRARY}", "-o", str(folder / LIBRARY), str(SOURCE)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder
