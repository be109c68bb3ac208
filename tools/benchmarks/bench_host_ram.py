"""Host RAM that can be measured without a GPU, against what a plan takes: a training process before its first step, and
what a loader worker holds alone. CUDA's share of host RAM is not measured here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from trainwiz.core.catalog.models import load_models
from trainwiz.core.estimate.host import MIB, TRAINER_BYTES, WORKER_BYTES

from tests.core.training.runs import tiny_config, write_run
from tools.benchmarks.measure import Result

WORKERS = 2
LOADING: dict[str, Any] = {"data.workers": WORKERS, "data.prefetch": 2, "data.streaming": True}
SETUPS: dict[str, dict[str, Any]] = {
    "proteins": {"data.sources": [{"name": "sample-proteins"}], "batch.sequence_length": 512},
    "pairs of texts": {
        "task": "seq2seq",
        "model.name": "t5-chat-0.2b",
        "model.tokenizer": "train",
        "model.architecture_overrides": {"num_layers": 1, "num_decoder_layers": 1},
        "data.sources": [{"name": "sample-pairs"}],
        "batch.sequence_length": 128,
        "batch.target_length": 128,
    },
}


def run() -> list[Result]:
    results = []
    for name, values in SETUPS.items():
        with tempfile.TemporaryDirectory() as scratch:
            measured = _measure(Path(scratch) / "run", values)
        worst = max(measured["workers"])
        detail = f"MiB, {name}; {len(measured['workers'])} workers after a garbage collection"
        results.append(Result("A loader worker holds alone", worst / MIB, WORKER_BYTES / MIB, detail))
        detail = f"MiB, {name}; without its model, before the first step"
        results.append(
            Result("A training process on a CPU holds", measured["trainer"] / MIB, TRAINER_BYTES / MIB, detail)
        )
    return results


def _measure(folder: Path, values: dict[str, Any]) -> dict[str, Any]:
    config = tiny_config().with_values({**LOADING, **values}, "you")
    architecture = load_models()[config.model.name].architecture
    config = config.model_copy(update={"model": config.model.model_copy(update={"architecture": architecture})})
    write_run(folder, config)
    root = Path(__file__).parents[2]
    paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(root)]))
    asked = subprocess.run(
        [sys.executable, "-m", "tools.benchmarks.host_ram_child", str(folder)],
        check=True,
        capture_output=True,
        text=True,
        cwd=root,
        timeout=300,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )
    measured: dict[str, Any] = json.loads(asked.stdout.strip().splitlines()[-1])
    return measured
