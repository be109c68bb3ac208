"""`trainwiz export` and `trainwiz runs join`: what is printed, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.launch.prepare import prepare_run
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import read_state, write_state
from trainwiz.tui.commands.exchange import run_export
from trainwiz.tui.commands.runs import run_join

from tests.core.launch.plans import small_plan
from tests.each import each


@pytest.fixture
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    for name in ("SLURM_NODEID", "TRAINWIZ_MAIN_NODE"):
        monkeypatch.delenv(name, raising=False)
    return prepare_run(small_plan(engine__nodes=2, engine__strategy="ddp"), here / "run")


def test_the_script_names_every_machine_or_says_what_to_put_in(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    run_export("run", script=True, slurm=False, main="10.0.0.1")
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert lines == [f"{folder.path}/launch.sh --node {node} --main 10.0.0.1:29500" for node in (0, 1)]
    run_export("run", script=True, slurm=False)
    out = capsys.readouterr().out
    assert "of the first node, or" in out and "--main NODE0:29500" in out


def test_the_sbatch_file_is_written_and_never_over_another(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    run_export("run", script=False, slurm=True, account="bio", output="job.sbatch")
    text = Path("job.sbatch").read_text()
    assert text.startswith("#!/bin/bash\n") and "#SBATCH --account=bio\n" in text and "#SBATCH --nodes=2\n" in text
    assert "Wrote job.sbatch" in capsys.readouterr().out
    with pytest.raises(UsageError, match="is not overwritten"):
        run_export("run", script=False, slurm=True, output="job.sbatch")
    assert Path("job.sbatch").read_text() == text


@each(("options", "said"), [
    ({}, "Choose what to export: --script"), ({"script": True, "slurm": True}, "Choose what to export: --script"),
    ({"script": True, "account": "bio"}, "--account only works with --slurm"),
    ({"slurm": True, "main": "a"}, "--main only works with --script"),
    ({"script": True, "main": "a b"}, "is not an address of node"), ({"slurm": True, "time": "soon"}, "is not a time"),
    ({"slurm": True, "output": "no/such/folder/job"}, "cannot be written"),
    ({"node": None, "main": None}, "Specify which node of"), ({"node": 1, "main": None}, "Set the address of node 0"),
    ({"node": 2, "main": "a"}, "numbered 0 to 1"), ({"node": -1, "main": "a"}, "numbered 0 to 1"),
])  # fmt: skip
def test_what_is_asked_wrongly(folder: RunFolder, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        if "node" in options:
            run_join("run", **options)
        else:
            run_export("run", **{"script": False, "slurm": False, **options})


def test_a_run_that_has_finished_is_left(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    state = read_state(folder)
    state.status = "finished"
    write_state(folder, state)
    for node in (0, 1):
        assert run_join("run", node=node, main="127.0.0.1") == 0
        assert "has finished" in capsys.readouterr().out
