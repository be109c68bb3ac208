"""The wheel, installed outside the checkout: without torch all but training works, and with it the embedded demo trains."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.each import each

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content alone; the other packages are this interpreter's."""
    # Imported, it would take the place of distutils in this process.
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("building the wheel offline needs setuptools in this environment")
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


def run(environment: Mapping[str, str], folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "trainwiz.tui", *command.split()],
        cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True,
    )  # fmt: skip


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
    done = run({"PYTHONPATH": str(installed)}, tmp_path, "--lang zh --help")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("用法：trainwiz") and not done.stderr


LIGHT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""
"""sitecustomize of an interpreter in which the extras are not installed."""


@pytest.fixture(scope="module")
def light(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of commands that have the core's packages alone."""
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    lines = [line for group in ("train", "qlora", "deepspeed") for line in extras[group]]
    names = {re.split(r"[<>=\[]", line, maxsplit=1)[0] for line in lines} - {"trainwiz"} | {"safetensors", "pandas"}
    folder, home = tmp_path_factory.mktemp("light"), tmp_path_factory.mktemp("home")
    (folder / "sitecustomize.py").write_text(LIGHT.format(names=names))
    homes = dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"), str(home))
    return {**homes, "PYTHONPATH": f"{folder}{os.pathsep}{installed}", "HF_HUB_OFFLINE": "1"}


@each(
    ("command", "said"),
    [
        ("--help", "trainwiz plan"),
        ("plan --profile 2080super --json", '"tier": "analytic"'),
        ("plan --profile cpu-demo --tier layers", "tracing needs torch, which is not installed; see trainwiz doctor"),
        ("--profile cpu-demo --dry-run", "accelerate.yaml"),
        ("fit --dataset sample-chat --gpu T4 --num-gpus 1", "LoRA"),
        ("monitor out --once", "0.75"),
        ("runs list", ""),
        ("hardware", "torch is not installed"),
        ("profiles list", "2080super"),
        ("diagnose train.log", "out of memory"),
        ("import arguments.json --dry-run", "Mapped: 1 setting"),
    ],
)
def test_without_torch_all_but_training_works(light: dict[str, str], tmp_path: Path, command: str, said: str) -> None:
    (tmp_path / "train.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    state = {"global_step": 1, "max_steps": 2, "epoch": 0.5, "log_history": [{"loss": 0.75, "step": 1, "epoch": 0.5}]}
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trainer_state.json").write_text(json.dumps(state))
    (tmp_path / "arguments.json").write_text(json.dumps({"output_dir": "x", "learning_rate": 1e-4}))
    done = run(light, tmp_path, command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert said in done.stdout and "Traceback" not in done.stderr
    if command.startswith("plan --profile 2080super"):
        plan = json.loads(done.stdout)
        assert not [one for one in plan["findings"] if "torch" in one["message"]]


@each(
    "command",
    ["--profile cpu-demo --yes", "bench --profile cpu-demo", "hardware --measure", "data show sample-proteins"],
)
def test_what_needs_torch_says_the_line_that_installs_it(light: dict[str, str], tmp_path: Path, command: str) -> None:
    done = run(light, tmp_path, command)
    assert done.returncode == 3 and not done.stdout, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert re.search(r"not installed \(torch\b.*\)\. Install: .*'trainwiz\[train\]'", line)
    assert not list(tmp_path.iterdir())


@pytest.mark.real
def test_the_wheel_runs_the_demo(installed: Path, tmp_path: Path) -> None:
    command = "--profile cpu-demo --yes --max-steps 6 --output-dir run --plain"
    done = run({"PYTHONPATH": str(installed)}, tmp_path, command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "run" / "final_model" / "model.safetensors").is_file()
