"""The wheel, installed outside the checkout, trains the embedded demo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content alone; the other packages are this interpreter's."""
    pytest.importorskip("setuptools", reason="building the wheel offline needs setuptools in this environment")
    wheels = tmp_path_factory.mktemp("wheels")
    source = tmp_path_factory.mktemp("source") / "trainwiz"
    # A copy, so that build leftovers in the checkout can neither help nor hurt.
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, check=True,
    ).stdout.decode().split("\0")  # fmt: skip
    for name in filter(None, files):
        if (REPOSITORY / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((REPOSITORY / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, source], check=True)
    target = tmp_path_factory.mktemp("site")
    (wheel,) = wheels.glob("trainwiz-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", target, wheel], check=True)
    return target


def trainwiz(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, "-m", "trainwiz.tui", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_it_is_the_wheel_that_runs(installed: Path, tmp_path: Path) -> None:
    where = subprocess.run(
        [sys.executable, "-c", "import trainwiz, trainwiz.core; trainwiz.plan; print(trainwiz.core.__file__)"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(installed)


def test_all_data_of_the_checkout_are_in_the_wheel_and_nothing_beside_the_package(installed: Path) -> None:
    ours = ("core", "tui", "profiles")
    listed = subprocess.run(
        ["git", "ls-files", "-z", *ours], cwd=REPOSITORY, capture_output=True, check=True
    ).stdout.decode().split("\0")  # fmt: skip
    tracked = {name for name in filter(None, listed) if (REPOSITORY / name).is_file()}
    packed = {
        path.relative_to(installed / "trainwiz").as_posix()
        for path in (installed / "trainwiz").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert tracked - packed == set()
    assert {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")} <= {"trainwiz", "bin"}


def test_the_wheel_speaks_chinese(installed: Path, tmp_path: Path) -> None:
    done = trainwiz(installed, tmp_path, "--lang", "zh", "--help")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("用法：trainwiz") and not done.stderr


@pytest.mark.real
def test_the_wheel_runs_the_demo(installed: Path, tmp_path: Path) -> None:
    done = trainwiz(
        installed, tmp_path, "--profile", "cpu-demo", "--yes", "--max-steps", "6", "--output-dir", "run", "--plain"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "run" / "final_model" / "model.safetensors").is_file()
