"""Real runs through accelerate."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import read_state

from tests.core.training.runs import metrics, start, stop_at, tiny_config, train, write_run

pytestmark = pytest.mark.real

TRAINING_KEYS = {
    "time_s", "step", "epoch", "loss", "learning_rate", "grad_norm", "tokens", "real_tokens", "tokens_per_s",
    "real_tokens_per_s", "step_s", "data_wait_s", "peak_allocated_bytes", "peak_reserved_bytes",
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupts."""
    config = tiny_config()
    folder = write_run(tmp_path_factory.mktemp("runs") / "whole", config)
    assert train(folder, config)["outcome"] == "finished"
    return folder


def _same_tensors(a: Path, b: Path) -> None:
    first, second = load_file(a / "model.safetensors"), load_file(b / "model.safetensors")
    assert first.keys() == second.keys() and len(first) > 20
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


def test_a_run_writes_its_files(whole: Path) -> None:
    lines = metrics(whole)
    training = [line for line in lines if "loss" in line]
    assert [line["step"] for line in training] == list(range(1, 19))
    assert all(set(line) == TRAINING_KEYS for line in training)
    last = training[-1]
    assert last["peak_allocated_bytes"] is None
    assert 0 < last["real_tokens"] < last["tokens"]
    assert 0 <= last["data_wait_s"] < last["step_s"]
    evaluations = [line for line in lines if "eval_loss" in line]
    assert [line["step"] for line in evaluations] == [6, 12, 18]
    engine = json.loads((whole / "engine.json").read_text())
    found = {key: engine[key] for key in ("actual", "precision", "device", "world_size", "optimizer", "attention")}
    assert found == {
        "actual": "single", "precision": "fp32", "device": "cpu", "world_size": 1, "optimizer": "AdamW", "attention": "sdpa",
    }  # fmt: skip
    state = read_state(RunFolder(whole))
    assert state.status == "finished" and state.exit is not None and state.exit.code == 0
    outcome = json.loads((whole / "outcome.json").read_text())
    assert (outcome["step"], outcome["max_steps"]) == (18, 18)
    assert outcome["first_loss"] == training[0]["loss"] and outcome["last_loss"] == last["loss"] < outcome["first_loss"]


def test_the_final_model_loads_back_and_gives_the_evaluation_that_was_logged(whole: Path) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer, EsmTokenizer

    tokenizer = AutoTokenizer.from_pretrained(whole / "final_model")
    assert isinstance(tokenizer, EsmTokenizer)
    assert tokenizer("MKT")["input_ids"] == [0, 20, 15, 11, 2]
    model, report = AutoModelForMaskedLM.from_pretrained(whole / "final_model", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    last = [line for line in metrics(whole) if "eval_loss" in line][-1]
    assert last["eval_loss"] == pytest.approx(_evaluated(model, whole), abs=1e-5)


def _evaluated(model: torch.nn.Module, folder: Path) -> float:
    """The evaluation by hand: one row at a time, no padding."""
    from trainwiz.core.data.proteins import PAD, ProteinStore
    from trainwiz.core.data.texts import load_text_rows
    from trainwiz.core.training.batches import EVALUATION_EPOCH, PaddedBatch
    from trainwiz.core.training.session import read_config
    from trainwiz.core.training.tasks import MaskedProteins

    config = read_config(RunFolder(folder))
    rows = load_text_rows(config, folder)
    proteins = ProteinStore(rows.texts, 46)
    data = MaskedProteins(proteins, rows.held_out, config.training.mask_probability, config.training.seed)
    total, count = 0.0, 0
    for index in range(len(data)):
        batch = PaddedBatch(PAD)([data[(EVALUATION_EPOCH, index)]])
        labels = batch.pop("labels")
        with torch.no_grad():
            logits = model.eval()(**batch).logits
        total += torch.nn.functional.cross_entropy(logits[0], labels[0], reduction="sum").item()
        count += int((labels != -100).sum())
    return total / count


def test_stopped_and_resumed_equals_uninterrupted(whole: Path, tmp_path: Path) -> None:
    """Other worker counts too, and the stop falls in the middle of an epoch."""
    config = tiny_config(data__workers=2)
    folder = write_run(tmp_path / "stopped", config)
    process = start(folder, config)
    stop_at(folder, process, 8)
    assert process.wait(60) == 0, (folder / "train.log").read_text()[-4000:]
    outcome = json.loads((folder / "outcome.json").read_text())
    stopped = outcome["step"]
    assert outcome["outcome"] == "stopped" and 8 <= stopped < 18
    assert not (folder / "final_model").exists()
    assert train(folder, config, "--resume", f"checkpoint-{stopped}")["outcome"] == "finished"
    _same_tensors(whole / "checkpoint-18", folder / "checkpoint-18")
    _same_tensors(whole / "final_model", folder / "final_model")
    lines = metrics(folder)
    assert [line["resumed_from"] for line in lines if "resumed_from" in line] == [stopped]
    assert max(Counter(line["step"] for line in lines if "loss" in line).values()) == 1
    expected = {
        line["step"]: (line["loss"], line["tokens"], line["real_tokens"]) for line in metrics(whole) if "loss" in line
    }
    assert {
        line["step"]: (line["loss"], line["tokens"], line["real_tokens"]) for line in lines if "loss" in line
    } == expected


def test_resumed_from_its_last_step_it_only_writes_the_model(whole: Path, tmp_path: Path) -> None:
    """Killed while the final model is written: no step more than was asked for."""
    folder = tmp_path / "cut short"
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("final_model", "outcome.json"))
    outcome = train(folder, tiny_config(), "--resume", "checkpoint-18")
    assert outcome == json.loads((whole / "outcome.json").read_text())
    assert not (folder / "checkpoint-19").exists()
    _same_tensors(whole / "final_model", folder / "final_model")


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
