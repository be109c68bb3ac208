"""A job from any of its processes: real trees of launchers, ranks, workers and shells; the outputs and files that they name."""

import shlex
import sys
from pathlib import Path

import pytest
from trainwiz.core.telemetry.job import Job, is_training, job_of, output_paths
from trainwiz.core.telemetry.job_source import outputs_of
from trainwiz.core.telemetry.processes import ProcessTable, command_of, maps_any, open_files, roles_of, tree_of

from tests.core.telemetry.foreign_jobs import python, started, wait_for, write_scripts
from tests.each import each

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process trees are read from /proc")

AS_LIGHTNING = """
import os, subprocess, sys, time
if 'LOCAL_RANK' not in os.environ:
    subprocess.Popen([sys.executable, *sys.argv], env=os.environ | {'LOCAL_RANK': '1'})
time.sleep(600)
"""


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    return write_scripts(tmp_path / "work")


def tree_with(root: int, count: int) -> list[int]:
    """The pids below `root`, parents first, once there are `count` of them."""
    wait_for(lambda: len(ProcessTable().tree(root)) == count)
    return ProcessTable().tree(root)


def job(pid: int) -> Job:
    found = job_of(pid, ProcessTable())
    assert found is not None
    return found


def roles_below(pid: int) -> list[str]:
    return sorted(roles_of(tree_of(pid)).values())


def test_every_process_of_a_job_leads_to_its_top(scripts: Path) -> None:
    """torchrun, two ranks, two workers of each; and workers that are spawned, with multiprocessing's resource tracker."""
    with started(python("train.py"), scripts, WORKERS="2", START="spawn") as root:
        assert {job(pid).pid for pid in tree_with(root.pid, 4)} == {root.pid}
        assert roles_below(root.pid) == ["helper", "loader", "loader", "trainer"]
    with started(python("torchrun", "train.py", "--token", "abcdef"), scripts, RANKS="2", WORKERS="2") as root:
        launched = tree_with(root.pid, 7)  # the workers are there: everything above them has its own command
        found = {pid: job(pid) for pid in launched}
        assert {(one.pid, one.name) for one in found.values()} == {(root.pid, "train.py")}
        assert found[launched[-1]].command.endswith("torchrun train.py --token ***")
        assert roles_of(tree_of(root.pid))[root.pid] == "launcher"
        assert roles_below(root.pid) == ["launcher", *["loader"] * 4, "trainer", "trainer"]


def test_a_rank_that_was_started_by_the_first_one_is_a_trainer(scripts: Path) -> None:
    """As Lightning does: the same command with another LOCAL_RANK in its environment."""
    (scripts / "train.py").write_text(AS_LIGHTNING)
    with started(python("train.py"), scripts, TENSORBOARD_LOGGING_DIR="logs") as root:
        pids = tree_with(root.pid, 2)
        # Until the second one has begun its program it shows the variables of the first.
        wait_for(lambda: set(roles_below(root.pid)) == {"trainer"}, patience_s=60)
        assert job(pids[1]).pid == root.pid
        assert outputs_of(root.pid, ProcessTable()) == [scripts / "logs"]


def test_processes_that_have_ended_that_train_nothing_and_hostile_names(scripts: Path) -> None:
    assert job_of(2**31 - 1, ProcessTable()) is None
    with started(["true"], scripts) as ended:
        wait_for(lambda: not ProcessTable().is_alive(ended.pid))
        # Not waited for yet: a zombie keeps its number.
        assert job_of(ended.pid, ProcessTable()) is None
    with started(["sleep", "600"], scripts) as root:
        wait_for(lambda: ProcessTable().command(root.pid) == ["sleep", "600"])
        assert (job(root.pid).pid, job(root.pid).name) == (root.pid, "sleep")
    name = "train\x1b[31m[bold]\nx.py"
    (scripts / "train.py").rename(scripts / name)
    with started(python(name), scripts) as root:
        wait_for(lambda: len(ProcessTable().command(root.pid)) == 2)
        assert job(root.pid).name == "train[bold] x.py"
        assert "\x1b" not in job(root.pid).command


@each(("command", "named"), [
    ("python t.py --output_dir out", ["out"]), ("python t.py --output-dir=out --logging_dir logs", ["out", "logs"]),
    ("python t.py trainer.default_root_dir=out", ["out"]), ("python t.py +train.output_dir=/abs/out", ["/abs/out"]),
    ("python t.py --output_dir", []), ("python t.py --lr 3 output_dir", []),
    # A home that nobody has is a name like others.
    ("python x.py --output_dir '~nobody-has-this-name'", ["~nobody-has-this-name"]),
])  # fmt: skip
def test_output_folders_by_options(tmp_path: Path, command: str, named: list[str]) -> None:
    assert output_paths(shlex.split(command), tmp_path) == [tmp_path / name for name in named]


@each(("does", "trains"), [
    ("print({'loss': 1.0, 'epoch': 0.1}, flush=True)", True),
    ("print('ready', flush=True)", False),
])  # fmt: skip
def test_a_training_without_a_card_shows_by_its_log(scripts: Path, does: str, trains: bool) -> None:
    code = (
        f"import time\nfrom fake import load_framework\nload_framework()\n{does}\nopen('done', 'w')\ntime.sleep(600)\n"
    )
    (scripts / "plain.py").write_text(code)
    (scripts / "done").unlink(missing_ok=True)
    with started(python("plain.py"), scripts, scripts / f"{trains}{len(does)}.log") as process:
        wait_for((scripts / "done").exists)
        assert is_training(process.pid, ProcessTable()) is trains


def test_what_linux_says_of_a_process_psutil_says_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.txt"
    with started(["bash", "-c", "exec 3> out.txt; while sleep 600; do :; done"], tmp_path) as process:
        wait_for(out.exists)

        def told() -> tuple[object, ...]:
            libraries = [maps_any(process.pid, (name,)) for name in ("libc", "libno")]
            return command_of(process.pid), libraries, out in {file.path for file in open_files(process.pid) or ()}

        by_linux = told()
        monkeypatch.setattr(sys, "platform", "darwin")
        assert told() == by_linux == (process.args, [True, False], True)
        monkeypatch.undo()
