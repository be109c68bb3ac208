"""What a computer has and lacks for training, feature by feature."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from trainwiz.core.hardware.host import version_tuple
from trainwiz.core.hardware.install import NEEDED, install_line, torch_line, training_line
from trainwiz.core.hardware.machine import GIB, Machine, describe_gpus
from trainwiz.core.hardware.nvml import DRIVER_UPDATED, NO_LIBRARY, NOT_LOADED
from trainwiz.core.hardware.read import Tools
from trainwiz.core.hardware.visible import AMPERE, can, choose_attention, choose_precision, choose_tf32, weakest_gpu
from trainwiz.core.language import mark, tr

CheckStatus = Literal["ok", "warning", "missing"]


@dataclass(frozen=True, slots=True)
class Check:
    """`reason` says what was found; `remedy` what to do, and `command` does it, where a command can."""

    feature: str
    """Stable name for programs: "driver", "bf16", "shared_memory", ..."""
    title: str
    status: CheckStatus
    reason: str
    remedy: str | None = None
    command: str | None = None
    required: bool = False
    """Nothing can be trained here while this is missing."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def can_train(checks: tuple[Check, ...]) -> bool:
    return not any(check.required and check.status == "missing" for check in checks)


class Answer(NamedTuple):
    status: CheckStatus
    reason: str
    remedy: str | None = None
    command: str | None = None


ONLY_WITH_CARD = mark("Only needed with an NVIDIA GPU; this machine can train without it.")


def _driver(machine: Machine, tools: Tools) -> Answer:
    problem = machine.unavailable.get("gpus")
    if problem is None:
        driver = next((gpu.driver for gpu in machine.gpus if gpu.driver is not None), tr("unknown"))
        cuda = machine.cuda_driver_version
        return Answer("ok", tr("version {driver}, CUDA up to {cuda}", driver=driver, cuda=cuda))
    by_problem = {
        tr(DRIVER_UPDATED): (tr("Reboot."), "sudo reboot"),
        tr(NOT_LOADED): (tr("Load it; if that fails, reinstall it."), "sudo modprobe nvidia"),
    }
    on_bus = tr("{reason}; NVIDIA GPUs on the PCI bus: {n}", reason=problem, n=tools.nvidia_cards)
    if machine.wsl:
        remedy = tr("Install the NVIDIA driver in Windows (not inside WSL), then restart WSL.")
        return Answer("missing", problem, remedy, "wsl.exe --shutdown")
    if problem in by_problem:
        return Answer("missing", problem, *by_problem[problem])
    if problem == tr(NO_LIBRARY) and not tools.nvidia_cards:
        return Answer("missing", on_bus, tr(ONLY_WITH_CARD))
    if tools.container:
        remedy = tr("Start the container with GPU access (NVIDIA Container Toolkit).")
        return Answer("missing", problem, remedy, "docker run --gpus all ...")
    if problem != tr(NO_LIBRARY):
        return Answer("missing", problem, tr("Check what the driver sees."), "nvidia-smi")
    command = "sudo ubuntu-drivers install"
    if tools.distribution != "ubuntu":
        command = tools.install("nvidia-driver", "akmod-nvidia", "nvidia")
    return Answer("missing", on_bus, tr("Install it, then reboot."), command)


def _gpus(machine: Machine, tools: Tools) -> Answer:
    if machine.visible_gpus:
        return Answer("ok", describe_gpus(machine.visible_gpus))
    notes = " ".join(machine.notes) or machine.unavailable.get("gpus", tr("no usable GPU"))
    if machine.platform == "darwin":
        return Answer("missing", notes, tr("Install a Python build for arm64, or update macOS."))
    if machine.cuda_visible_devices is not None:
        return Answer("missing", notes, tr("Make the GPUs visible to programs."), "unset CUDA_VISIBLE_DEVICES")
    return Answer("missing", notes, tr("See the lines below."))


def _lost_gpus(machine: Machine) -> Iterator[Check]:
    remedy = tr("Reset it while no program is using it; if that fails, reboot.")
    for gpu in machine.gpus:
        if "gpu" in gpu.unavailable:
            command = f"sudo nvidia-smi --gpu-reset -i {gpu.index}"
            yield Check(f"gpu_{gpu.index}", f"GPU {gpu.index}", "missing", gpu.unavailable["gpu"], remedy, command)


def _torch_cuda(machine: Machine, tools: Tools) -> Answer:
    command = torch_line(machine) if machine.libraries.has("torch") else training_line(machine)
    if machine.torch_cuda is None:
        reason = machine.unavailable.get("torch_cuda", tr("torch is not installed"))
        # WSL and some containers list no PCI devices, though there is a driver.
        driver = machine.unavailable.get("gpus") in {tr(NOT_LOADED), tr(DRIVER_UPDATED)}
        if not (machine.gpus or tools.nvidia_cards or driver):
            return Answer("missing", reason, tr(ONLY_WITH_CARD))
        remedy = tr("Until then, training runs on the CPU: install the CUDA build (several GB).")
        return Answer("missing", reason, remedy, command)
    built, problem = tr("built for CUDA {version}", version=machine.torch_cuda), _unfit(machine)
    if problem is None:
        return Answer("ok", built)
    remedy = tr("Install a build that supports this GPU and its driver, or update the driver.")
    return Answer("missing", tr("{built}: {problem}", built=built, problem=problem), remedy, command)


def _unfit(machine: Machine) -> str | None:
    """Why torch's wheels for its CUDA cannot use the card or its driver, or None.

    Source: PyTorch's RELEASE.md, "CUDA support matrix": Pascal left the wheels for CUDA 12.8 with 2.8, Volta
    with 2.11; CUDA 13 has neither; Blackwell came with CUDA 12.8.
    """
    built, driver_cuda, gpu = version_tuple(machine.torch_cuda), machine.cuda_driver_version, weakest_gpu(machine)
    if gpu is not None and gpu.capability is not None:
        without_volta = built >= (13, 0) or version_tuple(machine.libraries.versions.get("torch")) >= (2, 11)
        too_old = built >= (12, 8) and gpu.capability < ((7, 5) if without_volta else (7, 0))
        too_new = built < (12, 8) and gpu.capability >= (10, 0)
        if too_old or too_new:
            return tr("these builds do not support sm {capability}", capability=gpu.compute_capability)
    if driver_cuda is not None and built[:1] > version_tuple(driver_cuda)[:1]:
        return tr("the driver supports CUDA {version} at most", version=driver_cuda)
    return None


def _bf16(machine: Machine, tools: Tools) -> Answer:
    value, reason = choose_precision(machine)
    if value == "bf16":
        return Answer("ok", reason)
    return Answer("missing", reason, tr("Training uses {value}.", value=value))


def _tf32(machine: Machine, tools: Tools) -> Answer:
    value, reason = choose_tf32(machine)
    return Answer("ok", reason) if value else Answer("missing", reason, tr("fp32 computations use full precision."))


def _flash_attention(machine: Machine, tools: Tools) -> Answer:
    able, reason = can(machine, "FlashAttention-2", AMPERE)
    if not able:
        return Answer("missing", reason, tr("Attention uses sdpa."))
    value, reason = choose_attention(machine)
    if value == "flash_attention_2":
        return Answer("ok", reason)
    remedy = tr("Attention uses sdpa until flash-attn is installed (building it needs nvcc and half an hour).")
    command = install_line(machine.installer, "flash-attn", options="--no-build-isolation")
    return Answer("missing", reason, remedy, command)


SMALL_SHARED_BYTES = 1 * GIB
"""Docker's default is 64 MiB, which a single worker's batches can overflow; the run then dies with a bus error."""
SMALL_DISK_BYTES = 20 * GIB
"""Two checkpoints of a 650M model with its optimizer."""
NO_DISK_BYTES = 1 * GIB


def _libraries(machine: Machine, tools: Tools) -> Answer:
    missing = [name for name in NEEDED if not machine.libraries.has(name)]
    if missing:
        reason = tr("{missing} cannot be imported", missing=", ".join(missing))
        return Answer("missing", reason, tr("Install the missing libraries."), training_line(machine))
    return Answer("ok", ", ".join(f"{name} {machine.libraries.versions[name]}" for name in NEEDED[:4]))


def _deepspeed(machine: Machine, tools: Tools) -> Answer:
    if machine.libraries.has("deepspeed"):
        return Answer("ok", tr("version {version}", version=machine.libraries.versions["deepspeed"]))
    reason = tr("deepspeed cannot be imported: ZeRO and offload are unavailable")
    return Answer("missing", reason, tr("Build it against the installed torch."), training_line(machine, "[deepspeed]"))


def _compiler(machine: Machine, tools: Tools) -> Answer:
    """DeepSpeed builds its CPU Adam at the first run; with a CUDA build of torch that needs CUDA's headers too."""
    lacking, commands = list[str](), list[str]()
    if tools.cpp_compiler is None or not tools.python_headers:
        lacking += [
            name for name, there in (("g++", tools.cpp_compiler), ("Python.h", tools.python_headers)) if not there
        ]
        commands.append(tools.install("g++ python3-dev", "gcc-c++ python3-devel", "gcc python"))
    if machine.torch_cuda and not tools.nvcc:
        lacking.append(tr("nvcc (CUDA {version} toolkit)", version=machine.torch_cuda))
        commands.append(tools.install("nvidia-cuda-toolkit", "cuda-toolkit", "cuda"))
    if not lacking:
        return Answer("ok", tools.cpp_compiler or "")
    reason = tr("{lacking} not found: AdamW for offload cannot be built", lacking=", ".join(lacking))
    return Answer("missing", reason, tr("Install them."), " && ".join(commands))


def _shared_memory(machine: Machine, tools: Tools) -> Answer:
    size = machine.shared_memory_bytes
    if machine.platform != "linux":
        return Answer("ok", tr("not needed on this machine"))
    if size is None:
        reason = machine.unavailable.get("shared_memory_bytes", tr("unknown"))
        return Answer("warning", reason, tr("Run without data loader workers."))
    found = tr("/dev/shm has {size}", size=f"{size / GIB:.1f} GiB")
    if size >= SMALL_SHARED_BYTES:
        return Answer("ok", found)
    reason = tr("{found}: data loader workers die with a bus error when it is full", found=found)
    command = "docker run --shm-size=8g ..." if tools.container else "sudo mount -o remount,size=8G /dev/shm"
    return Answer("warning", reason, tr("Enlarge it, or run without data loader workers."), command)


def _disk(machine: Machine, tools: Tools) -> Answer:
    free, path = machine.disk_free_bytes, machine.disk_path
    remedy = tr("Free space for checkpoints, or choose another output folder (--output-dir).")
    if free is None:
        return Answer("warning", machine.unavailable.get("disk_free_bytes", tr("unknown")), remedy)
    found = tr("{free} free at {path}", free=f"{free / GIB:.1f} GiB", path=path)
    if free >= SMALL_DISK_BYTES:
        return Answer("ok", found)
    return Answer("missing" if free < NO_DISK_BYTES else "warning", found, remedy)


CHECKS: dict[str, tuple[str, Callable[[Machine, Tools], Answer]]] = {
    "libraries": (mark("Training libraries"), _libraries),
    "driver": (mark("NVIDIA driver"), _driver),
    "gpus": ("GPUs", _gpus),
    "torch_cuda": (mark("CUDA build of torch"), _torch_cuda),
    "bf16": ("bf16", _bf16),
    "tf32": ("TF32", _tf32),
    "flash_attention": ("FlashAttention-2", _flash_attention),
    "deepspeed": ("DeepSpeed", _deepspeed),
    "deepspeed_compiler": (mark("Compiler for DeepSpeed"), _compiler),
    "shared_memory": (mark("Shared memory"), _shared_memory),
    "disk": (mark("Disk"), _disk),
}
"""Feature -> its title and what looks at it, in the order in which they matter."""


OF_NVIDIA = ("driver", "torch_cuda", "tf32", "flash_attention")


def check_machine(machine: Machine, tools: Tools) -> tuple[Check, ...]:
    checks, is_apple = list[Check](), machine.platform == "darwin"
    for feature, (title, look) in CHECKS.items():
        if (feature in OF_NVIDIA and is_apple) or (feature == "gpus" and not machine.gpus and not is_apple):
            continue
        found = look(machine, tools)
        required = feature == "libraries" or (feature == "disk" and found.status == "missing")
        checks.append(Check(feature, tr(title), *found, required=required))
        if feature == "gpus":
            checks += _lost_gpus(machine)
    return tuple(checks)
