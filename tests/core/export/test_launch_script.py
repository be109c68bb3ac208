"""launch.sh: runs in its own folder with the exact command, and quotes what it did not write itself."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from trainwiz.core.export.accelerate import cpu_threads, launch_environment
from trainwiz.core.export.launch_script import launch_command, launch_script

from tests.core.export.solved_config import solved_config

ECHO = """#!/bin/sh
for word in "$@"; do echo "word:$word"; done
pwd
echo "cuda:${CUDA_VISIBLE_DEVICES-unset}"
echo "order:$CUDA_DEVICE_ORDER logs:$TENSORBOARD_LOGGING_DIR ds:${DS_ACCELERATOR-}"
"""


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def shell(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def run_script(folder: Path, text: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run launch.sh from elsewhere, with tools on PATH that tell what they were given."""
    for name in ("accelerate", "trainwiz"):
        executable(folder / "tools" / name, ECHO)
    run = folder / "a run with spaces; $(touch pwned)"
    executable(run / "launch.sh", text)
    (run / "run.yaml").write_text("name: x\n")
    clean = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    variables = {**clean, "PATH": f"{folder / 'tools'}:{os.environ['PATH']}", **environment}
    return shell([str(run / "launch.sh"), *arguments], Path("/"), **variables)


def words_of(result: subprocess.CompletedProcess[str]) -> list[str]:
    assert result.returncode == 0, result.stderr
    return [line.removeprefix("word:") for line in result.stdout.splitlines() if line.startswith("word:")]


def test_runs_the_exact_command_in_its_own_folder(tmp_path: Path) -> None:
    config = solved_config("cpu-demo", engine__cpu_threads=2)
    result = run_script(tmp_path, launch_script(config), "--resume", "checkpoint 5")
    assert words_of(result) == [*launch_command(config)[1:], "--resume", "checkpoint 5"]
    lines = result.stdout.splitlines()
    assert any(line.endswith("a run with spaces; $(touch pwned)") for line in lines)
    assert "order:PCI_BUS_ID logs:logs ds:" in lines
    # Each of several machines says which it is; the keeper of the run is on one of them.
    text = launch_script(solved_config("cpu-demo", engine__nodes=2, engine__strategy="ddp"))
    assert "--node 1 --main" in text and "without supervisor" not in text
    result = run_script(tmp_path, text, "--node", "1", "--main", "a:4000")
    assert words_of(result) == ["runs", "join", ".", "--node", "1", "--main", "a:4000"]
    assert not list(tmp_path.rglob("pwned"))


def test_an_interface_that_was_chosen_by_looking_at_one_machine_is_left_to_each() -> None:
    values = {"engine.environment.NCCL_SOCKET_IFNAME": "eno1", "engine.environment.GLOO_SOCKET_IFNAME": "eno1"}
    several = solved_config("cpu-demo", engine__nodes=2, engine__strategy="ddp")
    reason = {"engine.environment.NCCL_SOCKET_IFNAME": "each takes its own"}
    solved = several.with_values(values, "solved", reason)
    assert "SOCKET_IFNAME" not in "".join(launch_environment(solved))
    lines = launch_script(solved).splitlines()
    assert not [line for line in lines if line.startswith("export") and "IFNAME" in line]
    # What somebody said holds for all of them, and so does what was solved for the only one.
    assert launch_environment(several.with_values(values, "you")).items() >= {"NCCL_SOCKET_IFNAME": "eno1"}.items()
    assert "NCCL_SOCKET_IFNAME" in launch_environment(solved_config("cpu-demo").with_values(values, "solved", reason))


def test_without_accelerate_it_says_so_and_an_exported_cdpath_leads_nowhere_else(tmp_path: Path) -> None:
    for folder in ("bin", "runs/one", "elsewhere/runs/one"):
        (tmp_path / folder).mkdir(parents=True)
    for tool in ("sh", "dirname"):
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    (tmp_path / "runs/one/launch.sh").write_text(launch_script(solved_config("cpu-demo")))
    (tmp_path / "runs/one/run.yaml").write_text("name: x\n")
    variables = {"PATH": str(tmp_path / "bin"), "CDPATH": str(tmp_path / "elsewhere")}
    result = shell(["/bin/sh", "runs/one/launch.sh"], tmp_path, **variables)
    assert result.returncode == 127
    assert "accelerate: not found" in result.stderr


def test_gpus_of_the_caller_win_and_their_names_are_not_run_by_the_shell(tmp_path: Path) -> None:
    config = solved_config("3080-10g-guide", engine__device="cuda", engine__gpus=["GPU-12ab-34"])
    script = launch_script(config)
    assert "cuda:GPU-12ab-34" in run_script(tmp_path, script).stdout
    assert "cuda:3" in run_script(tmp_path, script, CUDA_VISIBLE_DEVICES="3").stdout
    config = solved_config("3080-10g-guide", engine__device="cuda", engine__gpus=[f"$(touch {tmp_path}/taken)"])
    result = run_script(tmp_path, launch_script(config))
    assert result.returncode == 0 and "cuda:0" in result.stdout
    assert not (tmp_path / "taken").exists()


def test_environment() -> None:
    assert launch_environment(solved_config("cpu-demo"))["CUDA_VISIBLE_DEVICES"] == ""
    on_gpu = launch_environment(solved_config("2080super", engine__device="cuda"))
    # One process on a machine with several GPUs must see one: the Trainer would wrap it in DataParallel.
    assert on_gpu["CUDA_VISIBLE_DEVICES"] == "0" and "DS_ACCELERATOR" not in on_gpu
    with_deepspeed = launch_environment(solved_config("cpu-demo", engine__strategy="zero2", engine__cpu_threads=3))
    assert with_deepspeed["DS_ACCELERATOR"] == "cpu"
    # accelerate passes the threads on for every engine but DeepSpeed.
    assert with_deepspeed["OMP_NUM_THREADS"] == "3"
    several = solved_config(engine__device="cuda", engine__processes=2, engine__strategy="ddp")
    assert "CUDA_VISIBLE_DEVICES" not in launch_environment(several)


def test_processes_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, processes, threads in ((12, 1, 12), (12, 3, 4), (2, 4, 1), (64, 2, 16)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)), raising=False)
        assert cpu_threads(solved_config(engine__processes=processes, engine__cpu_threads=None)) == threads
    assert cpu_threads(solved_config(engine__processes=2, engine__cpu_threads=7)) == 7


def test_variables_of_the_run_are_exported_with_their_reasons(tmp_path: Path) -> None:
    p2p, interface = "engine.environment.NCCL_P2P_DISABLE", "^lo,$(id)'`\"x"
    values = {p2p: "1", "engine.environment.NCCL_SOCKET_IFNAME": interface}
    reason = {p2p: "GeForce cards\nwithout NVLink \x1b[31mred"}
    text = launch_script(solved_config("cpu-demo").with_values(values, "solved", reason))
    assert "# Chosen by trainwiz: GeForce cards without NVLink red.\nexport NCCL_P2P_DISABLE=1\n" in text
    said = run_script(tmp_path, text.replace("exec accelerate", "env; exec accelerate")).stdout
    assert f"NCCL_SOCKET_IFNAME={interface}\n" in said
    # One of the user's wins over what every run has.
    config = solved_config("cpu-demo").with_values({"engine.environment.OMP_WAIT_POLICY": "ACTIVE"}, "you")
    assert launch_environment(config)["OMP_WAIT_POLICY"] == "ACTIVE"
    assert "GOMP_SPINCOUNT" not in launch_environment(config), "it would win over the policy"
    assert launch_environment(solved_config("cpu-demo"))["GOMP_SPINCOUNT"] == "2000"
    assert "# Your choice.\nexport OMP_WAIT_POLICY=ACTIVE\n" in launch_script(config)
