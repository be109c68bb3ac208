"""Modes inside a training: profiler trace, memory log, emptied caches, torch.compile."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from accelerate import Accelerator
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.engine import join_processes
from trainwiz.core.training.metrics import MetricsCallback, StepMeter

from tests.core.training.runs import metrics, text_config, tiny_config, train, write_run


@pytest.mark.real
def test_trace_memory_log_and_emptied_caches(tmp_path: Path) -> None:
    config = tiny_config(
        mode__trace_steps=2, logging__memory_every_steps=2, training__empty_cache_steps=1, training__max_steps=6
    )
    folder = write_run(tmp_path / "run", config)
    train(folder, config)
    assert sorted(path.name for path in (folder / "trace").iterdir()) == ["steps-3-4.json.gz", "steps-3-4.txt"]
    with gzip.open(folder / "trace" / "steps-3-4.json.gz", "rt", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    names = [event.get("name", "") for event in events]
    assert sum(name.startswith("Optimizer.step#AdamW.step") for name in names) == 2
    assert "aten::addmm" in (folder / "trace" / "steps-3-4.txt").read_text()

    lines = metrics(folder)
    memory = [line for line in lines if "memory_host_rss_bytes" in line]
    assert [line["step"] for line in memory] == [2, 4, 6]
    assert all(line["memory_allocated_bytes"] is None for line in memory)
    assert all(50e6 < line["memory_host_rss_bytes"] < 20e9 for line in memory)
    # Writing the trace takes seconds; a step of this model takes hundredths of one.
    assert max(line["step_s"] for line in lines if "loss" in line and line["step"] > 4) < 0.5


@pytest.mark.real
@pytest.mark.all
@pytest.mark.parametrize(("processes", "changes"), [(1, {}), (2, {"engine__strategy": "ddp", "peft__method": "lora"})])
def test_torch_compile_takes_batches_of_every_length(processes: int, changes: dict[str, str], tmp_path: Path) -> None:
    config = text_config("gpt2-tiny", engine__compile=True, engine__processes=processes, **changes)
    folder = write_run(tmp_path / "run", config)
    train(folder, config)
    engine = json.loads((folder / "engine.json").read_text())
    assert (engine["compile"], engine["model"]) == (True, "GPT2LMHeadModel")
    assert "recompile_limit" not in (folder / "train.log").read_text()


def test_only_deepspeed_on_several_cpu_processes_needs_a_group_of_ours() -> None:
    two = {"engine__processes": 2, "engine__strategy": "zero2"}
    assert join_processes(tiny_config()) == {}
    assert join_processes(tiny_config(engine__processes=2, engine__strategy="ddp")) == {}
    assert join_processes(tiny_config(engine__strategy="zero2")) == {}
    assert join_processes(tiny_config(**two, engine__device="cuda")) == {}


def test_an_attempt_without_a_checkpoint_takes_the_lines_before_it_back(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    metrics = MetricsCallback(run, StepMeter(), Accelerator(cpu=True))
    metrics.start_over()
    assert not run.metrics_jsonl.exists()
    run.metrics_jsonl.write_text('{"time_s": 1.0, "step": 3, "loss": 2.0}\n')
    metrics.start_over()
    last = json.loads(run.metrics_jsonl.read_text().splitlines()[-1])
    assert last["resumed_from"] == 0 and "step" not in last
