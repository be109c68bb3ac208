"""Run folders for tests: the smallest ESM-2 on a few sample proteins, started as users' runs are."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import yaml
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.export.launch_script import export_files, launch_command, launch_environment

TRAIN_S = 900
BUILD_AND_TRAIN_S = 1200
"""DeepSpeed compiles its CPU optimizer first: half a minute on free cores, more than four on busy ones."""

TINY: dict[str, Any] = {
    "model.architecture_overrides": {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64},
    "data.sources": [{"name": "sample-proteins", "max_rows": 120}],
    "data.validation_rows": 13,
    "data.workers": 0,
    "batch.micro_batch_size": 4,
    "batch.eval_micro_batch_size": 4,
    "batch.gradient_accumulation_steps": 2,
    "batch.sequence_length": 48,
    "training.max_steps": 18,
    "training.learning_rate": 2e-3,
    "training.schedule": "constant",
    "engine.device": "cpu",
    "engine.precision": "fp32",
    "engine.attention": "sdpa",
    "engine.checkpointing": False,
    "engine.optimizer": "adamw_torch",
    "engine.strategy": "single",
    "engine.processes": 1,
    "engine.cpu_threads": 1,
    "checkpoint.every_steps": 6,
    "checkpoint.keep": 9,
    "logging.every_steps": 1,
    "logging.report_to": ["none"],
}


def tiny_config(**changes: Any) -> RunConfig:
    """A complete config; keys of `changes` are paths with "__" for "."."""
    values = {**TINY, **{key.replace("__", "."): value for key, value in changes.items()}}
    values["model.architecture"] = load_models()["esm2-tiny"].architecture
    return RunConfig().with_values(values, "you")


def write_run(folder: Path, config: RunConfig) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")), encoding="utf-8")
    for name, text in export_files(config).items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def start(folder: Path, config: RunConfig, *arguments: str) -> subprocess.Popen[bytes]:
    """accelerate, launched as launch.sh does, in a session of its own."""
    launch = [sys.executable, "-m", "accelerate.commands.launch", *launch_command(config)[2:], *arguments]
    # The same ninja as in users' runs: two versions of it compile DeepSpeed's parts over and over.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = {**os.environ, **launch_environment(config), "PYTHONWARNINGS": "ignore", "PATH": path}
    with (folder / "train.log").open("ab") as log:
        return subprocess.Popen(
            launch, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


def train(folder: Path, config: RunConfig, *arguments: str) -> dict[str, Any]:
    """Run to the end; the outcome. The log is in the message when it fails."""
    process = start(folder, config, *arguments)
    built = config.engine.offload != "none"
    try:
        code: int | None = process.wait(BUILD_AND_TRAIN_S if built else TRAIN_S)
    except subprocess.TimeoutExpired:
        code = None
        for member in (psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
    assert code == 0, f"{code}\n{(folder / 'train.log').read_text(errors='replace')[-4000:]}"
    return json.loads((folder / "outcome.json").read_text())


def stop_at(folder: Path, process: subprocess.Popen[bytes], step: int) -> None:
    """SIGTERM to the whole session, loader workers included, once `step` is logged."""
    deadline = time.monotonic() + 200
    while not any(line.get("step", 0) >= step for line in metrics(folder)):
        assert process.poll() is None and time.monotonic() < deadline, (folder / "train.log").read_text()[-4000:]
        time.sleep(0.02)
    launcher = process.pid
    for pid in _members(launcher):
        if pid != launcher:
            os.kill(pid, signal.SIGTERM)


def _members(session: int) -> list[int]:
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat.rsplit(")", 1)[1].split()[3]) == session:
                members.append(int(entry.name))
    return members


def metrics(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line, parse_constant=_refuse) for line in lines]


def _refuse(constant: str) -> None:
    raise AssertionError(f"bare {constant} is not JSON")
