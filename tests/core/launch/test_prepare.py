"""What a run folder holds and needs from outside, and what is refused before it is written."""

import json
import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import CannotRunError, UsageError
from trainwiz.core.launch import prepare as target
from trainwiz.core.launch.prepare import prepare_run, relative_to_folder, travel_notes
from trainwiz.core.run.lost import LOCK_FILE
from trainwiz.core.run.state import read_state

from tests.core.launch.plans import small_plan


def test_a_prepared_folder_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = small_plan()
    run = prepare_run(plan, tmp_path / "a" / "b")
    names = sorted(path.name for path in run.path.iterdir())
    assert names == [".lock", "accelerate.yaml", "launch.sh", "plan.json", "run.yaml", "state.json"]
    document = yaml.safe_load(run.run_yaml.read_text())
    assert RunConfig.model_validate(document) == plan.config
    assert os.access(run.file("launch.sh"), os.X_OK)
    predicted = json.loads(run.plan_json.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert predicted["time"]["total_s"] is None
    assert predicted["batch"]["micro_batch"] == plan.batch.micro_batch
    state = read_state(run)
    assert (state.status, state.model, state.max_steps) == ("prepared", "esm2-tiny", 10)
    assert (state.engine["planned"], state.engine["actual"]) == ("single", None)
    # Without a folder it goes below runs, never twice to one.
    monkeypatch.chdir(tmp_path)
    first, second = prepare_run(small_plan(name="demo")), prepare_run(small_plan(name="demo"))
    assert first.path.parent == second.path.parent == Path("runs")
    assert first.path != second.path and first.path.name.endswith("-demo")


def test_a_folder_behind_a_link_still_finds_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "big" / "disk").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("runs").symlink_to(tmp_path / "big" / "disk")
    Path("p.fasta").write_text(">a\nMKV\n")
    run = prepare_run(small_plan(data__sources=[{"name": "p.fasta"}]), Path("runs/one"))
    name = yaml.safe_load(run.run_yaml.read_text())["data"]["sources"][0]["name"]
    assert Path(os.path.normpath(run.path.resolve() / name)).read_text() == ">a\nMKV\n"


def test_what_is_there_is_never_touched(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("x")
    with pytest.raises(UsageError, match="not empty, and existing files are never overwritten") as refusal:
        prepare_run(small_plan(), full)
    assert refusal.value.exit_code == 2
    assert [path.name for path in full.iterdir()] == ["thesis.txt"]
    run = prepare_run(small_plan(), tmp_path / "run")
    before = run.run_yaml.read_text()
    with pytest.raises(UsageError, match="already contains a run"):
        prepare_run(small_plan(), run.path)
    assert run.run_yaml.read_text() == before
    for path in (full / "thesis.txt", full / "thesis.txt" / "below"):
        with pytest.raises(UsageError, match="cannot be a folder: Not a directory"):
            prepare_run(small_plan(), path)
    # A failure in the middle leaves nothing.
    (tmp_path / "ds.json").write_text("{")
    with pytest.raises(UsageError):
        prepare_run(small_plan(engine__deepspeed_file=str(tmp_path / "ds.json")), tmp_path / "x" / "one")
    assert not (tmp_path / "x" / "one").exists()
    # An empty folder is taken.
    (tmp_path / "empty").mkdir()
    assert prepare_run(small_plan(), tmp_path / "empty").is_run()


def test_a_folder_that_cannot_even_be_looked_for_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="x… cannot be a folder: File name too long"):
        prepare_run(small_plan(), tmp_path / ("x" * 300))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(CannotRunError, match="is not writable: Too many levels"):
        prepare_run(small_plan(), loop / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


def test_a_start_that_comes_in_between_keeps_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def somebody_is_faster(folder: Path) -> None:
        folder.mkdir()
        (folder / LOCK_FILE).write_text("theirs")

    monkeypatch.setattr(target, "_refuse_what_is_there", somebody_is_faster)
    with pytest.raises(UsageError, match="Another start has just claimed"):
        prepare_run(small_plan(), tmp_path / "one")
    assert [(path.name, path.read_text()) for path in (tmp_path / "one").iterdir()] == [(LOCK_FILE, "theirs")]


def test_a_folder_for_another_machine_needs_data_that_are_named(tmp_path: Path) -> None:
    """Nobody means the sample there; whoever does says so."""
    plan = small_plan()
    elsewhere = replace(plan, machine=replace(plan.machine, hypothetical=True))
    with pytest.raises(UsageError, match="No dataset is specified: sample-proteins is only a stand-in") as refusal:
        prepare_run(elsewhere, tmp_path / "one")
    assert "--dataset" in refusal.value.findings[0].remedies[0].text and not (tmp_path / "one").exists()
    named = elsewhere.config.with_values({"data.sources": [{"name": "sample-proteins"}]}, "you")
    assert prepare_run(replace(elsewhere, config=named), tmp_path / "one").is_run()


def test_a_full_disk_is_a_sentence_and_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "write_atomic", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(CannotRunError, match="is not writable: No space left on device"):
        prepare_run(small_plan(), tmp_path / "runs" / "one")
    assert not (tmp_path / "runs").exists()


# What it needs from outside.


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's project folder with data, weights and a tokenizer."""
    project = tmp_path / "project"
    for folder in ("data", "weights", "words"):
        (project / folder).mkdir(parents=True)
    (project / "data" / "p.fasta").write_text(">a\nMKV\n")
    monkeypatch.chdir(project)
    return project


def moved(source: str, folder: Path) -> str:
    return relative_to_folder(small_plan(data__sources=[{"name": source}]).config, folder).data.sources[0].name


def test_all_local_paths_are_relative_to_the_folder(project: Path) -> None:
    plan = small_plan(
        data__sources=[{"name": "data/p.fasta"}, {"name": str(project / "data" / "p.fasta")}, {"name": "owner/set"}],
        data__validation_sources=[{"name": "data"}],
        model__name="weights",
        model__tokenizer="words",
    )
    folder = Path("runs/deep/one")
    config = relative_to_folder(plan.config, folder)
    up = "../../.."
    assert [source.name for source in config.data.sources] == [f"{up}/data/p.fasta", f"{up}/data/p.fasta", "owner/set"]
    assert config.data.validation_sources[0].name == f"{up}/data"
    assert (config.model.name, config.model.tokenizer) == (f"{up}/weights", f"{up}/words")
    assert plan.config.model.name == "weights"
    # What shares only the root stays absolute, a link to itself is a path, and names are none.
    assert moved("/etc/hosts", Path("/var/runs/one")) == "/etc/hosts"
    Path("loop.jsonl").symlink_to("loop.jsonl")
    assert moved("loop.jsonl", folder) == f"{up}/loop.jsonl"
    named = small_plan(model__tokenizer="train", data__sources=[{"name": "sample-proteins"}]).config
    assert relative_to_folder(named, folder) == named
    assert travel_notes(named, folder) == ()
    # The architecture of a config.json stands in run.yaml.
    Path("weights/config.json").write_text("{}")
    config = relative_to_folder(small_plan(model__name="weights/config.json").config, project / folder)
    assert "config.json" not in "".join(travel_notes(config, project / folder))


def test_what_the_folder_does_not_hold_is_named(project: Path) -> None:
    plan = small_plan(
        data__sources=[{"name": "data/p.fasta"}, {"name": "owner/set"}],
        model__name="weights",
        model__init="pretrained",
        model__tokenizer="owner/words",
    )
    run = prepare_run(plan, Path("runs/one"))
    config = RunConfig.model_validate(yaml.safe_load(run.run_yaml.read_text()))
    paths, hub = travel_notes(config, run.path)
    assert "../../data/p.fasta (data.sources.0.name), ../../weights (model.name)" in paths
    assert "owner/set (data.sources.1.name), owner/words (model.tokenizer)" in hub
