"""`trainwiz import` as a user types it: reports, profiles that plan, refusals."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from trainwiz.core.importing.gather import import_together, text_of
from trainwiz.core.profile.store import load_profile, user_folder
from trainwiz.tui.cli import main

from tests.each import each

ACCELERATE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nfp16: true\nmachine_rank: 0\nnum_processes: 2\n"
    "surprise: 1\n"
)


@pytest.fixture(autouse=True)
def _here(here: Path) -> None:
    Path("a.yaml").write_text(ACCELERATE)


def imported(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["import", *arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_report_on_the_screen_and_the_stable_keys_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "a.yaml"]) == 0
    out = capsys.readouterr().out
    for piece in ("Mapped: 3", "→ engine.precision", "Dropped: 2", "Unknown: 1", "surprise"):
        assert piece in out
    assert "trainwiz plan --profile a\n" in out
    document = imported(capsys, "a.yaml", "--dry-run")
    assert {"kind", "mapped", "renamed", "dropped", "unknown", "findings"} <= set(document)
    assert document["kind"] == "accelerate" and document["profile"] is None
    assert document["unknown"] == [{"name": "surprise", "value": 1, "line": 6, "file": "a.yaml"}]


def test_the_profile_plans_and_nothing_is_overwritten_without_being_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert imported(capsys, "a.yaml", "--dry-run")["profile"] is None and not user_folder().exists()
    assert imported(capsys, "a.yaml")["profile"]["name"] == "a"
    assert load_profile("a").description == "imported from a.yaml"
    assert main(["plan", "--profile", "a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["batch"]["world_size"] == 2
    assert imported(capsys, "a.yaml")["profile"]["name"] == "a-2"
    assert main(["import", "a.yaml", "--name", "a"]) == 2
    assert "choose another name" in capsys.readouterr().err
    assert main(["import", "a.yaml", "--name", "2080super", "--replace"]) == 2
    assert "choose another name, for example my-2080super" in capsys.readouterr().err
    Path("a.yaml").write_text(ACCELERATE.replace("num_processes: 2", "num_processes: 4"))
    assert imported(capsys, "a.yaml", "--name", "a", "--replace")["profile"]["name"] == "a"
    assert load_profile("a").values["engine.processes"] == 4


COMMAND = "accelerate launch --num_processes 2 --mixed_precision bf16 train.py"


@each("arguments", [[COMMAND], COMMAND.split()])
def test_a_command_in_quotes_or_as_it_is(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """None of its options are taken for those of trainwiz."""
    assert main(["import", "--dry-run", "--json", *arguments]) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["kind"] == "launch_command" and read["values"]["engine.precision"] == "bf16"


def test_from_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(ACCELERATE.encode())))
    assert imported(capsys, "-")["kind"] == "accelerate"
    with Path("/dev/zero").open(encoding="utf-8") as endless:
        monkeypatch.setattr(sys, "stdin", endless)
        assert main(["import", "-"]) == 2
    assert "larger than 1 MiB" in capsys.readouterr().err


@each("given", [[], ["no.yaml"], ["."], ["a.yaml", "no.yaml"]])
def test_refusals_are_sentences_and_write_nothing(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", *given]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.strip().splitlines()) == 1 and not user_folder().exists()


def test_old_names_several_files_and_hostile_names(capsys: pytest.CaptureFixture[str]) -> None:
    Path("args.json").write_text('{"evaluation_strategy": "epoch", "save_steps": 5}')
    assert imported(capsys, "args.json")["renamed"] == [
        {"old": "evaluation_strategy", "new": "eval_strategy", "line": 1, "file": "args.json"}
    ]
    assert main(["import", "args.json"]) == 0 and "Renamed: 1 old name" in capsys.readouterr().out
    Path("ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    assert [file["kind"] for file in imported(capsys, "ds.json", "a.yaml")["files"]] == ["deepspeed", "accelerate"]
    Path("a.yaml").write_text('distributed_type: "NO"\n"\\e[31mred\\a": "\\e]0;title\\a"\n', encoding="utf-8")
    assert main(["import", "a.yaml"]) == 0
    assert "\x1b" not in capsys.readouterr().out


@each("folder", ["accelerate", "deepspeed", "launch_commands.json"])
def test_the_wild_is_imported_and_planned(folder: str, shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All files are read; every twentieth goes through the command and is planned, which takes fifty times as long."""
    path = shared_data / "wild" / folder
    given = [str(file) for file in sorted(path.iterdir())] if path.is_dir() else json.loads(path.read_text())
    merged = [import_together([text_of(one)]) for one in given]
    assert all(one.mapped or one.unknown or one.dropped or one.parts[0].references for one in merged)
    for one in given[::20]:
        name = imported(capsys, one)["profile"]["name"]
        assert main(["plan", "--profile", name, "--json"]) == 0
        capsys.readouterr()
