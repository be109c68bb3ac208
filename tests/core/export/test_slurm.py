"""The sbatch file: complete, read by Slurm's own parser where it is installed, and run under a stand-in srun."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.export.launch_script import node_commands
from trainwiz.core.export.slurm import Planned, SlurmOrder, notice_s, seconds_of, slurm_script, time_limit
from trainwiz.core.nodes.address import Address

from tests.core.export.solved_config import solved_config
from tests.each import each
from tests.fakes.sbatch import OPTIONS, complaints

PLANNED = Planned(total_high_s=10 * 3600.0, host_ram_bytes=40 << 30, stop_s=100.0)
ORDER = SlurmOrder(account="bio", partition="gpu,long")


def directives(text: str) -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH")]
    return dict(line.split("=", 1) if "=" in line else (line, "") for line in lines)


def script(folder: Path, planned: Planned = PLANNED, order: SlurmOrder = ORDER, **changes: object) -> str:
    values = {"engine__cpu_threads": 4, **changes}
    return slurm_script(solved_config("3080-10g-guide", **values), folder, planned, order)


def test_what_is_asked_for(tmp_path: Path) -> None:
    found = directives(script(tmp_path, engine__nodes=2, engine__processes=4, engine__device="cuda", data__workers=8))
    expected = {
        "account": "bio", "partition": "gpu,long", "nodes": "2", "ntasks-per-node": "1", "gpus-per-node": "4",
        "cpus-per-task": "36", "mem": "50G", "time": "0-12:34:00", "signal": "B:USR1@240",
    }  # fmt: skip
    assert {key: found.get(key) for key in expected} == expected
    assert found.keys() >= {"requeue", "open-mode", "output", "job-name"}
    # Slurm kills a job that takes more memory than the upper end of the prediction.
    for high, asked in ((30 << 30, "50G"), (70 << 30, "70G"), (None, "50G")):
        assert directives(script(tmp_path, replace(PLANNED, host_ram_high_bytes=high)))["mem"] == asked


def test_the_signal_leaves_time_for_a_long_step(tmp_path: Path) -> None:
    assert notice_s(Planned(None, None, stop_s=0.0)) == 120
    assert notice_s(Planned(None, None, stop_s=2400.0)) == 3660
    long = Planned(total_high_s=None, host_ram_bytes=None, stop_s=2400.0)
    assert time_limit(long, SlurmOrder(), notice_s(long)) == "1-00:00:00"
    with pytest.raises(UsageError, match="240 s before the end"):
        script(tmp_path, order=SlurmOrder(time="0-00:05:00"))


@each(("text", "seconds"), [
    ("90", 5400), ("90:30", 5430), ("2-0", 172800), ("1-02:03:04", 93784),
    *((text, None) for text in ("", "abc", "1:2:3:4", "-5", "1-", "infinite")),
])  # fmt: skip
def test_times_as_sbatch_reads_them(text: str, seconds: int | None) -> None:
    if seconds is None:
        with pytest.raises(UsageError, match="--time"):
            seconds_of(text)
    else:
        assert seconds_of(text) == seconds


def test_words_that_would_be_something_else_are_refused(tmp_path: Path) -> None:
    for word in ("bio lab", "bio\n#SBATCH --wrap=x", "$(id)", "", "-x"):
        with pytest.raises(UsageError, match="is not a valid Slurm name"):
            script(tmp_path, order=SlurmOrder(account=word))
    with pytest.raises(UsageError, match="line break"):
        script(tmp_path / "run\n#SBATCH --uid=0")
    text = script(tmp_path / "lr 50%j")
    assert f'#SBATCH --output="{tmp_path}/lr 50%%j/slurm-%j.log"' in text.splitlines()


@each(("name", "nodes"), [("plain", 1), ("a run; $(touch pwned) 'x'", 2)])
def test_a_shell_reads_it(tmp_path: Path, name: str, nodes: int) -> None:
    text = script(tmp_path / name, engine__nodes=nodes, engine__processes=2)
    read = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
    assert read.returncode == 0, read.stderr


CLUSTER = """\
ClusterName=none
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=1
AuthType=auth/none
CredType=cred/none
MessageTimeout=5
GresTypes=gpu
NodeName=localhost CPUs=1
PartitionName=gpu Nodes=ALL
"""
"""Where nobody answers: sbatch reads the options of a file before it asks."""


def parsers(folder: Path) -> list[Callable[[str], str]]:
    """What the parser of the tests and Slurm's own, where it is, have against a file; nothing where they take it."""
    own = [] if shutil.which("sbatch") is None else [lambda text: _refused(_sbatch(folder, text))]
    return [lambda text: "\n".join(complaints(text)), *own]


def test_the_parser_of_slurm_takes_every_option_and_would_say_what_is_wrong(tmp_path: Path) -> None:
    order = SlurmOrder(account="bio", partition="gpu,long", qos="high", time="1-02:03:04")
    for nodes in (1, 2):
        values = {"engine__nodes": nodes, "engine__processes": 2, "engine__device": "cuda"}
        text = script(tmp_path / "a run; with 'quotes'", order=order, **values)
        assert [parser(text) for parser in parsers(tmp_path)] == [""] * len(parsers(tmp_path))
        assert directives(text).keys() == OPTIONS.keys()
    for wrong in ("nodez=2", "time=abc", "mem=much", "open-mode=both", "ntasks-per-node="):
        option = "nodes" if wrong.startswith("nodez") else wrong.partition("=")[0]
        text = re.sub(rf"^#SBATCH --{option}=.*$", f"#SBATCH --{wrong}", script(tmp_path), flags=re.MULTILINE)
        assert all(parser(text) for parser in parsers(tmp_path)), wrong


def _refused(said: str) -> str:
    """Of what sbatch wrote, the lines about options; the last one says that nobody answers."""
    assert "controller" in said or re.search(PROBLEM, said), said
    return "\n".join(line for line in said.splitlines() if re.search(PROBLEM, line))


PROBLEM = r"unrecognized|[Ii]nvalid|ambiguous|argument|requires"


def _sbatch(folder: Path, text: str) -> str:
    (folder / "job.sbatch").write_text(text)
    (folder / "slurm.conf").write_text(CLUSTER)
    return subprocess.run(
        ["sbatch", "--test-only", str(folder / "job.sbatch")],
        env={**os.environ, "SLURM_CONF": str(folder / "slurm.conf")},
        capture_output=True,
        text=True,
        timeout=600,
    ).stderr


TOOLS = {
    "srun": """#!/bin/bash
echo "srun $*" >> "$LOG"
trap 'echo "srun was sent TERM" >> "$LOG"; exit 143' TERM
while [ ! -e "$STOPPED" ]; do sleep 0.05; done
exit "${CODE:-130}"
""",
    "scontrol": """#!/bin/bash
echo "scontrol $*" >> "$LOG"
[ "$1" = show ] && printf 'node-a\\nnode-b\\n'
exit 0
""",
    "trainwiz": """#!/bin/bash
echo "trainwiz $*" >> "$LOG"
sleep 0.3
touch "$STOPPED"
""",
}


def _job(tmp_path: Path, text: str, **environment: str) -> tuple[subprocess.Popen[bytes], Path]:
    """The file as a batch shell runs it, with stand-ins for Slurm and for trainwiz that write down what they are given."""
    tools, log = tmp_path / "tools", tmp_path / "log"
    tools.mkdir()
    for name, code in TOOLS.items():
        (tools / name).write_text(code)
        (tools / name).chmod(0o755)
    (tmp_path / "job").write_text(text)
    variables = {
        "PATH": f"{tools}:{os.environ['PATH']}", "LOG": str(log), "STOPPED": str(tmp_path / "stopped"),
        "SLURM_JOB_ID": "10007", "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_CPUS_PER_TASK": "4", **environment,
    }  # fmt: skip
    return subprocess.Popen(["bash", str(tmp_path / "job")], env={**os.environ, **variables}), log


def _after_the_signal(tmp_path: Path, **environment: str) -> str:
    """What was called by a job on two machines that Slurm warns of its limit."""
    job, log = _job(tmp_path, script(tmp_path / "run", engine__nodes=2, engine__processes=2), **environment)
    deadline = time.monotonic() + 120
    while "srun " not in (log.read_text() if log.exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(120) == 0
    return log.read_text()


def test_before_the_limit_the_run_is_stopped_and_the_job_requeued_unless_it_ended(tmp_path: Path) -> None:
    for code, requeued in (("130", True), ("0", False)):
        folder = tmp_path / code
        folder.mkdir()
        said = _after_the_signal(folder, CODE=code)
        assert "--main node-a:28014" in said
        assert f"trainwiz runs stop {folder / 'run'}" in said
        assert ("scontrol requeue 10007" in said.partition("trainwiz runs stop")[2]) is requeued


@each("code", ["0", "1"])
def test_an_end_of_its_own_is_no_reason_to_requeue(tmp_path: Path, code: str) -> None:
    (tmp_path / "stopped").touch()
    job, log = _job(tmp_path, script(tmp_path / "run", engine__processes=2), CODE=code)
    assert job.wait(120) == int(code)
    assert "requeue" not in log.read_text()
    assert f"trainwiz runs join {tmp_path / 'run'}" in log.read_text()


def test_the_command_of_each_machine() -> None:
    config = solved_config("3080-10g-guide", engine__nodes=3, engine__processes=2)
    assert node_commands(config, Path("/shared/a run"), Address("n0", 4000)) == [
        f"'/shared/a run/launch.sh' --node {node} --main n0:4000" for node in range(3)
    ]
    assert node_commands(solved_config("cpu-demo"), Path("/r"), Address("n0")) == ["/r/launch.sh"]
