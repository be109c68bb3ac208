"""metrics.jsonl over several attempts: what was done again counts once."""

from __future__ import annotations

import json
from pathlib import Path

from accelerate import Accelerator
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.metrics import MetricsCallback, StepMeter


def test_an_attempt_without_a_checkpoint_takes_the_lines_before_it_back(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    metrics = MetricsCallback(run, StepMeter(), Accelerator(cpu=True))
    metrics.start_over()
    assert not run.metrics_jsonl.exists()
    run.metrics_jsonl.write_text('{"time_s": 1.0, "step": 3, "loss": 2.0}\n')
    metrics.start_over()
    last = json.loads(run.metrics_jsonl.read_text().splitlines()[-1])
    assert last["resumed_from"] == 0 and "step" not in last
