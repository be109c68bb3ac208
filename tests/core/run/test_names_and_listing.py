from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.run.folder import RunFolder, check_name, check_text, name_for_commands, new_run_folder
from trainwiz.core.run.listing import find_run, last_metrics, list_runs, list_runs_elsewhere, record_run
from trainwiz.core.run.state import RunState, write_state

from tests.each import each

NOON = time.mktime((2026, 11, 21, 12, 34, 0, 0, 0, -1))


def make_run(root: Path, name: str, created_s: float = 0.0) -> RunFolder:
    run = RunFolder(root / name)
    run.path.mkdir(parents=True)
    run.run_yaml.write_text("name: x\n")
    write_state(run, RunState(status="prepared", name=name, created_s=created_s, model="esm2-tiny"))
    return run


@each("name", ["../up", "a/b", "..", ".hidden", "-rf", "", "a b", "x\x1b[31m", "a\0b", "/etc"])
def test_a_name_cannot_leave_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        new_run_folder(tmp_path, name)


def test_names_are_stamped_and_never_taken_twice(tmp_path: Path) -> None:
    first = new_run_folder(tmp_path, "demo", NOON)
    assert first.name == "2026-11-21_1234-demo"
    assert not first.exists()
    first.mkdir()
    second = new_run_folder(tmp_path, "demo", NOON)
    assert second.name == "2026-11-21_1234-demo-2"
    second.symlink_to(tmp_path / "nowhere")
    assert new_run_folder(tmp_path, "demo", NOON).name == "2026-11-21_1234-demo-3"


def test_a_path_that_is_no_text_holds_no_run() -> None:
    check_text(Path("/tmp/蛋白质"))
    with pytest.raises(UsageError, match="not UTF-8"):
        check_text(Path("runs/bad\udcff"))


def test_a_long_name_of_wide_letters_is_still_a_file_name(tmp_path: Path) -> None:
    check_name("蛋" * 80)
    path = new_run_folder(tmp_path, "蛋" * 80, NOON)
    path.mkdir()
    assert path.name.startswith("2026-11-21_1234-蛋")


def test_the_name_for_commands_is_quoted() -> None:
    assert name_for_commands(Path("runs/a-b")) == "a-b"
    assert name_for_commands(Path("/tmp/my run")) == "'/tmp/my run'"
    assert name_for_commands(Path("runs/-a")) == "runs/-a"
    assert name_for_commands(Path("-a")) == "./-a"


def test_runs_are_listed_newest_first_and_others_left_alone(tmp_path: Path) -> None:
    make_run(tmp_path, "old", 1.0)
    make_run(tmp_path, "new", 2.0)
    (tmp_path / "not-a-run").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    make_run(tmp_path, ".old.removing", 3.0)
    assert [run.name for run in list_runs(tmp_path)] == ["new", "old"]
    assert list_runs(tmp_path / "nowhere") == []


def test_the_last_metrics_come_from_the_end_of_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"step": step, "loss": 1.0 + step}) for step in range(5000)]
    lines += ['{"step": 5000, "loss": NaN}', json.dumps({"step": 5001, "eval_loss": 2.0}), "{half", "[]", "\xff"]
    path.write_text("\n".join(lines), encoding="latin-1")
    assert last_metrics(path) == {"step": 5001, "loss": 5000.0}
    assert last_metrics(tmp_path / "nothing") == {}


def test_finding_a_run(tmp_path: Path) -> None:
    make_run(tmp_path, "2026-11-21_1000-demo")
    make_run(tmp_path, "2026-11-21_1100-demo")
    make_run(tmp_path, "2026-11-22_1100-protein")
    assert find_run("2026-11-21_1000-demo", tmp_path).path.name == "2026-11-21_1000-demo"
    assert find_run("2026-11-22", tmp_path).path.name == "2026-11-22_1100-protein"
    assert find_run("protein", tmp_path).path.name == "2026-11-22_1100-protein"
    path = tmp_path / "2026-11-22_1100-protein"
    assert find_run(str(path), tmp_path / "elsewhere").path == path
    with pytest.raises(UsageError, match="fits 2 runs"):
        find_run("demo", tmp_path)
    with pytest.raises(UsageError, match="Did you mean 2026-11-22_1100-protein"):
        find_run("2026-11-22_1100-protien", tmp_path)
    with pytest.raises(UsageError, match=r"holds no run\.yaml"):
        find_run(str(tmp_path), tmp_path)
    with pytest.raises(UsageError, match="no runs in"):
        find_run("x", tmp_path / "nowhere")
    with pytest.raises(UsageError, match="Did you mean 2026-11-22_1100-protein"):
        find_run("protein", tmp_path, whole=True)
    with pytest.raises(UsageError, match="no run ''"):
        find_run("", tmp_path)


def test_a_run_elsewhere_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "runs"
    make_run(root, "2026-demo")
    far = make_run(tmp_path / "far", "2026-protein")
    named_alike = make_run(tmp_path / "far", "demo")
    for run in (far, named_alike):
        record_run(run)
    assert find_run("protein", root).path == far.path
    assert find_run("2026-protein", root, whole=True).path == far.path
    assert [run.name for run in list_runs_elsewhere(root)] == ["demo", "2026-protein"]
    # What it is called comes before a part of another name.
    assert find_run("demo", root).path == named_alike.path
    assert find_run("2026-d", root).path == root / "2026-demo"
    with pytest.raises(UsageError, match="Did you mean 2026-protein"):
        find_run("protein", root, whole=True)
    again = make_run(tmp_path / "farther", "2026-protein")
    record_run(again)
    with pytest.raises(UsageError, match=f"fits 2 runs: {again.path}, {far.path}"):
        find_run("2026-protein", root)


def test_a_run_is_found_from_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path, "one")
    (run.path / "logs").mkdir()
    monkeypatch.chdir(run.path)
    assert find_run(".").path == run.path
    monkeypatch.chdir(run.path / "logs")
    assert find_run("..").path == run.path


@each("text", ["\0", "a\0b", "x" * 5000, "\udcff", "\n\x1b[31m", "*", "~", "./", "//", "runs/../.."])
def test_a_name_that_is_none_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs", "demo")
    with pytest.raises(UsageError) as refused:
        find_run(text)
    assert len(refused.value.findings) == 1
    assert refused.value.exit_code == 2
    assert len(refused.value.findings[0].message) < 400


@pytest.mark.all
def test_a_list_of_500_runs_is_quick(tmp_path: Path) -> None:
    for number in range(500):
        run = make_run(tmp_path, f"run-{number}", float(number))
        lines = "".join(json.dumps({"step": step, "loss": 2.5, "tokens": step * 1000}) + "\n" for step in range(50))
        run.metrics_jsonl.write_text(lines * 10)
    began = time.process_time()
    assert len(list_runs(tmp_path)) == 500
    assert time.process_time() - began < 1.0
