"""A run folder may have been made by somebody else: what lies in it is data, never code."""

import os
import pickle
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from trainwiz.core.export.accelerate import launch_environment
from trainwiz.core.export.launch_script import launch_command
from trainwiz.core.launch.start import own_launcher
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import RunState
from trainwiz.core.telemetry.metrics import Metrics
from trainwiz.core.telemetry.run_source import ending_of
from trainwiz.tui.screens.plan_command import Started

from tests.core.training.runs import tiny_config, write_run

MODULES = ("json", "torch", "accelerate", "transformers", "trainwiz", "sitecustomize", "usercustomize", "numpy")


@pytest.mark.real
@pytest.mark.timeout(1200)
@pytest.mark.all
@pytest.mark.parametrize("by_hand", [False, True])
def test_modules_in_the_run_folder_are_not_imported(tmp_path: Path, by_hand: bool) -> None:
    config = tiny_config(training__max_steps=1)
    folder = write_run(tmp_path / "run", config)
    marker = tmp_path / "imported"
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write({name!r})\nraise SystemExit(9)\n")
    environment = {**os.environ, **launch_environment(config)}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    command = launch_command(config) if by_hand else own_launcher(launch_command(config))
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not marker.exists()


class _Attack:
    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (self.marker, "w"))


def test_a_checkpoint_is_read_as_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As DeepSpeed reads its states: with weights_only=False, which the environment of every run overrides."""
    states, marker = tmp_path / "states.pt", tmp_path / "ran"
    torch.save({"optimizer": _Attack(marker)}, states)
    for variable, value in launch_environment(tiny_config()).items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(states, weights_only=False)
    assert not marker.exists()


def test_a_strange_folder_name_is_quoted_in_every_command_that_is_suggested(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a b;$(touch x)'")
    folder.path.mkdir()
    typed = shlex.quote(str(folder.path))
    ending = ending_of(RunState(status="stopped"), folder, 3, 9, Metrics())
    assert ending.command is not None and shlex.split(ending.command)[-1] == str(folder.path)
    assert typed in Started("start", folder=folder).words
