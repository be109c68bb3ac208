"""What stands around a training: compilers, headers, package managers, and cards that no driver serves."""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASS = "0x03"
"""PCI class of graphics cards; server cards are "3D controllers" of the same class."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What `trainwiz doctor` needs to know beside the Machine."""

    nvidia_cards: int = 0
    """NVIDIA graphics cards on the PCI bus, with or without a driver."""
    cpp_compiler: str | None = None
    ninja: str | None = None
    nvcc: str | None = None
    python_headers: bool = False
    distribution: str = ""
    """ID of /etc/os-release: "ubuntu", "debian", "fedora", ..."""
    container: bool = False
    python: str = "python3"
    """How to call this interpreter in a shell."""
    superseded_pynvml: str | None = None
    """Version of the PyPI package that is called pynvml, which torch warns about."""

    def install(self, apt: str, dnf: str | None = None, pacman: str | None = None) -> str:
        """The command that installs a system package here."""
        if self.distribution in {"fedora", "rhel", "centos", "rocky", "almalinux", "amzn"}:
            return f"sudo dnf install {dnf or apt}"
        if self.distribution in {"arch", "manjaro", "endeavouros"}:
            return f"sudo pacman -S {pacman or dnf or apt}"
        return f"sudo apt install {apt}"

    @property
    def pip(self) -> str:
        return f"{self.python} -m pip"


def find_tools(root: Path = Path("/")) -> Tools:
    """Look around on this computer; starts no process."""
    return Tools(
        nvidia_cards=_nvidia_cards(root),
        cpp_compiler=shutil.which(os.environ.get("CXX") or "g++") or shutil.which("c++"),
        ninja=shutil.which("ninja") or _beside_python("ninja"),
        nvcc=_nvcc(root),
        python_headers=(Path(sysconfig.get_paths()["include"]) / "Python.h").exists(),
        distribution=_distribution(root),
        container=any((root / mark).exists() for mark in (".dockerenv", "run/.containerenv")),
        python=_python_command(),
        superseded_pynvml=_superseded_pynvml(),
    )


def _nvidia_cards(root: Path) -> int:
    found = 0
    for device in (root / "sys/bus/pci/devices").glob("*"):
        if _first_line(device / "vendor") == NVIDIA_VENDOR and _first_line(device / "class").startswith(DISPLAY_CLASS):
            found += 1
    return found


def _nvcc(root: Path) -> str | None:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    for folder in filter(None, (home, str(root / "usr/local/cuda"))):
        candidate = Path(folder) / "bin" / "nvcc"
        if candidate.exists():
            return str(candidate)
    return shutil.which("nvcc")


def _beside_python(name: str) -> str | None:
    """A venv's own programs count also where the venv is not activated."""
    candidate = Path(sys.executable).parent / name
    return str(candidate) if candidate.exists() else None


def _python_command() -> str:
    for name in ("python3", "python"):
        found = shutil.which(name)
        if found is not None and Path(found).absolute() == Path(sys.executable).absolute():
            return name
    return shlex.quote(sys.executable)


def _distribution(root: Path) -> str:
    try:
        text = (root / "etc/os-release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    names = [line.partition("=")[2].strip('"') for line in text.splitlines() if line.startswith("ID=")]
    return names[0] if names else ""


def _superseded_pynvml() -> str | None:
    try:
        return importlib.metadata.version("pynvml")
    except importlib.metadata.PackageNotFoundError:
        return None


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
