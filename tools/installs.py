"""`python -m tools.installs [PYTHON ...]`: the wheel and the sdist in empty environments: seconds, megabytes, what runs.

Prints the table of docs/install.md. PYTHON: interpreters to try, this one without.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "transformers", "accelerate", "datasets", "peft", "tokenizers", "tensorboard", "nvidia_cudnn_cu13")
COMMANDS = (
    "--help", "plan --profile 2080super", "plan --profile cpu-demo", "fit --dataset sample-chat", "monitor out --once",
    "diagnose train.log", "import arguments.json --dry-run", "runs list", "hardware", "profiles list",
)  # fmt: skip
MIB = 1024**2


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.installs", description=__doc__)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", default=[sys.executable])
    work = Path(tempfile.mkdtemp(prefix="trainwiz-installs-"))
    try:
        archives = build(work)
        for archive in archives:
            print(f"{archive.name}: {archive.stat().st_size / MIB:.1f} MiB")
        print(
            "\n| Python | from | install s | MiB | first start s | --help s | plan s | commands that failed | too much |"
        )
        print("|---|---|--:|--:|--:|--:|--:|---|---|")
        rows = [tried(python, archive, work) for python in parser.parse_args().pythons for archive in archives]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0 if all(rows) else 1


def build(work: Path) -> list[Path]:
    """The sdist, and the wheel that is built from it: so the sdist holds what a build needs."""
    python = new_environment(sys.executable, work / "builder")
    call(python, "-m", "pip", "-q", "install", "build")
    source = work / "source"
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (REPOSITORY / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, source / name)
    call(python, "-m", "build", "--outdir", work / "dist", source)
    return sorted((work / "dist").iterdir(), reverse=True)


def tried(python: str, archive: Path, work: Path) -> bool:
    folder = Path(tempfile.mkdtemp(dir=work))
    inside = new_environment(python, folder / "venv")
    before, began = size_of(folder / "venv"), time.monotonic()
    call(inside, "-m", "pip", "-q", "install", archive)
    installed_s = time.monotonic() - began
    taken = (size_of(folder / "venv") - before) / MIB
    too_much = [name for path in (folder / "venv").glob("lib/python*/site-packages/*") if (name := path.name) in HEAVY]
    (folder / "train.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    (folder / "arguments.json").write_text('{"output_dir": "x", "learning_rate": 0.0001}')
    (folder / "out").mkdir()
    state = {"global_step": 1, "max_steps": 2, "log_history": [{"loss": 0.75, "step": 1}]}
    (folder / "out" / "trainer_state.json").write_text(json.dumps(state))
    first_s, _ = run(folder, "--help")
    found = {command: run(folder, command) for command in COMMANDS}
    failed = [command for command, (_, code) in found.items() if code]
    version = subprocess.run([inside, "-V"], capture_output=True, check=True, text=True).stdout.split()[1]
    figures = (f"{first_s:.1f}", *(f"{found[command][0]:.1f}" for command in COMMANDS[:2]))
    kind = "wheel" if archive.suffix == ".whl" else "sdist"
    cells = (
        version,
        kind,
        f"{installed_s:.0f}",
        f"{taken:.0f}",
        *figures,
        ", ".join(failed) or "none",
        ", ".join(too_much) or "nothing",
    )
    print("|", " | ".join(cells), "|", flush=True)
    shutil.rmtree(folder)
    return not failed and not too_much


def run(folder: Path, command: str) -> tuple[float, int]:
    """Seconds and exit code of a command, in a home of its own."""
    kept = {name: value for name, value in os.environ.items() if not re.match("XDG_|PYTHON|TRAINWIZ|VIRTUAL_ENV", name)}
    began = time.monotonic()
    done = subprocess.run(
        [folder / "venv" / "bin" / "trainwiz", *command.split()],
        cwd=folder, env={**kept, "HOME": str(folder)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    return time.monotonic() - began, done.returncode


def new_environment(python: str, folder: Path) -> str:
    call(python, "-m", "venv", folder)
    return str(folder / "bin" / "python")


def call(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)


def size_of(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    sys.exit(main())
