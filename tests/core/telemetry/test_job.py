"""A job from any of its processes: real trees of launchers, ranks, workers and shells."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainwiz.core.telemetry.job import Job, job_of, trainings_below
from trainwiz.core.telemetry.processes import ProcessTable, roles_of, tree_of

from tests.core.telemetry.foreign_jobs import python, started, wait_for, write_scripts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process trees are read from /proc")

PORT = str(20_000 + os.getpid() % 9_000)
"""What names the job. Ranks that another worker of the suite has running at the same time are not of it."""


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    return write_scripts(tmp_path / "work")


def tree_with(root: int, count: int) -> list[int]:
    """The pids below `root`, parents first, once there are `count` of them."""

    def whole() -> list[int]:
        pids = ProcessTable().tree(root)
        return pids if len(pids) == count else []

    return list(map(int, wait_for(whole)))  # type: ignore[call-overload]


def job(pid: int) -> Job:
    found = job_of(pid, ProcessTable())
    assert found is not None
    return found


@pytest.fixture
def launched(scripts: Path) -> Iterator[list[int]]:
    """torchrun, two ranks, two workers of each."""
    with started(python("torchrun", "train.py", "--token", "abcdef"), scripts, RANKS="2", WORKERS="2") as root:
        yield tree_with(root.pid, 7)  # the workers are there: everything above them has its own command


def test_every_process_of_a_launched_job_leads_to_its_launcher(launched: list[int]) -> None:
    found = {pid: job(pid) for pid in launched}
    assert {one.pid for one in found.values()} == {launched[0]}
    assert {one.name for one in found.values()} == {"train.py"}
    assert found[launched[-1]].command.endswith("torchrun train.py --token ***")


def test_roles_of_a_launched_job(launched: list[int]) -> None:
    roles = roles_of(tree_of(launched[0]))
    assert roles[launched[0]] == "launcher"
    assert sorted(roles.values()) == ["launcher", "loader", "loader", "loader", "loader", "trainer", "trainer"]


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_worker_leads_to_its_trainer(scripts: Path, start: str) -> None:
    extra = 1 if start == "spawn" else 0  # multiprocessing's resource tracker
    with started(python("train.py"), scripts, WORKERS="2", START=start) as root:
        pids = tree_with(root.pid, 3 + extra)
        assert {job(pid).pid for pid in pids} == {root.pid}
        roles = roles_of(tree_of(root.pid))
        assert sorted(roles.values()) == ["helper"] * extra + ["loader", "loader", "trainer"]


def test_two_trainings_below_one_shell_are_told_apart(scripts: Path) -> None:
    command = f"{sys.executable} train.py a & {sys.executable} train.py b & wait"
    with started(["bash", "-c", command], scripts) as shell:
        pids = tree_with(shell.pid, 3)
        # Between fork and exec a child still shows the shell's command.
        wait_for(lambda: trainings_below(shell.pid, ProcessTable()) == pids[1:])
        assert {job(pid).pid for pid in pids[1:]} == set(pids[1:])
        assert job(shell.pid).pid == shell.pid, "which of the two is meant is not known"


def test_ranks_whose_launcher_was_killed_stay_one_job(scripts: Path) -> None:
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORT, "RANKS": "2"}
    with started(python("torchrun", "train.py"), scripts, **variables) as root:
        ranks = tree_with(root.pid, 3)[1:]
        os.kill(root.pid, signal.SIGKILL)
        root.wait()
        wait_for(lambda: ProcessTable().parent(ranks[0]) != root.pid)
        for rank in ranks:
            assert sorted(found.pid for found in job(rank).roots) == sorted(ranks)


@pytest.mark.parametrize(
    ("others", "words", "joined"),
    [
        ({"MASTER_PORT": PORT}, [], True),
        ({"MASTER_PORT": "29513"}, [], False),
        ({"MASTER_PORT": PORT}, ["--other"], False),
        ({"MASTER_PORT": ""}, [], False),
    ],
    ids=["same", "another port", "another command", "nothing names it"],
)
def test_ranks_without_a_launcher_are_told_by_what_names_their_job(
    scripts: Path, others: dict[str, str], words: list[str], joined: bool
) -> None:
    named = {"WORLD_SIZE": "2", "MASTER_PORT": PORT} if others["MASTER_PORT"] else {"WORLD_SIZE": "2"}
    others = {"WORLD_SIZE": "2", **others} if others["MASTER_PORT"] else {"WORLD_SIZE": "2"}
    with (
        started(python("train.py"), scripts, **named) as one,
        started(python("train.py", *words), scripts, **others) as two,
    ):
        wait_for(lambda: all("train.py" in " ".join(ProcessTable().command(rank.pid)) for rank in (one, two)))
        assert {root.pid for root in job(one.pid).roots} == ({one.pid, two.pid} if joined else {one.pid})


def test_a_rank_that_was_started_by_the_first_one_is_a_trainer(scripts: Path) -> None:
    """As Lightning does: the same command with another LOCAL_RANK in its environment."""
    (scripts / "train.py").write_text(
        "import os, subprocess, sys, time\n"
        "if 'LOCAL_RANK' not in os.environ:\n"
        "    subprocess.Popen([sys.executable, *sys.argv], env=os.environ | {'LOCAL_RANK': '1'})\n"
        "time.sleep(600)\n"
    )
    with started(python("train.py"), scripts) as root:
        pids = tree_with(root.pid, 2)
        assert set(roles_of(tree_of(root.pid)).values()) == {"trainer"}
        assert job(pids[1]).pid == root.pid


def test_no_such_process_and_one_that_has_ended(scripts: Path) -> None:
    assert job_of(2**31 - 1, ProcessTable()) is None
    with started(["true"], scripts) as ended:
        wait_for(lambda: not ProcessTable().is_alive(ended.pid))
        # Not waited for yet: a zombie keeps its number.
        assert job_of(ended.pid, ProcessTable()) is None


def test_a_process_that_trains_nothing_is_a_job_of_its_own(scripts: Path) -> None:
    with started(["sleep", "600"], scripts) as root:
        wait_for(lambda: ProcessTable().command(root.pid) == ["sleep", "600"])
        found = job(root.pid)
        assert (found.pid, found.name) == (root.pid, "sleep")


def test_a_name_with_escape_codes_and_markup_stays_text(scripts: Path) -> None:
    name = "train\x1b[31m[bold]\nx.py"
    (scripts / name).write_text((scripts / "train.py").read_text())
    with started(python(name), scripts) as root:
        wait_for(lambda: len(ProcessTable().command(root.pid)) == 2)
        assert job(root.pid).name == "train[bold] x.py"
        assert "\x1b" not in job(root.pid).command
