"""Lines that install what is missing: by what made the environment, with the build of torch for the machine."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.errors import CannotRunError
from trainwiz.core.hardware import install
from trainwiz.core.hardware.install import UV_TOOL, UVX, install_line, installer_of, need, torch_line, training_line
from trainwiz.core.hardware.machine import Gpu, Libraries, Machine

from tests.each import each

CPU, MAC, AMD = Machine(), Machine(platform="darwin", accelerator="mps"), Machine(amd_gpu=True)
CARD = Machine(gpus=(Gpu(0, compute_capability="8.6"),), accelerator="cuda", cuda_driver_version="13.0")
OLD = Machine(gpus=(Gpu(0, compute_capability="6.1"),), accelerator="cuda", cuda_driver_version="12.8")
INDEX = "--index-url https://download.pytorch.org/whl"


@each(("made", "has_pip", "active", "command"), [
    ({"uv-receipt.toml": ""}, False, False, UV_TOOL),
    ({"pipx_metadata.json": "{}"}, True, False, "pipx runpip trainwiz install"),
    ({"pyvenv.cfg": "home = /usr/bin\nuv = 0.9.1\n"}, False, True, "uv pip install"),
    ({"pyvenv.cfg": "home = /usr/bin\nuv = 0.9.1\n"}, False, False, "uv pip install --python {prefix}"),
    ({"pyvenv.cfg": "home = /usr/bin\n"}, True, False, f"{sys.executable} -m pip install"),
    ({}, True, False, f"{sys.executable} -m pip install"),
])  # fmt: skip
def test_what_made_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: dict[str, str], has_pip: bool, active: bool, command: str
) -> None:
    prefix = tmp_path / "trainwiz"
    prefix.mkdir()
    for name, text in made.items():
        (prefix / name).write_text(text)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("VIRTUAL_ENV", str(prefix) if active else "/another")
    assert installer_of(prefix, has_pip=has_pip) == command.format(prefix=prefix)


def test_the_cache_of_uvx_and_pip_of_an_active_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert installer_of(tmp_path / "archive-v0" / "x", has_pip=False) == UVX
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert installer_of(tmp_path, has_pip=True) == "pip install"


@each(("machine", "installer", "line"), [
    (CARD, "pip install", "pip install 'trainwiz[train]'"),
    (MAC, "pip install", "pip install 'trainwiz[train]'"),
    (CPU, "pip install", f"pip install torch {INDEX}/cpu && pip install 'trainwiz[train]'"),
    (OLD, "pip install", f"pip install torch {INDEX}/cu126 && pip install 'trainwiz[train]'"),
    (AMD, "pip install", f"pip install torch {INDEX}/rocm7.2 && pip install 'trainwiz[train]'"),
    (CPU, "uv pip install", "uv pip install 'trainwiz[train]' --torch-backend cpu"),
    (CPU, UV_TOOL, "uv tool install --force 'trainwiz[train]' --torch-backend cpu"),
    (CARD, UVX, "uvx --from 'trainwiz[train]' trainwiz"),
])  # fmt: skip
def test_the_line_that_makes_a_place_to_train_in(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, installer: str, line: str
) -> None:
    monkeypatch.setattr(install, "_as_installed", lambda extra: f"trainwiz{extra}")
    assert training_line(replace(machine, installer=installer)) == line


def test_lines_for_one_package_and_another_build_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "_as_installed", lambda extra: f"trainwiz{extra}")
    assert install_line("pip install", "wandb") == "pip install wandb"
    assert install_line(UV_TOOL, "wandb") == "uv tool install --force 'trainwiz[train]' --with wandb"
    there = replace(CARD, libraries=Libraries({"torch": "2.13.0+cpu"}))
    assert torch_line(there) == "pip install --force-reinstall torch==2.13.0"
    assert training_line(there, "[qlora]") == "pip install 'trainwiz[qlora]'"
    assert torch_line(OLD) == f"pip install --force-reinstall torch {INDEX}/cu126"


def test_what_is_not_here_is_said_with_its_line() -> None:
    need(("yaml", "torch"))
    with pytest.raises(CannotRunError, match=r"not installed \(no_such_thing\)\. Install: \S") as caught:
        need(("yaml", "no_such_thing"))
    assert caught.value.exit_code == 3
