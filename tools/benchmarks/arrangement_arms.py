"""The same training by plain transformers and by trainwiz: one model folder, one file of rows, one set of settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.export.accelerate import launch_environment
from trainwiz.core.export.training_arguments import training_arguments
from trainwiz.core.launch.start import changed_config
from trainwiz.core.run.folder import RunFolder

from tools.benchmarks.arrangement_place import Place
from tools.benchmarks.training_arms import environment

ROOT = Path(__file__).resolve().parents[2]
PLAIN = ("fixed padding", "dynamic padding", "its own length groups")
OURS = "trainwiz"


class Arm:
    """One training process that stands still until `step` is called, unless `waits` is false."""

    def __init__(
        self,
        name: str,
        place: Place,
        *,
        steps: int,
        seed: int,
        waits: bool,
        threads: int | None = None,
    ) -> None:
        self.name = name
        run = place.run_folder(f"{name.replace(' ', '-')}-{seed}", steps, seed)
        self.run = run
        config = changed_config(run)
        self.log = run.file("benchmark.log").open("ab")
        command, self.model = self._ours(run, waits) if name == OURS else self._plain(run, config, place, waits)
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={
                **os.environ,
                **environment(place.folder),
                # What a run of ours has in its environment; the plain script gets what people start it with.
                **(launch_environment(config) if name == OURS else _plain_environment(place.case.device)),
                **({"OMP_NUM_THREADS": str(threads)} if threads else {}),
                # A run of ours imports nothing from the folder that it is started in.
                "PYTHONPATH": str(ROOT),
            },
        )

    def _ours(self, run: RunFolder, waits: bool) -> tuple[list[str], Path]:
        words = ["tools.benchmarks.arranged_trainer", str(run.path), "waits" if waits else "goes"]
        return words, run.path / "final_model"

    def _plain(self, run: RunFolder, config: RunConfig, place: Place, waits: bool) -> tuple[list[str], Path]:
        ours = training_arguments(config)
        same = {
            key: ours[key]
            for key in (
                "per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "optim", "learning_rate",
                "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "lr_scheduler_type",
                "warmup_steps", "fp16", "bf16", "use_cpu", "seed", "data_seed",
            )
        }  # fmt: skip
        out = run.path / "plain"
        given = {
            "task": place.case.task,
            "model": str(place.model),
            "train": str(place.train),
            "columns": place.case.columns,
            "length": place.case.length,
            "multiple": config.data.pad_to_multiple_of,
            "lora": _lora(config),
            "padding": "max_length" if self.name == PLAIN[0] else "longest",
            "grouped": self.name == PLAIN[2],
            "waits": waits,
            "arguments": {**same, "save_strategy": "no", "output_dir": str(out), "report_to": [], "logging_steps": 1},
        }
        return ["tools.benchmarks.plain_trainer", json.dumps(given)], out

    def step(self) -> dict[str, Any]:
        """One optimizer step: what the gate says of it."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.read()

    def read(self) -> dict[str, Any]:
        """What the gate says of the next step; raises RuntimeError with the end of the log."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"step"'):
                said: dict[str, Any] = json.loads(line)
                return said
        raise RuntimeError(f"{self.name} ended: {self._log_end()}")

    def wait(self) -> None:
        """Until the training has ended by itself."""
        assert self._process.stdout is not None
        self._process.stdout.read()
        if self._process.wait():
            raise RuntimeError(f"{self.name} failed: {self._log_end()}")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.log.close()

    def _log_end(self) -> str:
        return self.run.file("benchmark.log").read_text(errors="replace")[-2000:]


def _plain_environment(device: str) -> dict[str, str]:
    """One GPU, or none: the Trainer would take all that it sees."""
    return {
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] if device == "cuda" else ""
    }


def _lora(config: RunConfig) -> dict[str, Any] | None:
    """Keywords of peft's LoraConfig; None trains all weights."""
    if config.peft.method == "none":
        return None
    return {
        "task_type": "CAUSAL_LM",
        "r": config.peft.rank,
        "lora_alpha": config.peft.alpha or 2 * config.peft.rank,
        "lora_dropout": config.peft.dropout,
        "target_modules": config.peft.targets,
    }


def turns(arms: Sequence[Arm], repeats: int, steps: int) -> list[list[list[dict[str, Any]]]]:
    """[repeat][arm][step]: each arm does its steps while the others stand still; one step before that is not counted."""
    for arm in arms:
        arm.step()
    found = []
    for repeat in range(repeats):
        found.append([[arm.step() for _ in range(steps)] for arm in arms])
        print(f"  repeat {repeat + 1} of {repeats} at {time.strftime('%H:%M:%S')}", flush=True)
    return found
