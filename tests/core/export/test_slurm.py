"""The sbatch file: complete, with options as Slurm takes them, and run under a stand-in srun."""

import itertools
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.errors import UsageError
from trainwiz.core.export.launch_script import (
    Planned,
    node_commands,
    notice_s,
    seconds_of,
    slurm_script,
    time_limit,
)
from trainwiz.core.nodes.address import Address

from tests.core.export.solved_config import solved_config
from tests.each import each

PLANNED = Planned(total_high_s=10 * 3600.0, host_ram_bytes=40 << 30, stop_s=100.0)
ORDER: dict[str, str | None] = {"account": "bio", "partition": "gpu,long"}


def directives(text: str) -> dict[str, str]:
    head = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    lines = [line.removeprefix("#SBATCH --") for line in head if line.startswith("#SBATCH --")]
    assert text.startswith("#!") and len(lines) == text.count("#SBATCH"), "sbatch reads none after the first command"
    return dict(line.split("=", 1) if "=" in line else (line, "") for line in lines)


def script(folder: Path, planned: Planned = PLANNED, order: dict[str, str | None] = ORDER, **changes: object) -> str:
    values = {"engine__cpu_threads": 4, **changes}
    return slurm_script(solved_config("3080-10g-guide", **values), folder, planned, order)


def test_what_is_asked_for(tmp_path: Path) -> None:
    found = directives(script(tmp_path, engine__nodes=2, engine__processes=4, engine__device="cuda", data__workers=8))
    expected = {
        "account": "bio", "partition": "gpu,long", "nodes": "2", "ntasks-per-node": "1", "gpus-per-node": "4",
        "cpus-per-task": "36", "mem": "50G", "time": "0-12:34:00", "signal": "B:USR1@240",
    }  # fmt: skip
    assert {key: found.get(key) for key in expected} == expected
    assert (found["requeue"], found["open-mode"]) == ("", "append")
    assert found.keys() - expected.keys() == {"requeue", "open-mode", "output", "job-name"}
    # Slurm kills a job that takes more memory than the upper end of the prediction.
    for high, asked in ((30 << 30, "50G"), (70 << 30, "70G"), (None, "50G")):
        assert directives(script(tmp_path, replace(PLANNED, host_ram_high_bytes=high)))["mem"] == asked


def test_times_and_a_signal_that_leaves_time_for_a_long_step(tmp_path: Path) -> None:
    assert notice_s(Planned(None, None, stop_s=0.0)) == 120
    assert notice_s(Planned(None, None, stop_s=2400.0)) == 3660
    long = Planned(total_high_s=None, host_ram_bytes=None, stop_s=2400.0)
    assert time_limit(long, None, notice_s(long)) == "1-00:00:00"
    with pytest.raises(UsageError, match="240 s before the end"):
        script(tmp_path, order={"time": "0-00:05:00"})
    assert (seconds_of("01:30:00"), seconds_of("1-02:03:04")) == (5400, 93784)
    for text in ("", "abc", "90", "1:2:3:4", "-5", "1-", "infinite"):
        with pytest.raises(UsageError, match="--time"):
            seconds_of(text)


def test_words_that_would_be_something_else_are_refused(tmp_path: Path) -> None:
    for word in ("bio lab", "bio\n#SBATCH --wrap=x", "$(id)", "", "-x"):
        with pytest.raises(UsageError, match="is not a valid Slurm name"):
            script(tmp_path, order={"account": word})
    for name in ("run\n#SBATCH --uid=0", "lr 50%j", 'a"b'):
        with pytest.raises(UsageError, match="has a character that an sbatch line cannot contain"):
            script(tmp_path / name)
    assert f'#SBATCH --output="{tmp_path}/a run/slurm-%j.log"' in script(tmp_path / "a run").splitlines()


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


@each(("code", "requeued"), [("130", True), ("0", False)])
def test_before_the_limit_a_run_of_two_machines_is_stopped_and_requeued_unless_it_ended(
    tmp_path: Path, code: str, requeued: bool
) -> None:
    text = script(tmp_path / "run", engine__nodes=2, engine__processes=2)
    assert "sleep 5; kill" in text
    job, log = _job(tmp_path, text.replace("sleep 5; kill", "sleep 0.5; kill"), CODE=code)
    deadline = time.monotonic() + 120
    while "srun " not in (log.read_text() if log.exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(120) == 0
    said = log.read_text()
    assert "--main node-a:28014" in said and f"trainwiz runs stop {tmp_path / 'run'}" in said
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
