"""What a word after `trainwiz monitor` means, or why it means nothing: one sentence, the nearest names."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.run.folder import RunFolder, write_json_atomic
from trainwiz.core.run.listing import record_run
from trainwiz.core.run.lost import machine_identity, this_process
from trainwiz.core.telemetry.discovery import default_target, find_target, list_targets
from trainwiz.core.telemetry.processes import ProcessTable

from tests.core.telemetry.foreign_jobs import python, started, wait_for, write_scripts
from tests.fakes.nvml import GIB, FakeGpu, FakeNvml, fixtures

fake_nvml = fixtures.fake_nvml
fake_nvml_library = fixtures.fake_nvml_library


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of the test's own, on a machine without GPUs."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def driver(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake_nvml.load_here(monkeypatch)
    return fake_nvml


def make_run(path: Path, status: str = "finished", started_s: float = 1_800_000_000.0) -> RunFolder:
    run = RunFolder(path)
    path.mkdir(parents=True)
    run.run_yaml.write_text("model: {}\n")
    active = status == "running"
    document = {"status": status, "name": path.name, "model": "esm2", "started_s": started_s, "created_s": started_s}
    if active:
        document |= {"machine": machine_identity(), "supervisor": this_process().to_json()}
    write_json_atomic(run.state_json, document)
    return run


def refusal(text: str | None) -> str:
    with pytest.raises(UsageError) as caught:
        find_target(text)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_run_by_name_by_part_of_it_and_by_path(here: Path) -> None:
    make_run(here / "runs" / "2026-11-22_0240-protein")
    for text in ("2026-11-22_0240-protein", "2026-11-22", "protein", "runs/2026-11-22_0240-protein"):
        target = find_target(text)
        assert (target.kind, target.name) == ("run", "2026-11-22_0240-protein")
    assert find_target("2026").kind == "run"


def test_a_run_elsewhere_by_its_recorded_name(tmp_path: Path) -> None:
    record_run(make_run(tmp_path / "elsewhere" / "mine"))
    assert find_target("mine").path == tmp_path / "elsewhere" / "mine"
    assert find_target(str(tmp_path / "elsewhere" / "mine")).kind == "run"


def test_a_file_of_a_run_means_the_run(here: Path) -> None:
    run = make_run(here / "runs" / "a")
    run.train_log.write_text("x\n")
    assert find_target("runs/a/train.log").path == Path("runs/a")


def test_names_that_fit_nothing_or_several(here: Path) -> None:
    make_run(here / "runs" / "protein-large")
    make_run(here / "runs" / "protein-small")
    (here / "notes").mkdir()
    assert "fits 2 runs: protein-small, protein-large" in refusal("protein")
    assert "Did you mean protein-large" in refusal("protien-large")
    assert "Did you mean notes?" in refusal("noets")
    assert "no file or folder './other/x'" in refusal("./other/x")
    assert "no file or folder ''" in refusal("")
    assert "There is no" in refusal("x" * 5000)
    assert "There is no" in refusal("[bold]x")


def test_numbers_of_no_process() -> None:
    for text in ("0", "999999999", "99999999999999999999"):
        assert f"There is no process {text}" in refusal(text)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
def test_processes(here: Path) -> None:
    scripts = write_scripts(here)
    command = f"{sys.executable} train.py a & {sys.executable} train.py b & wait"
    with started(["bash", "-c", command], scripts) as shell:
        wait_for(lambda: "2 jobs are running" in _said(str(shell.pid)))
        assert "(train.py)" in refusal(str(shell.pid))
    with started(python("train.py"), scripts) as process:
        target = find_target(str(process.pid))
        assert (target.kind, target.pid, target.path) == ("process", process.pid, here)
        assert target.name == f"train.py · process {process.pid}"
    assert "no process" in refusal(str(process.pid))


def _said(text: str) -> str:
    try:
        find_target(text)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
@pytest.mark.parametrize("module", ["supervise", "training"])
def test_a_process_of_a_run_means_the_run(here: Path, module: str) -> None:
    """By the command line of its keeper, or where it was started by hand of its training."""
    run = make_run(here / "runs" / "mine")
    package = here / "fake" / "trainwiz" / "core"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("")
    (package / f"{module}.py").write_text("import subprocess, sys; subprocess.run([sys.executable, 'train.py'])")
    write_scripts(here / "fake")
    words = ("-m", f"trainwiz.core.{module}", "../runs/mine")
    with started(python(*words), here / "fake", PYTHONPATH=".") as process:
        table = ProcessTable
        wait_for(lambda: any("train.py" in table().command(pid) for pid in table().tree(process.pid)))
        assert find_target(str(process.pid)).path == run.path


def test_without_a_gpu(driver: FakeNvml) -> None:
    driver.write(init_error=9)
    assert "There is no GPU to look at: the NVIDIA driver is installed but not loaded." in refusal("gpu")


def test_what_trains_on_a_gpu(driver: FakeNvml, here: Path) -> None:
    scripts = write_scripts(here)
    with started(python("train.py"), scripts, WORKERS="1") as one, started(python("train.py"), scripts) as two:
        cards = [
            FakeGpu(uuid="GPU-aaaa1111-0", processes={one.pid: 4 * GIB}),
            FakeGpu(uuid="GPU-bbbb2222-0", processes={two.pid: 2 * GIB}, graphics={os.getpid(): 1}),
            FakeGpu(uuid="GPU-cccc3333-0", graphics={os.getpid(): 1}),
            FakeGpu(uuid="GPU-dddd4444-0", processes={999999999: GIB}),
            FakeGpu(uuid="GPU-eeee5555-0", lost=True),
        ]
        driver.write(cards)
        assert find_target("gpu:0").pid == one.pid
        assert find_target("GPU:1").pid == two.pid
        assert find_target("gpu:bbbb").pid == two.pid
        assert "On the GPUs 2 jobs are running" in refusal("gpu")
        assert "Nothing computes on GPU 2 now." in refusal("gpu:2")
        assert "Process 999999999 computes on GPU 3, and cannot be seen" in refusal("gpu:3")
        assert "is lost" in refusal("gpu:4")
        assert "There is no GPU '7' here; there are: gpu:0" in refusal("gpu:7")
        assert "There is no GPU '-1'" in refusal("gpu:-1")
        # A job on a card is listed whatever it is called.
        listed = {found.target.pid: found.gpus for found in list_targets()}
        assert listed[one.pid] == (0,)
        assert listed[two.pid] == (1,)
        driver.write(cards[:1])
        assert find_target("gpu").pid == one.pid


def test_without_a_word_the_only_run_or_the_one_that_runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwiz.core.telemetry.discovery.list_jobs", lambda active=(): [])
    assert "Nothing trains here now" in refusal(None)
    make_run(here / "runs" / "old", started_s=1_700_000_000.0)
    assert find_target(None).name == "old"
    make_run(here / "runs" / "new", started_s=1_800_000_000.0)
    assert "these runs have ended: new, old" in refusal(None)
    make_run(here / "runs" / "live", "running", started_s=1_600_000_000.0)
    assert find_target(None).name == "live"
    elsewhere = here.parent / "elsewhere" / "other"
    record_run(make_run(elsewhere, "running"))
    message = refusal(None)
    assert "2 jobs are running" in message
    # Each by what finds it again.
    assert " live" in message
    assert str(elsewhere) in message
    assert default_target(list_targets()) is None


def test_the_list_has_what_runs_first_then_the_newest(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwiz.core.telemetry.discovery.list_jobs", lambda active=(): [])
    make_run(here / "runs" / "old", started_s=1_700_000_000.0)
    make_run(here / "runs" / "new", started_s=1_800_000_000.0)
    make_run(here / "runs" / "live", "running", started_s=1_600_000_000.0)
    record_run(RunFolder(here / "runs" / "old"))
    found = list_targets()
    assert [one.target.name for one in found] == ["live", "new", "old"]
    assert [one.runs_now for one in found] == [True, False, False]
    assert found[0].to_json()["source"] == "run"


@pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
def test_a_part_of_the_kernel_is_no_job() -> None:
    threads = [
        pid for pid in (2, 3, 4, 5) if Path(f"/proc/{pid}").exists() and not Path(f"/proc/{pid}/cmdline").read_text()
    ]
    if not threads:
        pytest.skip("no kernel threads are seen here (a container)")
    assert "a part of the kernel" in refusal(str(threads[0]))


def test_a_closed_folder_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "closed" / "out").mkdir(parents=True)
    tmp_path.chmod(0)
    try:
        for text in (tmp_path, tmp_path / "closed", tmp_path / "closed" / "out"):
            assert "Permission denied" in refused_to_nobody(str(text))
    finally:
        tmp_path.chmod(0o700)


def refused_to_nobody(text: str) -> str:
    """What `find_target` says to a user without rights; root may read everything."""
    with pytest.raises(UsageError):
        find_target("/dev/null")  # everything is imported before rights are given up
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setuid(65534)
            find_target(text)
        except (UsageError, OSError, ImportError) as error:
            os.write(writer, f"{error}"[:1000].encode() if isinstance(error, UsageError) else repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as answer:
        said = answer.read()
    assert "Error(" not in said, said
    return said


def test_a_short_number_of_a_process_that_has_ended_opens_no_run(here: Path) -> None:
    """ "2" begins the name of every run; kthreadd, or nothing, has that number."""
    make_run(here / "runs" / "2026-11-22_0240-protein")
    with pytest.raises(UsageError, match=r"rocess 2 "):
        find_target("2")
