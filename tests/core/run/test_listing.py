"""Names of runs, finding and listing them, and the list of runs wherever they lie."""

import json
import time
from pathlib import Path

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.run.folder import RunFolder, check_name, check_text, name_for_commands, new_run_folder
from trainwiz.core.run.listing import (
    find_run,
    last_metrics,
    list_runs,
    list_runs_elsewhere,
    record_run,
    recorded_runs,
    registry_path,
)
from trainwiz.core.run.state import RunState, write_state

from tests.each import each

NOON = time.mktime((2026, 11, 21, 12, 34, 0, 0, 0, -1))


def make_run(root: Path, name: str, created_s: float = 0.0) -> RunFolder:
    run = RunFolder(root / name)
    run.path.mkdir(parents=True)
    run.run_yaml.write_text("name: x\n")
    write_state(run, RunState(status="prepared", name=name, created_s=created_s, model="esm2-tiny"))
    return run


@each("name", ["../up", "..", ".hidden", "-rf", "", "x\x1b[31m", "a\0b", "/etc"])
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

    # A long name of wide letters is still a file name.
    check_name("蛋" * 80)
    path = new_run_folder(tmp_path, "蛋" * 80, NOON)
    path.mkdir()
    assert path.name.startswith("2026-11-21_1234-蛋")
    check_text(Path("/tmp/蛋白质"))
    named = {"runs/a-b": "a-b", "/tmp/my run": "'/tmp/my run'"}
    assert {path: name_for_commands(Path(path)) for path in named} == named
    with pytest.raises(UsageError, match="not valid UTF-8"):
        check_text(Path("runs/bad\udcff"))


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
    here = tmp_path
    for name, root, whole, said in (
        ("demo", here, False, "matches 2 runs"),
        ("2026-11-22_1100-protien", here, False, "Did you mean 2026-11-22_1100-protein"),
        (str(here), here, False, r"contains no run\.yaml"),
        ("x", here / "nowhere", False, "Run 'x' not found. `trainwiz runs list`"),
        ("protein", here, True, "Did you mean 2026-11-22_1100-protein"),
        ("", here, False, "Run '' not found"),
    ):
        with pytest.raises(UsageError, match=said):
            find_run(name, root, whole=whole)


def test_a_run_elsewhere_is_found_by_its_name(tmp_path: Path) -> None:
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
    with pytest.raises(UsageError, match=f"matches 2 runs: {again.path}, {far.path}"):
        find_run("2026-protein", root)


@each("text", ["\0", "a\0b", "x" * 5000, "\udcff", "\n\x1b[31m", "*", "~", "./", "//", "runs/../.."])
def test_a_name_that_is_none_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    run = make_run(tmp_path / "runs", "demo")
    monkeypatch.chdir(run.path)
    assert find_run(".").path == run.path
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as refused:
        find_run(text)
    assert len(refused.value.findings) == 1
    assert refused.value.exit_code == 2
    assert len(refused.value.findings[0].message) < 400


# The list of runs wherever they lie.


def test_the_run_that_was_started_last_comes_first_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make_run(tmp_path, "a"), make_run(tmp_path, "a name that is no text \udcff")
    path = registry_path()
    path.parent.mkdir(parents=True)
    # Broken lines are left out, and half a one of a killed writer takes no other along.
    path.write_bytes(
        b'{"path": 3}\nnot json\n[]\n{"path": "relative"}\n{"path": "/\\u0000"}\n\xff\xfe\n{"path": "/half'
    )
    for run in (first, second, first):
        record_run(run)
    assert recorded_runs() == [first, second]
    first.run_yaml.unlink()
    assert recorded_runs() == [second], "what is gone is left out"
    # A relative folder is found from anywhere.
    make_run(tmp_path / "runs", "x")
    monkeypatch.chdir(tmp_path)
    record_run(RunFolder(Path("runs/x")))
    monkeypatch.chdir("/")
    assert recorded_runs() == [RunFolder(tmp_path / "runs" / "x"), second]


def test_a_folder_that_cannot_be_written_hinders_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    record_run(make_run(tmp_path, "a"))
    assert recorded_runs() == []
