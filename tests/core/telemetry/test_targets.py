"""What a word after `trainwiz monitor` means and what a path is to a monitor; or why it is nothing: one sentence."""

import os
import sys
from pathlib import Path

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.run.listing import record_run
from trainwiz.core.telemetry.discovery import find_target, list_targets, recognise
from trainwiz.core.telemetry.job import trainings_below
from trainwiz.core.telemetry.processes import ProcessTable
from trainwiz.core.telemetry.target import Target

from tests.core.run.test_listing import make_run
from tests.core.telemetry.event_writers import add_arguments, write_points
from tests.core.telemetry.foreign_jobs import python, started, wait_for, write_scripts
from tests.core.telemetry.test_trainer import checkpoint, state
from tests.each import each
from tests.fakes.nvml import GIB, FakeGpu, FakeNvml, fixtures

fake_nvml = fixtures.fake_nvml
fake_nvml_library = fixtures.fake_nvml_library
driver = fixtures.driver
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of the test's own, on a machine without GPUs."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        find_target(text)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_run_by_name_by_part_of_it_by_path_and_by_a_file_of_it(here: Path, tmp_path: Path) -> None:
    run = make_run(here / "runs", "2026-11-22_0240-protein")
    for text in ("2026-11-22_0240-protein", "2026-11-22", "protein", "runs/2026-11-22_0240-protein"):
        target = find_target(text)
        assert (target.kind, target.name) == ("run", "2026-11-22_0240-protein")
    # "2" begins the names of many runs; kthreadd, or nothing, has that number.
    make_run(here / "runs", "2026-11-23_0240-other")
    assert "rocess 2 " in refusal("2")
    run.train_log.write_text("x\n")
    assert find_target(f"runs/{run.path.name}/train.log").path == Path("runs", run.path.name)
    record_run(make_run(tmp_path / "elsewhere", "mine"))
    assert find_target("mine").path == tmp_path / "elsewhere" / "mine"
    assert find_target(str(tmp_path / "elsewhere" / "mine")).kind == "run"


def test_names_and_numbers_that_fit_nothing_or_several(here: Path) -> None:
    make_run(here / "runs", "protein-large")
    make_run(here / "runs", "protein-small")
    (here / "notes").mkdir()
    for text, words in {
        "protein": "matches 2 runs: runs/protein-small, runs/protein-large", "protien-large": "Did you mean protein-large",
        "noets": "Did you mean notes?", "./other/x": "There is no run, file or process './other/x'",
        "": "There is no run, file or process ''", "x" * 5000: "There is no run, file or process",
        "[bold]x": "There is no run, file or process", "0": "Process 0 does not exist, is not visible",
        "99999999999999999999": "Process 99999999999999999999 does not exist",
    }.items():  # fmt: skip
        assert words in refusal(text), text


@on_linux
def test_processes(here: Path) -> None:
    scripts = write_scripts(here)
    command = f"{sys.executable} train.py a & {sys.executable} train.py b & wait"
    with started(["bash", "-c", command], scripts) as shell:
        wait_for(lambda: len(trainings_below(shell.pid, ProcessTable())) == 2)
        assert "2 jobs are running" in refusal(str(shell.pid))
        assert "(train.py)" in refusal(str(shell.pid))
    with started(python("train.py"), scripts) as process:
        target = find_target(str(process.pid))
        assert (target.kind, target.pid, target.path) == ("process", process.pid, here)
        assert target.name == f"train.py · process {process.pid}"
    assert f"Process {process.pid} does not exist" in refusal(str(process.pid))


@on_linux
def test_a_process_of_a_run_means_the_run(tmp_path: Path, here: Path) -> None:
    """By the command line of its keeper."""
    run, below = (
        make_run(tmp_path / "runs", "mine"),
        "import subprocess, sys; subprocess.run([sys.executable, 'train.py'])",
    )
    with started(python("-c", below, "trainwiz.core.supervise", "../runs/mine"), write_scripts(here)) as process:
        table = ProcessTable
        wait_for(lambda: any("train.py" in table().command(pid) for pid in table().tree(process.pid)))
        assert find_target(str(process.pid)).path == run.path


def test_what_trains_on_a_gpu(driver: FakeNvml, here: Path) -> None:
    driver.write(init_error=9)
    assert "There is no GPU here to monitor: the NVIDIA driver is installed but not loaded." in refusal("gpu")
    scripts, me = write_scripts(here), os.getpid()
    with started(python("train.py"), scripts, WORKERS="1") as one, started(python("train.py"), scripts) as two:
        cards = [
            FakeGpu(processes={one.pid: 4 * GIB}), FakeGpu(processes={two.pid: 2 * GIB}, graphics={me: 1}),
            FakeGpu(graphics={me: 1}), FakeGpu(processes={999999999: GIB}),
        ]  # fmt: skip
        driver.write(cards)
        assert [find_target(text).pid for text in ("gpu:0", "GPU:1")] == [one.pid, two.pid]
        assert "On the GPUs 2 jobs are running" in refusal("gpu")
        assert "Nothing that is visible from here computes on GPU 2" in refusal("gpu:2")
        assert "Nothing that is visible from here computes on GPU 3" in refusal("gpu:3")
        assert "There is no GPU '7' to monitor: gpu:0" in refusal("gpu:7")
        assert "There is no GPU '-1'" in refusal("gpu:-1")
        # A job on a card is listed whatever it is called.
        listed = {found.target.pid: found.gpus for found in list_targets()}
        assert (listed[one.pid], listed[two.pid]) == ((0,), (1,))
        driver.write(cards[:1])
        assert find_target("gpu").pid == one.pid


def meant(path: Path) -> Target:
    found = recognise(path)
    assert isinstance(found, Target), found
    return found


def refusal_of(path: Path) -> str:
    found = recognise(path)
    assert isinstance(found, str) and "\n" not in found and str(path) in found, found
    return found


def test_outputs_of_a_trainer_and_the_only_output_below(tmp_path: Path) -> None:
    out = tmp_path / "work" / "out"
    inner = checkpoint(out, 20)
    (tmp_path / "work" / "data").mkdir()
    assert [meant(path).kind for path in (out, inner.parent, inner)] == ["trainer"] * 3
    assert meant(inner.parent).name == "out/checkpoint-20"
    for path in (tmp_path, tmp_path / "work"):
        assert (meant(path).kind, meant(path).path) == ("trainer", out)
    for name in "abcdef":
        checkpoint(tmp_path / "several" / name, 20)
    sentence = refusal_of(tmp_path / "several")
    assert "the outputs of 6 trainings" in sentence and "a, b, c, d and 2 more" in sentence


def test_logs_tables_and_a_folder_of_events_which_is_a_trainers_by_its_arguments(tmp_path: Path) -> None:
    events, log = tmp_path / "events", tmp_path / "log"
    file = write_points(events / "runs" / "now", {"train/loss": [(1, 2.0), (2, 1.0)]})
    assert meant(events).kind == "tensorboard"
    add_arguments(file, {"max_steps": 100})
    assert meant(events).kind == "trainer"
    assert meant(events / "runs").kind == meant(file).kind == "tensorboard"
    log.mkdir()
    (log / "nohup.out").write_text("starting\n{'loss': 2.1, 'epoch': 0.1}\n")
    assert meant(log).kind == meant(log / "nohup.out").kind == "trainer"


@each(("name", "content", "words"), [
    ("events.out.tfevents.1.h.1.0", b"not at all" * 9, "not a TensorBoard event file"),
    ("trainer_state.json", state(10).encode()[:-9], "is not complete JSON"),
    ("trainer_state.json", b'{"global_step": 3, "log_history": "none"}', "is not a Trainer state"),
    ("config.json", b"{}", "is not a Trainer state"), ("empty.log", b"", "cannot be monitored"),
    ("notes.txt", b"hello", "cannot be monitored: it is not an event file"),
    ("picture.png", bytes(range(256)) * 9, "cannot be monitored: it is not an event file"),
])  # fmt: skip
def test_files_that_are_nothing_and_their_folders_say_how(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    assert words in refusal_of(file)
    of_folder = recognise(tmp_path)
    assert isinstance(of_folder, str)
    broken = "tfevents" in name or name == "trainer_state.json"
    assert (words if broken else "contains nothing to monitor") in of_folder


def test_places_that_are_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    neither = "is neither a readable file nor a readable folder"
    for name, words in {"pipe": neither, "link": neither, "empty": "is empty", "nowhere": neither}.items():
        assert words in refusal_of(tmp_path / name)
