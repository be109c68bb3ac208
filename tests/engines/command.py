"""`trainwiz ... --yes` as a shell starts it, on the tiny model of a case; and what its run folder says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from trainwiz.core.errors import EXIT_FINISHED, EXIT_STOPPED

from tests.core.training.runs import log_of, losses
from tests.engines.case import Case
from tests.engines.look import SHARDS_ON_CPU
from tests.site import FAULTS_VARIABLE, LOOK_VARIABLE, with_site

STEPS, SAVE_EVERY, STOP_AFTER = 8, 4, 2
PATIENCE_S = 840.0
"""DeepSpeed compiles its optimizer of the CPU in the first run: more than four minutes on busy cores."""
DATA = {"dataset": "sample-chat", "length": "48", "micro-batch": "4", "learning-rate": "2e-3", "report-to": "none"}
KEYS: dict[str, Any] = {
    "data.sources.0.text_column": "prompt", "data.sources.0.target_column": "response", "data.sources.0.max_rows": 150,
    "data.validation_rows": 13, "data.workers": 0, "batch.eval_micro_batch_size": 4, "training.schedule": "constant",
    "engine.precision": "fp32", "engine.tf32": False, "engine.attention": "sdpa", "engine.checkpointing": False,
    "engine.optimizer": "adamw_torch", "engine.cpu_threads": 1, "checkpoint.every_steps": SAVE_EVERY,
    "checkpoint.keep": 9, "evaluation.every_steps": STEPS, "logging.every_steps": 1,
}  # fmt: skip


def choices(case: Case, model: str) -> list[str]:
    """The command line: eight sequences a step, by however many processes."""
    count = case.processes()
    keys = {**KEYS, "engine.device": case.device, "engine.processes": count}
    keys["batch.gradient_accumulation_steps"] = 2 // count
    if case.device == "cpu":
        keys.pop("engine.tf32")
    options = {**DATA, "model": model, "max-steps": str(STEPS), "strategy": case.strategy, "offload": case.offload}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    words += [word for key, value in keys.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    # FSDP without a GPU is an error of the plan; here the tests make it share out all the same.
    return [*words, "--force"] if case.strategy == "fsdp" and case.device == "cpu" else words


def trainwiz(folder: Path, *words: str, watched: bool = True, faults: str = "") -> subprocess.Popen[str]:
    """The command, its output in pipes. `watched`: its training processes note their weights (see look.py)."""
    environment = {**os.environ, "PYTHONPATH": with_site(os.environ), FAULTS_VARIABLE: faults}
    if watched:
        environment |= {LOOK_VARIABLE: "1", SHARDS_ON_CPU: "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "trainwiz.tui.cli", *words, "--yes", "--plain", "--output-dir", str(folder)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(folder: Path, *words: str) -> None:
    """To the end; what it said and its log are in the message when it fails."""
    process = trainwiz(folder, *words)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == EXIT_FINISHED, f"{process.returncode}\n{said[-3000:]}\n{log_of(folder)}"


def run_and_stop(folder: Path, *words: str) -> None:
    """Ctrl-C once the second step is logged; the third and fourth are slow, so that it comes between."""
    process = trainwiz(folder, *words, faults="slow@3:seconds=2; slow@4:seconds=2")
    deadline = time.monotonic() + PATIENCE_S
    while max(losses(folder), default=0) < STOP_AFTER:
        assert process.poll() is None and time.monotonic() < deadline, f"{process.communicate()[0]}\n{log_of(folder)}"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == EXIT_STOPPED, f"{process.returncode}\n{said[-3000:]}\n{log_of(folder)}"
