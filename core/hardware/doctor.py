"""What a computer has and lacks, feature by feature. Pure: from a Machine and its Tools."""

from __future__ import annotations

from trainwiz.core.hardware.checkup import Check
from trainwiz.core.hardware.doctor_gpu import check_gpu_features
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.hardware.tools import Tools

GIB = 1024**3

NEEDED = ("torch", "transformers", "accelerate", "datasets", "tokenizers", "safetensors")

SMALL_SHARED_BYTES = 1 * GIB
"""Docker's default is 64 MiB, which a single worker's batches can overflow; the run then dies with a bus error."""
SMALL_DISK_BYTES = 20 * GIB
"""Two checkpoints of a 650M model with its optimizer."""
NO_DISK_BYTES = 1 * GIB
LOW_RAM_BYTES = 15 * GIB
"""Below this the plan starts no loader workers and streams its rows."""
SCARCE_RAM_BYTES = 4 * GIB


def check_machine(machine: Machine, tools: Tools) -> tuple[Check, ...]:
    """All checks, in the order in which they matter."""
    return (
        _libraries(machine, tools),
        *check_gpu_features(machine, tools),
        *_deepspeed(machine, tools),
        _shared_memory(machine, tools),
        _disk(machine),
        _ram(machine),
        *_nvml_package(tools),
    )


def _libraries(machine: Machine, tools: Tools) -> Check:
    missing = [name for name in NEEDED if not machine.libraries.has(name)]
    if missing:
        return Check(
            "libraries",
            "Training libraries",
            "missing",
            f"{', '.join(missing)} cannot be imported",
            "Install what is missing.",
            f"{tools.pip} install {' '.join(missing)}",
            required=True,
        )
    versions = machine.libraries.versions
    found = ", ".join(f"{name} {versions[name]}" for name in NEEDED[:4])
    return Check("libraries", "Training libraries", "ok", found, required=True)


def _deepspeed(machine: Machine, tools: Tools) -> tuple[Check, Check]:
    if machine.libraries.has("deepspeed"):
        library = Check("deepspeed", "DeepSpeed", "ok", f"version {machine.libraries.versions['deepspeed']}")
    else:
        library = Check(
            "deepspeed",
            "DeepSpeed",
            "missing",
            "deepspeed cannot be imported: no ZeRO and no offload",
            "Install it against the torch that is here.",
            f"{tools.pip} install setuptools wheel ninja py-cpuinfo && "
            f"DS_BUILD_OPS=0 {tools.pip} install --no-build-isolation deepspeed",
        )
    return library, _compiler(machine, tools)


def _compiler(machine: Machine, tools: Tools) -> Check:
    """DeepSpeed builds its CPU Adam at the first run; with a CUDA build of torch that needs CUDA's headers too."""
    lacking: list[str] = []
    commands: list[str] = []
    if tools.cpp_compiler is None:
        lacking.append("g++")
        commands.append(tools.install("g++", "gcc-c++", "gcc"))
    if not tools.python_headers:
        lacking.append("Python.h")
        commands.append(tools.install("python3-dev", "python3-devel", "python"))
    if tools.ninja is None:
        lacking.append("ninja")
        commands.append(f"{tools.pip} install ninja")
    if machine.torch_cuda is not None and tools.nvcc is None:
        lacking.append(f"nvcc (CUDA {machine.torch_cuda} toolkit)")
        commands.append(tools.install("nvidia-cuda-toolkit", "cuda-toolkit", "cuda"))
    title = "Compiler for DeepSpeed"
    if lacking:
        reason = f"{', '.join(lacking)} not found: offloaded AdamW cannot be built"
        return Check("deepspeed_compiler", title, "missing", reason, "Install them.", " && ".join(commands))
    return Check("deepspeed_compiler", title, "ok", f"{tools.cpp_compiler}, {tools.ninja}")


def _shared_memory(machine: Machine, tools: Tools) -> Check:
    title = "Shared memory"
    size = machine.shared_memory_bytes
    if size is None:
        reason = machine.unavailable.get("shared_memory_bytes", "not known")
        if machine.platform != "linux":
            return Check("shared_memory", title, "ok", f"not needed here ({reason})")
        return Check("shared_memory", title, "warning", reason, "Run without loader workers.")
    if size >= SMALL_SHARED_BYTES:
        return Check("shared_memory", title, "ok", f"/dev/shm has {_gib(size)}")
    if tools.container:
        remedy, command = "Start the container with more of it.", "docker run --shm-size=8g ..."
    else:
        remedy, command = "Enlarge it.", "sudo mount -o remount,size=8G /dev/shm"
    reason = f"/dev/shm has {_gib(size)}: loader workers die with a bus error when it is full"
    return Check("shared_memory", title, "warning", reason, f"{remedy} Or run without workers.", command)


def _disk(machine: Machine) -> Check:
    free = machine.disk_free_bytes
    if free is None:
        reason = machine.unavailable.get("disk_free_bytes", "not known")
        return Check("disk", "Disk", "warning", reason, "Choose another output folder (--output-dir).")
    found = f"{_gib(free)} free at {machine.disk_path}"
    if free < NO_DISK_BYTES:
        remedy = "Free some space, or choose another output folder (--output-dir)."
        return Check("disk", "Disk", "missing", found, remedy, required=True)
    if free < SMALL_DISK_BYTES:
        remedy = "Checkpoints of large models will not fit: choose another output folder (--output-dir) for them."
        return Check("disk", "Disk", "warning", found, remedy)
    return Check("disk", "Disk", "ok", found)


def _ram(machine: Machine) -> Check:
    found = f"{_gib(machine.ram_available_bytes)} of {_gib(machine.ram_total_bytes)} available"
    if machine.ram_available_bytes < SCARCE_RAM_BYTES:
        return Check("ram", "RAM", "warning", found, "Close other programs, or train a small model.")
    if machine.ram_total_bytes < LOW_RAM_BYTES:
        return Check("ram", "RAM", "warning", found, "Rows are streamed and no loader workers are started.")
    return Check("ram", "RAM", "ok", found)


def _nvml_package(tools: Tools) -> tuple[Check, ...]:
    if tools.superseded_pynvml is None:
        return ()
    return (
        Check(
            "nvml_package",
            "NVML package",
            "warning",
            f"the package pynvml {tools.superseded_pynvml} is installed, and torch warns about it at every start",
            "nvidia-ml-py gives the same module.",
            f"{tools.pip} uninstall -y pynvml && {tools.pip} install --force-reinstall nvidia-ml-py",
        ),
    )


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.1f} GiB" if size_bytes >= GIB / 10 else f"{size_bytes / 1024**2:.0f} MiB"
