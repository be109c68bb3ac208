"""What a computer has and lacks, feature by feature. Pure: from a Machine and its Tools."""

from __future__ import annotations

from trainwiz.core.hardware.checkup import Check
from trainwiz.core.hardware.doctor_gpu import check_gpu_features
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.hardware.tools import Tools
from trainwiz.core.language import tr

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
            tr("Training libraries"),
            "missing",
            tr("{missing} cannot be imported", missing=", ".join(missing)),
            tr("Install what is missing."),
            f"{tools.pip} install {' '.join(missing)}",
            required=True,
        )
    versions = machine.libraries.versions
    found = ", ".join(f"{name} {versions[name]}" for name in NEEDED[:4])
    return Check("libraries", tr("Training libraries"), "ok", found, required=True)


def _deepspeed(machine: Machine, tools: Tools) -> tuple[Check, Check]:
    if machine.libraries.has("deepspeed"):
        library = Check(
            "deepspeed", "DeepSpeed", "ok", tr("version {version}", version=machine.libraries.versions["deepspeed"])
        )
    else:
        library = Check(
            "deepspeed",
            "DeepSpeed",
            "missing",
            tr("deepspeed cannot be imported: no ZeRO and no offload"),
            tr("Install it against the torch that is here."),
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
        lacking.append(tr("nvcc (CUDA {version} toolkit)", version=machine.torch_cuda))
        commands.append(tools.install("nvidia-cuda-toolkit", "cuda-toolkit", "cuda"))
    title = tr("Compiler for DeepSpeed")
    if lacking:
        reason = tr("{lacking} not found: offloaded AdamW cannot be built", lacking=", ".join(lacking))
        return Check("deepspeed_compiler", title, "missing", reason, tr("Install them."), " && ".join(commands))
    return Check("deepspeed_compiler", title, "ok", f"{tools.cpp_compiler}, {tools.ninja}")


def _shared_memory(machine: Machine, tools: Tools) -> Check:
    title = tr("Shared memory")
    size = machine.shared_memory_bytes
    if size is None:
        reason = machine.unavailable.get("shared_memory_bytes", tr("not known"))
        if machine.platform != "linux":
            return Check("shared_memory", title, "ok", tr("not needed here ({reason})", reason=reason))
        return Check("shared_memory", title, "warning", reason, tr("Run without loader workers."))
    if size >= SMALL_SHARED_BYTES:
        return Check("shared_memory", title, "ok", tr("/dev/shm has {size}", size=_gib(size)))
    if tools.container:
        remedy = tr("Start the container with more of it. Or run without workers.")
        command = "docker run --shm-size=8g ..."
    else:
        remedy = tr("Enlarge it. Or run without workers.")
        command = "sudo mount -o remount,size=8G /dev/shm"
    reason = tr("/dev/shm has {size}: loader workers die with a bus error when it is full", size=_gib(size))
    return Check("shared_memory", title, "warning", reason, remedy, command)


def _disk(machine: Machine) -> Check:
    free = machine.disk_free_bytes
    if free is None:
        reason = machine.unavailable.get("disk_free_bytes", tr("not known"))
        return Check("disk", tr("Disk"), "warning", reason, tr("Choose another output folder (--output-dir)."))
    found = tr("{free} free at {path}", free=_gib(free), path=machine.disk_path)
    if free < NO_DISK_BYTES:
        remedy = tr("Free some space, or choose another output folder (--output-dir).")
        return Check("disk", tr("Disk"), "missing", found, remedy, required=True)
    if free < SMALL_DISK_BYTES:
        remedy = tr("Checkpoints of large models will not fit: choose another output folder (--output-dir) for them.")
        return Check("disk", tr("Disk"), "warning", found, remedy)
    return Check("disk", tr("Disk"), "ok", found)


def _ram(machine: Machine) -> Check:
    found = tr(
        "{ram_available} of {ram_total} available",
        ram_available=_gib(machine.ram_available_bytes),
        ram_total=_gib(machine.ram_total_bytes),
    )
    if machine.ram_available_bytes < SCARCE_RAM_BYTES:
        return Check("ram", tr("RAM"), "warning", found, tr("Close other programs, or train a small model."))
    if machine.ram_total_bytes < LOW_RAM_BYTES:
        return Check("ram", tr("RAM"), "warning", found, tr("Rows are streamed and no loader workers are started."))
    return Check("ram", tr("RAM"), "ok", found)


def _nvml_package(tools: Tools) -> tuple[Check, ...]:
    if tools.superseded_pynvml is None:
        return ()
    return (
        Check(
            "nvml_package",
            tr("NVML package"),
            "warning",
            tr(
                "the package pynvml {version} is installed, and torch warns about it at every start",
                version=tools.superseded_pynvml,
            ),
            tr("nvidia-ml-py gives the same module."),
            f"{tools.pip} uninstall -y pynvml && {tools.pip} install --force-reinstall nvidia-ml-py",
        ),
    )


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.1f} GiB" if size_bytes >= GIB / 10 else f"{size_bytes / 1024**2:.0f} MiB"
