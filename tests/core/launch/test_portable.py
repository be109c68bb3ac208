"""What a run folder needs from outside, and a folder that was carried to another machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml
from trainwiz.core.config import RunConfig
from trainwiz.core.launch.prepare import needed, prepare_run, relative_to_folder, travel_notes
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import read_state

from tests.core.launch.plans import small_plan


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
    assert needed(named, folder) == travel_notes(named, folder) == ()
    # The architecture of a config.json stands in run.yaml.
    Path("weights/config.json").write_text("{}")
    config = relative_to_folder(small_plan(model__name="weights/config.json").config, project / folder)
    assert needed(config, project / folder) == ()


def test_what_the_folder_does_not_hold_is_named(project: Path) -> None:
    plan = small_plan(
        data__sources=[{"name": "data/p.fasta"}, {"name": "owner/set"}],
        model__name="weights",
        model__init="pretrained",
        model__tokenizer="owner/words",
    )
    run = prepare_run(plan, Path("runs/one"))
    config = RunConfig.model_validate(yaml.safe_load(run.run_yaml.read_text()))
    found = [(one.key, one.name, one.kind) for one in needed(config, run.path)]
    assert found == [
        ("data.sources.0.name", "../../data/p.fasta", "path"),
        ("data.sources.1.name", "owner/set", "hub"),
        ("model.name", "../../weights", "path"),
        ("model.tokenizer", "owner/words", "hub"),
    ]
    paths, hub = travel_notes(config, run.path)
    assert "../../data/p.fasta (data.sources.0.name), ../../weights (model.name)" in paths
    assert "owner/set (data.sources.1.name)" in hub
    script = run.file("launch.sh").read_text()
    assert (
        "../../data/p.fasta is not on this machine (data.sources.0.name in run.yaml)" in script
        and "owner/set" not in script
    )
    moved = project.parent / "elsewhere"
    shutil.copytree(run.path, moved)
    refused = subprocess.run([str(moved / "launch.sh")], cwd="/", capture_output=True, text=True)
    assert refused.returncode == 2
    assert "../../data/p.fasta is not on this machine (data.sources.0.name in run.yaml)" in refused.stderr
    assert read_state(RunFolder(moved)).status == "prepared"


def test_a_deepspeed_file_travels_with_the_folder(project: Path) -> None:
    auto = ", ".join(f'"{key}":  "auto"' for key in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps"))
    (project / "mine.json").write_text(f'{{"zero_optimization":  {{"stage": 1}}, {auto}}}')
    plan = small_plan(engine__strategy="zero1", engine__deepspeed_file="mine.json")
    run = prepare_run(plan, Path("runs/one"))
    assert run.file("deepspeed.json").read_bytes() == (project / "mine.json").read_bytes()
    assert yaml.safe_load(run.run_yaml.read_text())["engine"]["deepspeed_file"] == "deepspeed.json"
    assert "mine.json" not in run.file("launch.sh").read_text()


def other_environment(place: Path) -> Path:
    """A virtual environment somewhere else, that has the packages of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, timeout=600)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    packages.mkdir(parents=True, exist_ok=True)
    mine = sysconfig.get_path("purelib")
    # addsitedir, so that an editable install (a .pth file there) is found too.
    (packages / "all.pth").write_text(f"import site; site.addsitedir({mine!r})\n")
    script = place / "bin" / "accelerate"
    script.write_text(f"#!{place}/bin/python\nfrom accelerate.commands.accelerate_cli import main\nmain()\n")
    script.chmod(0o755)
    return place / "bin"


@pytest.mark.real
@pytest.mark.timeout(1200)
def test_a_folder_prepared_here_starts_elsewhere(project: Path) -> None:
    """Another place, another home, another environment, another working folder, started by /bin/sh."""
    run = prepare_run(small_plan(training__max_steps=4, checkpoint__every_steps=2), Path("runs/one"))
    for path in run.path.iterdir():
        text = path.read_text()
        assert str(project) not in text and sys.prefix not in text and str(Path.home()) not in text, path.name
    host = project.parent / "host"
    moved = host / "a place" / "copied"
    shutil.copytree(run.path, moved)
    shutil.rmtree(project)
    os.chdir(host)
    binaries = other_environment(host / "venv")
    started = subprocess.run(
        ["/bin/sh", "copied/launch.sh"],
        cwd=host / "a place",
        env={
            "PATH": f"{binaries}:/usr/bin:/bin",
            "HOME": str(host),
            "CDPATH": "/",
            "HF_HUB_OFFLINE": "1",
            "TMPDIR": os.environ["TMPDIR"],
        },
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert started.returncode == 0, started.stdout[-2000:] + started.stderr[-3000:]
    state = read_state(RunFolder(moved))
    assert state.status == "finished" and state.engine["actual"] == state.engine["planned"] == "single"
    assert (moved / "final_model" / "model.safetensors").is_file()
