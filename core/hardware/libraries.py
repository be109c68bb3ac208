"""Which libraries can be imported here, found without importing any of them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from pathlib import Path

from trainwiz.core.errors import os_reason
from trainwiz.core.hardware.machine import Libraries
from trainwiz.core.language import tr

REPORTERS: dict[str, str] = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "comet_ml": "comet-ml",
    "clearml": "clearml",
    "trackio": "trackio",
    "swanlab": "swanlab",
    "codecarbon": "codecarbon",
    "dvclive": "dvclive",
}
"""Names that transformers reports to, which are import names too, -> the distribution that brings each. TensorBoard
comes with trainwiz."""

DISTRIBUTIONS: dict[str, str] = {
    "torch": "torch",
    "transformers": "transformers",
    "accelerate": "accelerate",
    "datasets": "datasets",
    "tokenizers": "tokenizers",
    "safetensors": "safetensors",
    "peft": "peft",
    "deepspeed": "deepspeed",
    "flash_attn": "flash-attn",
    "bitsandbytes": "bitsandbytes",
    "triton": "triton",
    "sacrebleu": "sacrebleu",
    "ninja": "ninja",
    "cpuinfo": "py-cpuinfo",
    **REPORTERS,
}
"""Import name -> name of the distribution that brings it."""

UNKNOWN_VERSION = "unknown"


def find_libraries() -> Libraries:
    """Version of each known library, None where it cannot be imported."""
    return Libraries({name: _version(name, distribution) for name, distribution in DISTRIBUTIONS.items()})


def _version(name: str, distribution: str) -> str | None:
    if not _can_import(name):
        return None
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN_VERSION


def _can_import(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def torch_cuda_version() -> tuple[str | None, str | None]:
    """(CUDA version that the installed torch was built for, None), or (None, why it has none).

    Read from the text of torch/version.py: importing torch takes a second and 200 MB.
    """
    spec = importlib.util.find_spec("torch") if _can_import("torch") else None
    if spec is None or spec.origin is None:
        return None, tr("torch is not installed")
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError as error:
        return None, tr("torch/version.py cannot be read ({reason})", reason=os_reason(error))
    built = {
        name: value
        for name, value in re.findall(r"^(\w+)\s*(?::[^=\n]*)?=\s*['\"]?([^'\"\n]*)['\"]?\s*$", text, re.MULTILINE)
        if value != "None"
    }
    version = built.get("__version__", UNKNOWN_VERSION)
    if "cuda" in built:
        return built["cuda"], None
    if "hip" in built:
        return None, tr("torch {version} is built for AMD cards (ROCm {hip})", version=version, hip=built["hip"])
    return None, tr("torch {version} is built for the CPU only", version=version)
