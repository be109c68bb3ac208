"""Real runs through accelerate."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from trainwiz.core.data.streamed import SHUFFLED_AS_ONE
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.identity import IDENTITY_JSON, Identity
from trainwiz.core.run.state import read_state
from trainwiz.core.training.session import tokenizer_digest
from transformers import AutoModelForMaskedLM, AutoTokenizer, EsmTokenizer

from tests.core.training.runs import (
    different_tensors,
    evaluations,
    metrics,
    start,
    steps_of,
    stop_at,
    text_config,
    tiny_config,
    train,
    write_run,
)
from tests.core.training.tokenizers_for_tests import small_tokenizer

pytestmark = pytest.mark.real

TRAINING_KEYS = {
    "time_s", "step", "epoch", "loss", "learning_rate", "grad_norm", "tokens", "real_tokens", "tokens_per_s",
    "real_tokens_per_s", "step_s", "data_wait_s", "own_s", "peak_allocated_bytes", "peak_reserved_bytes",
}  # fmt: skip
WHOLE = tiny_config(mode__trace_steps=2, logging__memory_every_steps=6, training__empty_cache_steps=1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupts, and that measures itself while it goes along."""
    folder = write_run(tmp_path_factory.mktemp("runs") / "whole", WHOLE)
    train(folder, WHOLE)
    return folder


def test_a_run_writes_its_files(whole: Path) -> None:
    training = steps_of(whole)
    assert list(training) == list(range(1, 19))
    assert all(set(line) == TRAINING_KEYS for line in training.values())
    last = training[18]
    assert last["peak_allocated_bytes"] is None
    assert 0 < last["real_tokens"] < last["tokens"]
    assert 0 <= last["data_wait_s"] < last["step_s"] and 0 < last["own_s"] <= 1.1 * last["step_s"]
    assert [line["step"] for line in evaluations(whole)] == [6, 12, 18]
    engine = json.loads((whole / "engine.json").read_text())
    found = {key: engine[key] for key in ("actual", "precision", "device", "world_size", "optimizer", "attention")}
    assert found == {
        "actual": "single", "precision": "fp32", "device": "cpu", "world_size": 1, "optimizer": "AdamW", "attention": "sdpa",
    }  # fmt: skip
    state = read_state(RunFolder(whole))
    assert state.status == "finished" and state.exit is not None and state.exit.code == 0
    outcome = json.loads((whole / "outcome.json").read_text())
    assert (outcome["step"], outcome["max_steps"]) == (18, 18)
    assert outcome["first_loss"] == training[1]["loss"] and outcome["last_loss"] == last["loss"] < outcome["first_loss"]


def test_the_final_model_loads_back_with_its_tokenizer(whole: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(whole / "final_model")
    assert isinstance(tokenizer, EsmTokenizer)
    assert tokenizer("MKT")["input_ids"] == [0, 20, 15, 11, 2]
    model, report = AutoModelForMaskedLM.from_pretrained(whole / "final_model", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert torch.equal(model.lm_head.bias, load_file(whole / "checkpoint-18" / "model.safetensors")["lm_head.bias"])


def test_a_trace_of_two_steps_and_the_memory_every_six(whole: Path) -> None:
    assert sorted(path.name for path in (whole / "trace").iterdir()) == ["steps-3-4.json.gz", "steps-3-4.txt"]
    with gzip.open(whole / "trace" / "steps-3-4.json.gz", "rt", encoding="utf-8") as file:
        names = [event.get("name", "") for event in json.load(file)["traceEvents"]]
    assert sum(name.startswith("Optimizer.step#AdamW.step") for name in names) == 2
    assert "aten::addmm" in (whole / "trace" / "steps-3-4.txt").read_text()
    memory = [line for line in metrics(whole) if "memory_host_rss_bytes" in line]
    assert [line["step"] for line in memory] == [6, 12, 18]
    assert all(line["memory_allocated_bytes"] is None for line in memory)
    assert all(50e6 < line["memory_host_rss_bytes"] < 20e9 for line in memory)
    # Writing the trace takes seconds; a step of this model takes hundredths of one.
    assert np.median([line["step_s"] for step, line in steps_of(whole).items() if step > 4]) < 0.5


def test_stopped_and_resumed_equals_uninterrupted(whole: Path, tmp_path: Path) -> None:
    """Other worker counts too, and the stop falls in the middle of an epoch."""
    config = tiny_config(data__workers=2)
    folder = write_run(tmp_path / "stopped", config)
    outcome = stop_at(folder, start(folder, config), 8)
    stopped = outcome["step"]
    assert outcome["outcome"] == "stopped" and 8 <= stopped < 18
    assert not (folder / "final_model").exists()
    train(folder, config, "--resume", f"checkpoint-{stopped}")
    assert different_tensors(whole / "checkpoint-18", folder / "checkpoint-18") == []
    assert different_tensors(whole / "final_model", folder / "final_model") == []
    lines = metrics(folder)
    assert [line["resumed_from"] for line in lines if "resumed_from" in line] == [stopped]
    keys = ("step", "loss", "tokens", "real_tokens")
    (before, after) = ([[line[key] for key in keys] for line in steps_of(path).values()] for path in (whole, folder))
    assert after == before and len([line for line in lines if "loss" in line]) == 18


def test_resumed_from_its_last_step_it_only_writes_the_model_and_with_something_else_it_does_not_train_until_it_is_accepted(
    whole: Path, tmp_path: Path
) -> None:
    """Killed while the final model is written: no step more than was asked for."""
    run = RunFolder(tmp_path / "cut short")
    shutil.copytree(whole, run.path, ignore=shutil.ignore_patterns("final_model", "outcome.json"))
    outcome = train(run.path, WHOLE, "--resume", "checkpoint-18")
    assert outcome == json.loads((whole / "outcome.json").read_text())
    assert not (run.path / "checkpoint-19").exists()
    assert different_tensors(whole / "final_model", run.final_model) == []

    recorded = Identity.read(run.file(IDENTITY_JSON))
    assert recorded is not None and recorded.loaded["data"] == {
        "rows that train": 107,
        "rows held out": 13,
        "how the rows are shuffled": SHUFFLED_AS_ONE,
    }
    assert (run.path / "checkpoint-18" / IDENTITY_JSON).read_text() == run.file(IDENTITY_JSON).read_text()
    longer = WHOLE.with_values({"training.max_steps": 20}, "you")
    run.run_yaml.write_text(yaml.safe_dump(longer.model_dump(mode="json")), encoding="utf-8")
    logged = metrics(run.path)
    assert start(run.path, longer, "--resume", "checkpoint-18", "--accept", "data").wait(240) != 0
    message = json.loads(run.failure_json(0).read_text())["message"]
    assert "training.max_steps: 18 → 20" in message and "--accept training" in message
    assert metrics(run.path) == logged
    assert train(run.path, longer, "--resume", "checkpoint-18", "--accept", "data,training")["step"] == 20
    now = Identity.read(run.file(IDENTITY_JSON))
    assert now is not None and [entry["part"] for entry in now.accepted] == ["training"]


def test_a_run_that_fails_leaves_its_reason(tmp_path: Path) -> None:
    data = tmp_path / "a.txt"
    data.write_text("MKT\nMK1\n")
    config = tiny_config(data__sources=[{"name": str(data)}])
    folder = write_run(tmp_path / "broken", config)
    assert start(folder, config).wait(120) != 0
    failure = json.loads((folder / "failure-rank0.json").read_text())
    assert (failure["type"], failure["rank"], failure["step"]) == ("UsageError", 0, None)
    assert "a.txt, line 2" in failure["message"]
    log = (folder / "train.log").read_text()
    assert f"error: {failure['message']}" in log
    assert not (folder / "outcome.json").exists()


@pytest.mark.all
@pytest.mark.parametrize(("processes", "changes"), [(1, {}), (2, {"engine__strategy": "ddp", "peft__method": "lora"})])
def test_torch_compile_takes_batches_of_every_length(processes: int, changes: dict[str, str], tmp_path: Path) -> None:
    config = text_config("gpt2-tiny", engine__compile=True, engine__processes=processes, **changes)
    folder = write_run(tmp_path / "run", config)
    train(folder, config)
    engine = json.loads((folder / "engine.json").read_text())
    assert (engine["compile"], engine["model"]) == (True, "GPT2LMHeadModel")
    assert "recompile_limit" not in (folder / "train.log").read_text()


def test_a_tokenizer_is_known_by_its_vocabulary_and_its_rules(tmp_path: Path) -> None:
    one, same = small_tokenizer(tmp_path / "one"), small_tokenizer(tmp_path / "same")
    assert tokenizer_digest(one) == tokenizer_digest(same)
    same.padding_side = "left" if one.padding_side == "right" else "right"
    assert tokenizer_digest(one) == tokenizer_digest(same)
    same.add_tokens(["<new>"])
    assert tokenizer_digest(one) != tokenizer_digest(same)
