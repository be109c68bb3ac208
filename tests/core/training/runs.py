"""Run folders for tests: the tiny models of the catalogue on a few rows of the samples, started as users' runs are.

The processes of a training are forked from a server that has loaded torch already, which saves each ten seconds of processor
time; their environment is what `accelerate launch` makes of the run's accelerate.yaml.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.export.accelerate import launch_environment
from trainwiz.core.export.launch_script import export_files, launch_command

from tests.fakes.descendants import descendants

TRAIN_S = 900
BUILD_AND_TRAIN_S = 1200
"""DeepSpeed compiles its CPU optimizer first: half a minute on free cores, more than four on busy ones."""

TINY: dict[str, Any] = {
    "model.architecture_overrides": {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64},
    "data.sources": [{"name": "sample-proteins", "max_rows": 120}], "data.validation_rows": 13, "data.workers": 0,
    "batch.micro_batch_size": 4, "batch.eval_micro_batch_size": 4, "batch.gradient_accumulation_steps": 2,
    "batch.sequence_length": 48, "training.max_steps": 18, "training.learning_rate": 2e-3,
    "training.schedule": "constant", "engine.device": "cpu", "engine.precision": "fp32", "engine.attention": "sdpa",
    "engine.checkpointing": False, "engine.optimizer": "adamw_torch", "engine.strategy": "single",
    "engine.processes": 1, "engine.cpu_threads": 1, "checkpoint.every_steps": 6, "checkpoint.keep": 9,
    "logging.every_steps": 1, "logging.report_to": ["none"],
}  # fmt: skip


CHAT = [{"name": "sample-chat", "text_column": "prompt", "target_column": "response", "max_rows": 150}]
PAIRS = [{"name": "sample-pairs", "text_column": "source", "target_column": "target", "max_rows": 150}]


def tiny_config(**changes: Any) -> RunConfig:
    """A complete config; keys of `changes` are paths with "__" for "."."""
    values = {**TINY, **{key.replace("__", "."): value for key, value in changes.items()}}
    values["model.architecture"] = load_models()["esm2-tiny"].architecture
    return RunConfig().with_values(values, "you")


def text_config(model: str, **changes: Any) -> RunConfig:
    """The same for a tiny text model of the catalogue, on chat or on pairs."""
    spec = load_models()[model]
    chat = spec.task == "causal-lm"
    values = {
        **TINY, "task": spec.task, "model.name": model, "model.architecture": spec.architecture,
        "data.sources": CHAT if chat else PAIRS, "batch.target_length": None if chat else 24, "training.max_steps": 8,
        "checkpoint.every_steps": 4, **{key.replace("__", "."): value for key, value in changes.items()},
    }  # fmt: skip
    values.pop("model.architecture_overrides")
    return RunConfig().with_values(values, "you")


def write_run(folder: Path, config: RunConfig) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")), encoding="utf-8")
    for name, text in export_files(config).items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


class Forked:
    """A training that the server has forked, with what tests ask of a Popen."""

    def __init__(self, folder: Path, launch: list[str], environment: dict[str, str], recording: bool) -> None:
        (folder / "train.log").touch()
        server = multiprocessing.get_context("forkserver")
        server.set_forkserver_preload(["tests.core.training.forked"])
        self._process = server.Process(target=_fork, args=(folder, launch, environment, recording))
        self._process.start()
        self.pid: int = self._process.pid  # type: ignore[assignment]

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked training", timeout or 0)
        return self._process.exitcode


Training = Forked | subprocess.Popen[bytes]


def _fork(*given: Any) -> None:
    from tests.core.training.forked import train_forked

    train_forked(*given)


def start(folder: Path, config: RunConfig, *arguments: str, recording: bool = False) -> Training:
    """In a session of its own, launched as launch.sh does; `recording` notes the rows of each step (recording.py)."""
    launch = [*launch_command(config)[2:], *arguments]
    # The same ninja as in users' runs: two versions of it compile DeepSpeed's parts over and over.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = {**os.environ, **launch_environment(config), "PYTHONWARNINGS": "ignore", "PATH": path}
    if config.engine.device == "cpu":
        return Forked(folder, launch, environment, recording)
    # What torch has begun with a GPU cannot be forked.
    command = [sys.executable, "-m", "accelerate.commands.launch", *launch]
    with (folder / "train.log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)


def train(folder: Path, config: RunConfig, *arguments: str, recording: bool = False) -> dict[str, Any]:
    """Run to the end; the outcome. The log is in the message when it fails."""
    process = start(folder, config, *arguments, recording=recording)
    built = config.engine.offload != "none"
    try:
        code: int | None = process.wait(BUILD_AND_TRAIN_S if built else TRAIN_S)
    except subprocess.TimeoutExpired:
        code = None
        send(process, signal.SIGKILL)
    assert code == 0, f"{code}\n{(folder / 'train.log').read_text(errors='replace')[-4000:]}"
    return json.loads((folder / "outcome.json").read_text())


def log_of(folder: Path) -> str:
    log = folder / "train.log"
    return log.read_text(errors="replace")[-4000:] if log.exists() else "no train.log"


def send(process: Training, number: int) -> None:
    """A signal to all processes of the training."""
    for pid in (process.pid, *descendants(process.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def stop_when(folder: Path, process: Training, due: Callable[[], bool]) -> dict[str, Any]:
    """SIGTERM to every process of the training once `due`, loader workers included, as the keeper does; the outcome."""
    try:
        deadline = time.monotonic() + 200
        while not due():
            assert process.poll() is None and time.monotonic() < deadline, log_of(folder)
            time.sleep(0.02)
        send(process, signal.SIGTERM)
        assert process.wait(100) == 0, log_of(folder)
    finally:
        if process.poll() is None:
            send(process, signal.SIGKILL)
    return json.loads((folder / "outcome.json").read_text())


def stop_at(folder: Path, process: Training, step: int) -> dict[str, Any]:
    """`stop_when` the step is logged."""
    return stop_when(folder, process, lambda: any(line.get("step", 0) >= step for line in metrics(folder)))


def different_tensors(first: Path, second: Path) -> list[str]:
    """Names of tensors that are not equal bit for bit, over all safetensors files of two folders."""
    import torch
    from safetensors.torch import load_file

    names = sorted(path.name for path in first.glob("*.safetensors"))
    assert names and names == sorted(path.name for path in second.glob("*.safetensors"))
    found = []
    for name in names:
        one, two = load_file(first / name), load_file(second / name)
        assert one.keys() == two.keys() and len(one) > 3
        found += [key for key in one if not torch.equal(one[key], two[key])]
    return found


def metrics(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line, parse_constant=_refuse) for line in lines]


def steps_of(folder: Path) -> dict[int, dict[str, Any]]:
    """Step -> its last line of training."""
    return {line["step"]: line for line in metrics(folder) if "loss" in line}


def losses(folder: Path, after: int = 0) -> dict[int, float]:
    return {step: line["loss"] for step, line in steps_of(folder).items() if step > after}


def evaluations(folder: Path) -> list[dict[str, Any]]:
    return [line for line in metrics(folder) if "eval_loss" in line]


def resumed(whole: Path, folder: Path, config: RunConfig, step: int, *, recording: bool = False) -> Path:
    """A new run of `config` that goes on from the checkpoint of `step` of another one, to its end."""
    write_run(folder, config)
    for name in ("tokenizer", "base_model", f"checkpoint-{step}"):
        if (whole / name).exists():
            shutil.copytree(whole / name, folder / name)
    assert train(folder, config, "--resume", f"checkpoint-{step}", recording=recording)["outcome"] == "finished"
    return folder


def _refuse(constant: str) -> None:
    raise AssertionError(f"bare {constant} is not JSON")
