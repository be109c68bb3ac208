"""The wheel, installed outside the checkout: without torch all but training works, and with it the embedded demo trains."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def files_of_git(*words: str) -> set[str]:
    done = subprocess.run(["git", "ls-files", "-z", *words], cwd=REPOSITORY, capture_output=True, check=True)
    return {name for name in done.stdout.decode().split("\0") if (REPOSITORY / name).is_file()}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content alone; the other packages are this interpreter's."""
    # Imported, it would take the place of distutils in this process.
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("building the wheel offline needs setuptools in this environment")
    wheels = tmp_path_factory.mktemp("wheels")
    source = tmp_path_factory.mktemp("source") / "trainwiz"
    # A copy, so that build leftovers in the checkout can neither help nor hurt.
    for name in files_of_git("--cached", "--others", "--exclude-standard"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((REPOSITORY / name).read_bytes())
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, wheels], cwd=source, check=True, stdout=subprocess.DEVNULL)
    target = tmp_path_factory.mktemp("site")
    (wheel,) = wheels.glob("trainwiz-*.whl")
    zipfile.ZipFile(wheel).extractall(target)
    return target


def python(folder: Path, environment: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", *words], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True
    )


def test_all_data_of_the_checkout_are_in_the_wheel_and_nothing_beside_the_package(installed: Path) -> None:
    packed = {
        path.relative_to(installed / "trainwiz").as_posix()
        for path in (installed / "trainwiz").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert files_of_git("core", "tui", "profiles") - packed == set()
    assert {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")} <= {"trainwiz", "bin"}


LIGHT = """
import contextlib, io, json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import trainwiz
from trainwiz.tui.cli import main
trainwiz.plan
print(trainwiz.__file__)
for line in json.loads(sys.argv[1]):
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(line.split())
    print(json.dumps([code, *(stream.seek(0) or stream.read() for stream in (out, err))]))
"""
"""Commands, one after the other, in an interpreter in which the extras are not installed."""
WORKS = {
    "--help": "trainwiz plan",
    "plan --profile 2080super --json": '"tier": "analytic"',
    "plan --profile cpu-demo --tier layers": "tracing needs torch, which is not installed; see trainwiz doctor",
    "--profile cpu-demo --dry-run": "accelerate.yaml",
    "fit --dataset sample-chat --gpu T4 --num-gpus 1": "LoRA",
    "monitor out --once": "0.75",
    "runs list": "",
    "hardware": "Machine",
    "profiles list": "2080super",
    "diagnose train.log": "out of memory",
    "import arguments.json --dry-run": "Mapped: 1 setting",
    # The language stays for what follows in the same process.
    "--lang zh --help": "用法：trainwiz",
}
NEEDS_TORCH = (
    "--profile cpu-demo --yes", "bench --profile cpu-demo", "hardware --measure", "data show sample-proteins"
)  # fmt: skip


def test_without_torch_all_but_training_works_and_training_says_the_line_that_installs_it(
    installed: Path, tmp_path: Path
) -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    lines = [line for group in ("train", "qlora", "deepspeed") for line in extras[group]]
    names = {re.split(r"[<>=\[]", line, maxsplit=1)[0] for line in lines} - {"trainwiz"} | {"safetensors", "pandas"}
    (tmp_path / "train.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    state = {"global_step": 1, "max_steps": 2, "epoch": 0.5, "log_history": [{"loss": 0.75, "step": 1, "epoch": 0.5}]}
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trainer_state.json").write_text(json.dumps(state))
    (tmp_path / "arguments.json").write_text(json.dumps({"output_dir": "x", "learning_rate": 1e-4}))
    before = sorted(path.name for path in tmp_path.iterdir())
    commands = [*NEEDS_TORCH, *WORKS]
    program = LIGHT.format(names=names)
    done = python(tmp_path, {"PYTHONPATH": str(installed)}, "-c", program, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    place, *documents = done.stdout.splitlines()
    assert Path(place).is_relative_to(installed)
    said = dict(zip(commands, map(json.loads, documents), strict=True))
    for command in NEEDS_TORCH:
        code, out, err = said[command]
        assert (code, out) == (3, ""), (command, out, err)
        assert re.fullmatch(r".*not installed \(torch\b.*\)\. Install: .*'trainwiz\[train\]'.*\n", err), (command, err)
    for command, words in WORKS.items():
        code, out, err = said[command]
        assert code == 0 and words in out and "Traceback" not in err, (command, out, err)
    plan = json.loads(said["plan --profile 2080super --json"][1])
    assert not [one for one in plan["findings"] if "torch" in one["message"]]
    (run,) = {path.name for path in tmp_path.iterdir()} - set(before)
    assert run == "runs"


@pytest.mark.real
def test_the_wheel_runs_the_demo_and_tells_it_as_json_lines(installed: Path, tmp_path: Path) -> None:
    words = "-m trainwiz.tui --profile cpu-demo --yes --max-steps 2 --output-dir run --json"
    done = python(tmp_path, {"PYTHONPATH": str(installed)}, *words.split())
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events][:2] == ["plan", "prepared"]
    assert [event["step"] for event in events if event["event"] == "metrics" and "loss" in event] == [1, 2]
    end = events[-1]
    assert (end["event"], end["status"], end["exit_code"], end["step"]) == ("end", "finished", 0, 2)
    assert end["model"] == "run/final_model" and min(end["seconds"], end["first_loss"], end["last_loss"]) > 0
    assert (tmp_path / "run" / "final_model" / "model.safetensors").is_file()
