"""Completion: what each shell offers, through its own script; quick, since a person waits behind the tab key."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from trainwiz.core.profile.store import profile_files
from trainwiz.tui.commands.completion import SCRIPTS, candidates
from trainwiz.tui.subcommands import below

from tests.each import each


@each(
    ("words", "has"),
    [
        (["pl"], {"plan"}),
        ([""], set(below(""))),
        (["plan", "--pro"], {"--profile", "--prompts"}),
        (["plan", "--profile", "qlora"], {name for name in profile_files() if name.startswith("qlora")}),
        (["profiles", "diff", "cpu-demo", "cpu"], {"cpu-demo"}),
        (["plan", "--gpu", "rtx 309"], {"RTX 3090", "RTX 3090 Ti"}),
        (["plan", "--precision", "fp"], {"fp16", "fp32"}),
        (["plan", "--set", "training.see"], {"training.seed="}),
        (["plan", "--no-check"], {"--no-checkpointing"}),
        (["runs", "show", "--json", "2026"], {"2026-11-22_1946-cpu-demo"}),
        (["schema", "runs"], {"runs-list", "runs-show"}),
        (["plan", "--dataset", "./da"], set()),
    ],
)
def test_what_is_offered(words: list[str], has: set[str], here: Path) -> None:
    run = here / "runs" / "2026-11-22_1946-cpu-demo"
    run.mkdir(parents=True, exist_ok=True)
    (run / "run.yaml").touch()
    assert {value for value, _ in candidates(words)} == has


def test_a_shell_that_asks_loads_little() -> None:
    program = (
        "import sys\nfrom trainwiz.tui.cli import main\nmain(['plan', '--profile', 'qlora-4'])\n"
        "print(*sorted({'torch', 'numpy', 'pydantic', 'textual'} & sys.modules.keys()))"
    )
    environment = {**os.environ, "_TRAINWIZ_COMPLETE": "bash"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["qlora-4b-8g"], "a candidate, and nothing heavy"


IN_SHELL = {
    "bash": "COMP_WORDS=(trainwiz plan --gpu 'RTX\\ 309'); COMP_CWORD=3; _trainwiz trainwiz; printf '%s\\n' \"${COMPREPLY[@]}\"",
    "zsh": "compdef() {}; words=(trainwiz plan --gpu 'RTX\\ 309'); CURRENT=4; _describe() { print -l $found }; _trainwiz",
    "fish": 'complete -C "trainwiz plan --gpu \'RTX 309"',
}


@each("shell", SCRIPTS)
def test_its_script_in_the_shell_itself(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    command = tmp_path / "trainwiz"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m trainwiz.tui "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    script = subprocess.check_output([command, "completion", shell], env=environment, text=True)
    before = "compdef() {}\n" if shell == "zsh" else ""
    flags = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [shell, *flags, "-c", f"{before}{script}\n{IN_SHELL[shell]}"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    escaped = [r"RTX\ 3090", r"RTX\ 3090\ Ti"] if shell == "bash" else ["RTX 3090", "RTX 3090 Ti"]
    assert done.stdout.splitlines() == escaped, done.stderr
