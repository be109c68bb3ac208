"""The line that installs what is missing here: by what made this environment, with the build of torch for this machine."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from trainwiz.core.errors import CannotRunError, Finding
from trainwiz.core.hardware.host import text_of
from trainwiz.core.hardware.machine import Machine, can_import
from trainwiz.core.hardware.visible import weakest_gpu
from trainwiz.core.language import tr

NEEDED = ("torch", "transformers", "accelerate", "datasets", "tokenizers", "safetensors", "peft")
"""What every training needs, and every trace: the extra `train` brings them."""

# What made this environment.

UV_TOOL, UVX = "uv tool install --force", "uvx --from"
"""Commands that make a whole environment anew: extras and packages are named together."""


@cache
def find_installer() -> str:
    """The command that stands before the packages: "pip install", "uv pip install", ..."""
    # Not by find_spec: the import hook of setuptools takes that for pip itself at work, and setuptools cannot be
    # imported in this process any more.
    return installer_of(Path(sys.prefix), has_pip=any(Path(place, "pip").is_dir() for place in sys.path))


def installer_of(prefix: Path, *, has_pip: bool) -> str:
    if (prefix / "uv-receipt.toml").is_file():
        return UV_TOOL
    if "archive-v0" in prefix.parts:
        # The cache of uv: an environment for one command.
        return UVX
    if (prefix / "pipx_metadata.json").is_file():
        # `pipx inject` takes extras of the program itself since 2026 alone.
        return f"pipx runpip {shlex.quote(prefix.name)} install"
    if "\nuv = " in text_of(prefix / "pyvenv.cfg") or (not has_pip and shutil.which("uv")):
        active = os.environ.get("VIRTUAL_ENV") == str(prefix)
        return "uv pip install" if active else f"uv pip install --python {shlex.quote(str(prefix))}"
    if (pip := shutil.which("pip")) and Path(pip).absolute() == Path(sys.executable).absolute().with_name("pip"):
        # A shell here takes the program of this environment.
        return "pip install"
    return f"{shlex.quote(sys.executable)} -m pip install"


TORCH_INDEX = "https://download.pytorch.org/whl/"
OLD_CARDS = "cu126"
"""PyTorch's builds for CUDA 12.6: the only ones of 2.11 to 2.14 that still hold Pascal and Volta."""
ROCM = "rocm7.2"


def install_line(installer: str, *packages: str, options: str = "") -> str:
    """`packages`: distributions, or extras of trainwiz in brackets, as in "[qlora]"."""
    extra = next((name for name in packages if name.startswith("[")), "[train]")
    if installer in (UV_TOOL, UVX):
        others = [f"--with {name}" for name in packages if not name.startswith("[")]
        parts = [installer, shlex.quote(_as_installed(extra)), *others, options]
        return " ".join(filter(None, (*parts, "trainwiz" if installer == UVX else "")))
    names = (shlex.quote(f"trainwiz{name}" if name.startswith("[") else name) for name in packages)
    return " ".join(filter(None, (installer, *names, options)))


def training_line(machine: Machine | None = None, extra: str = "[train]") -> str:
    """What makes this a place to train in. Without a machine, or with one that is elsewhere: by a look at this one."""
    machine = machine if machine is not None and not machine.hypothetical else _here()
    build = "" if machine.libraries.has("torch") else torch_build(machine)
    if not build or machine.installer.startswith(("uv ", "uvx ")):
        return install_line(machine.installer, extra, options=f"--torch-backend {build}" if build else "")
    first = install_line(machine.installer, "torch", options=f"--index-url {TORCH_INDEX}{build}")
    return f"{first} && {install_line(machine.installer, extra)}"


@cache
def _here() -> Machine:
    """Looked at once: a plan is made at every key."""
    from trainwiz.core.hardware.read import probe_machine

    return probe_machine()


def torch_line(machine: Machine) -> str:
    """What puts a build for the card of this machine in the place of the torch that is here."""
    build = torch_build(machine, for_card=True)
    version = (machine.libraries.versions.get("torch") or "").partition("+")[0]
    if machine.installer in (UV_TOOL, UVX):
        return install_line(machine.installer, options=f"--torch-backend {build or 'auto'}")
    name = f"torch=={version}" if not build and version[:1].isdigit() else "torch"
    where = f" --index-url {TORCH_INDEX}{build}" if build else ""
    return f"{machine.installer} --force-reinstall {name}{where}"


def torch_build(machine: Machine, *, for_card: bool = False) -> str:
    """The name of an index of PyTorch; "" for the build on PyPI, which is for CUDA 13 on Linux: that needs a driver for it
    and a card from Turing on. `for_card`: also where no driver shows the card."""
    if machine.platform != "linux":
        return ""
    if machine.accelerator == "cpu" and not machine.gpus and not for_card:
        return ROCM if machine.amd_gpu else "cpu"
    gpu = weakest_gpu(machine)
    capability = (8, 0) if gpu is None or gpu.capability is None else gpu.capability
    cuda = int((machine.cuda_driver_version or "13").partition(".")[0])
    return OLD_CARDS if capability < (7, 5) or (cuda < 13 and capability < (10, 0)) else ""


def _as_installed(extra: str) -> str:
    try:
        told = json.loads(importlib.metadata.distribution("trainwiz").read_text("direct_url.json") or "{}")
    except (importlib.metadata.PackageNotFoundError, ValueError):
        told = {}
    url = f"{told['vcs_info']['vcs']}+{told['url']}" if "vcs_info" in told else told.get("url")
    return f"trainwiz{extra} @ {url}" if url else f"trainwiz{extra}"


def missing(needed: Sequence[str] = NEEDED) -> list[str]:
    return [name for name in needed if not can_import(name)]


def need(needed: Sequence[str] = NEEDED, machine: Machine | None = None) -> None:
    if lacking := missing(needed):
        raise without(lacking, machine)


def without(lacking: Sequence[str], machine: Machine | None = None) -> CannotRunError:
    message = tr(
        "This needs packages that are not installed ({missing}). Install: {command}",
        missing=", ".join(lacking),
        command=training_line(machine),
    )
    return CannotRunError(Finding("missing_package", "error", "environment", message))
