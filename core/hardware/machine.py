"""Machine and Gpu: what a computer is, as values, and its libraries."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from math import exp, inf, log
from pathlib import Path
from typing import Any, Literal

from trainwiz.core.errors import os_reason
from trainwiz.core.language import mark, tr, trn

UNKNOWN_LINK = mark("unknown")
"""How a link between two cards is called that cannot be read."""

Accelerator = Literal["cuda", "mps", "cpu"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. What cannot be read is None, with the reason under `unavailable[field]`."""

    index: int
    uuid: str | None = None
    name: str | None = None
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    compute_capability: str | None = None
    """Like "8.6"."""
    driver: str | None = None
    mig: str | None = None
    """ "enabled", "disabled", or the name of the MIG slice; None where the card has none."""
    links: tuple[str, ...] = ()
    """For each other GPU: "GPU1: NVLink x4" or "GPU1: PCIe switch"."""
    visible: bool = True
    """A program started here can use it: selected by CUDA_VISIBLE_DEVICES and not lost."""
    cuda_index: int | None = None
    """N of "cuda:N" in a program started here; None where the card is not visible."""
    parent_uuid: str | None = None
    """Of a MIG slice: the card that it is cut from."""
    memory_other_bytes: int | None = None
    """Memory that the desktop or other jobs hold now."""
    catalogue_name: str | None = None
    """Name in the GPU catalogue, where it is known: peak rates come from there."""
    power_limit_w: float | None = None
    """As the driver enforces it now; None for a slice of a card, and for a planned one."""
    unified: bool = False
    """Its memory is the machine's RAM: what a run holds on it, the rest of the run cannot have."""
    given_tflops: float | None = None
    """Dense half-precision TFLOP/s given by hand for a card that is in no catalogue."""
    given_fp32_tflops: float | None = None
    given_bandwidth: float | None = None
    """GB/s, given by hand."""
    unavailable: dict[str, str] = field(default_factory=dict)

    @property
    def capability(self) -> tuple[int, int] | None:
        if self.compute_capability is None:
            return None
        major, _, minor = self.compute_capability.partition(".")
        return int(major), int(minor or 0)


@dataclass(frozen=True, slots=True)
class Libraries:
    """What can be imported here (found without importing it): name -> version, or None when absent."""

    versions: dict[str, str | None] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        return self.versions.get(name) is not None


@dataclass(frozen=True, slots=True)
class Machine:
    """One computer. `hypothetical` machines come from the catalogue and are for planning only."""

    gpus: tuple[Gpu, ...] = ()
    cpu_cores: int = 1
    """Cores this process may use (affinity and cgroup quota respected)."""
    ram_total_bytes: int = 0
    """Of the machine or of the cgroup limit, whichever is smaller."""
    ram_available_bytes: int = 0
    disk_free_bytes: int | None = None
    disk_path: str | None = None
    platform: str = "linux"
    accelerator: Accelerator = "cpu"
    os_version: str | None = None
    """Kernel release on Linux, "14.5" on macOS."""
    wsl: bool = False
    hypothetical: bool = False
    description: str = field(init=False)
    """One line: "1 x RTX 3080 10GB, 12 cores, 62.7 GiB RAM"."""
    cpu_model: str | None = None
    cpu_bf16: bool | None = None
    """The processor has instructions for products in bf16; None where the system does not say."""
    shared_memory_bytes: int | None = None
    """Size of /dev/shm."""
    network_interfaces: tuple[str, ...] = ()
    """Those that are up and have an address, the one of the default route first; loopback and bridges of containers
    left out."""
    infiniband: tuple[str, ...] | None = None
    """InfiniBand and RoCE adapters as Linux names them; None where that is not known."""
    cuda_driver_version: str | None = None
    """Newest CUDA that the driver can run, like "12.9"."""
    torch_cuda: str | None = None
    """CUDA version that the installed torch was built for; None for a CPU build or no torch, with the reason."""
    cuda_visible_devices: str | None = None
    """The variable as it is set; None where it is not."""
    amd_gpu: bool = False
    """The device of ROCm is here. Such a card gets its build of torch, and no plan."""
    installer: str = "pip install"
    """The command that installs packages into this environment."""
    notes: tuple[str, ...] = ()
    """One sentence each about what is odd here, for example an entry of CUDA_VISIBLE_DEVICES that is ignored."""
    libraries: Libraries = field(default_factory=Libraries)
    unavailable: dict[str, str] = field(default_factory=dict)

    @property
    def trains(self) -> bool:
        """What trains was found here: on a planned machine, and beside the light core, the extras are still to come."""
        return not self.hypothetical and self.libraries.versions.get("torch", "") is not None

    def may_have(self, library: str) -> bool:
        """A library of the extras is installed here, or is still to come with all of them."""
        return not self.trains or self.libraries.has(library)

    @property
    def visible_gpus(self) -> tuple[Gpu, ...]:
        """In the order of cuda:0, cuda:1, ..."""
        visible = (gpu for gpu in self.gpus if gpu.visible)
        return tuple(sorted(visible, key=lambda gpu: gpu.index if gpu.cuda_index is None else gpu.cuda_index))

    def __post_init__(self) -> None:
        cores = trn("{n} core", "{n} cores", self.cpu_cores)
        ram = tr("{size} GiB RAM", size=f"{self.ram_total_bytes / GIB:.1f}")
        object.__setattr__(self, "description", tr(", ").join((describe_gpus(self.visible_gpus), cores, ram)))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


GIB = 1024**3


def describe_gpus(gpus: Sequence[Gpu]) -> str:
    """ "2 x RTX 3090 + 1 x T4", or "no GPU"."""
    counts = Counter(gpu_label(gpu) for gpu in gpus)
    return " + ".join(f"{count} x {label}" for label, count in counts.items()) or tr("no GPU")


def gpu_label(gpu: Gpu) -> str:
    """The catalogue's name, which tells memory sizes apart, else the driver's without its maker."""
    if gpu.catalogue_name is not None:
        return gpu.catalogue_name
    name = (gpu.name or tr("unknown GPU")).removeprefix("NVIDIA ").removeprefix("GeForce ")
    if gpu.parent_uuid is not None and gpu.mig is not None and gpu.mig not in name:
        return f"{name} MIG {gpu.mig}"
    return name


_REPORTERS = "tensorboard wandb mlflow comet_ml clearml trackio swanlab codecarbon dvclive"
REPORTERS: dict[str, str] = {name: name.replace("_", "-") for name in _REPORTERS.split()}
"""Names that transformers reports to, which are import names too, -> the distribution that brings each. TensorBoard
comes with the extra `train`."""

_LIBRARIES = """
    torch transformers accelerate datasets tokenizers safetensors peft deepspeed flash_attn bitsandbytes triton sacrebleu
    ninja liger_kernel
"""
DISTRIBUTIONS: dict[str, str] = {
    **{name: name.replace("_", "-") for name in _LIBRARIES.split()},
    "cpuinfo": "py-cpuinfo",
    **REPORTERS,
}
"""Import name -> name of the distribution that brings it."""

UNKNOWN_VERSION = "unknown"


def can_import(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def find_libraries() -> Libraries:
    return Libraries({name: _version(name, distribution) for name, distribution in DISTRIBUTIONS.items()})


def _version(name: str, distribution: str) -> str | None:
    if not can_import(name):
        return None
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN_VERSION


def torch_cuda_version() -> tuple[str | None, str | None]:
    """(CUDA version that the installed torch was built for, None), or (None, why it has none).

    Read from the text of torch/version.py: importing torch takes a second and 200 MB.
    """
    spec = importlib.util.find_spec("torch") if can_import("torch") else None
    if spec is None or spec.origin is None:
        return None, tr("torch is not installed")
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError as error:
        return None, tr("torch/version.py cannot be read ({reason})", reason=os_reason(error))
    built = dict(re.findall(r"^(\w+)\b[^=\n]*= *['\"]([^'\"\n]+)", text, re.MULTILINE))
    version = built.get("__version__", UNKNOWN_VERSION)
    if "cuda" in built:
        return built["cuda"], None
    if "hip" in built:
        return None, tr("torch {version} is built for AMD GPUs (ROCm {hip})", version=version, hip=built["hip"])
    return None, tr("torch {version} is a CPU-only build", version=version)


# Rates: what a device of this machine was measured to do, in its formats and at its sizes.


@dataclass(frozen=True, slots=True)
class ProductRate:
    """Matrix products of one format, (rows x width) by (width x width)."""

    format: str
    """ "fp32", "tf32", "bf16" or "fp16"."""
    rows: int
    """Tokens of the batch: rows of the left matrix."""
    width: int
    flops_per_s: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one device, by real work of a few seconds; on a CPU in seconds of a machine with nothing else to do."""

    device: str
    """Key of the device (history.measurement.device_key)."""
    threads: int | None
    """CPU threads that computed; None on a GPU."""
    products: tuple[ProductRate, ...]
    attention: tuple[ProductRate, ...]
    """Fused attention forward and backward: `rows` are tokens of a row, `width` is the heads' together."""
    bytes_per_s: float
    """Read and written by an operation on each element of tensors that no cache holds."""
    launch_s: float
    """One small operation in the autograd engine, forward and backward together, divided by its kernels."""
    adam_parameters_per_s: float
    """Of the fused AdamW in fp32."""
    day: str
    """ "2026-11-21"."""
    versions: dict[str, str]
    """Of torch and, on a GPU, of CUDA and the driver."""
    fresh_bytes_per_s: float | None = None
    """Like `bytes_per_s`, written into a new tensor of 64 MB as training does with logits: on a CPU the system makes its pages
    first, which takes several times as long. Smaller tensors (below 32 MB with glibc) take memory that is there already."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Rates:
        """ValueError for what is not rates."""
        from pydantic import TypeAdapter  # takes a tenth of a second

        found = TypeAdapter(cls).validate_python(dict(values))
        numbers = [
            found.bytes_per_s,
            found.launch_s,
            found.adam_parameters_per_s,
            found.threads,
            found.fresh_bytes_per_s,
        ]
        for one in (*found.products, *found.attention):
            numbers += one.rows, one.width, one.flops_per_s
        if not all(number is None or 0 < number < inf for number in numbers):
            raise ValueError(found)
        date.fromisoformat(found.day)
        return found


def product_rate(rates: Sequence[ProductRate], format: str, rows: float, width: float) -> float | None:
    """FLOP/s of products at a size: that of the nearest measured sizes, geometrically between them; None without any."""
    known = [one for one in rates if one.format == format]
    if not known:
        return None
    weights = [exp(-abs(log(rows / one.rows)) - 2 * abs(log(width / one.width))) for one in known]
    logs = (weight * log(one.flops_per_s) for weight, one in zip(weights, known, strict=True))
    return exp(sum(logs) / sum(weights))
