"""Models that several processes share out (ZeRO-3, FSDP): adapters merged, texts generated, activations recomputed."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from trainwiz.core.config import RunConfig
from trainwiz.core.export.launch_script import TRAINING_MODULE, launch_command

from tests.conftest import REPOSITORY
from tests.core.training import runs
from tests.core.training.runs import BUILD_AND_TRAIN_S, metrics, tiny_config, train, write_run
from tests.core.training.test_engines import LORA, TWO, different_tensors, engine_of, losses, resumed_copy
from tests.core.training.text_runs import text_config

pytestmark = [pytest.mark.real, pytest.mark.all, pytest.mark.timeout(BUILD_AND_TRAIN_S + 120)]
ZERO3: dict[str, Any] = {**TWO, "engine__strategy": "zero3"}
FSDP: dict[str, Any] = {**TWO, "engine__strategy": "fsdp"}


@pytest.fixture(autouse=True)
def _fsdp_shares_out_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(config: RunConfig) -> list[str]:
        entry = "tests.core.training.fsdp_on_cpu"
        words = launch_command(config)
        return [entry if word == TRAINING_MODULE and config.engine.strategy == "fsdp" else word for word in words]

    monkeypatch.setattr(runs, "launch_command", command)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(REPOSITORY)])))


def needs(engine: dict[str, Any]) -> None:
    if engine is ZERO3 and importlib.util.find_spec("deepspeed") is None:
        pytest.skip("DeepSpeed is not installed (pip install deepspeed)")


@pytest.mark.parametrize("engine", [ZERO3, FSDP], ids=["zero3", "fsdp"])
def test_adapters_are_merged_into_the_whole_base(engine: dict[str, Any], tmp_path: Path) -> None:
    needs(engine)
    config = text_config("qwen2-tiny", **engine, **LORA, peft__dropout=0.1, peft__merge=True)
    folder = write_run(tmp_path / "whole", config)
    train(folder, config)
    assert engine_of(folder)["actual"] == engine["engine__strategy"]
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(folder / "final_model")("a question", return_tensors="pt")["input_ids"]
    base = AutoModelForCausalLM.from_pretrained(folder / "base_model")
    with torch.no_grad():
        before = base(input_ids=tokens).logits
        alone = PeftModel.from_pretrained(base, folder / "adapter")(input_ids=tokens).logits
        merged = AutoModelForCausalLM.from_pretrained(folder / "final_model")(input_ids=tokens).logits
    assert torch.allclose(alone, merged, atol=1e-4) and (merged - before).abs().max() > 0.01
    again = resumed_copy(folder, tmp_path / "resumed", config, 4)
    assert losses(again) == losses(folder, after=4)
    assert different_tensors(folder / "final_model", again / "final_model") == []


def test_processes_with_unlike_numbers_of_rows_generate_together(tmp_path: Path) -> None:
    """Seven rows for two processes: one has a batch more, and each of its forward passes needs the other."""
    needs(ZERO3)
    rows = {"data__validation_rows": 7, "batch__eval_micro_batch_size": 1, "evaluation__generate": True}
    config = text_config("t5-chat-tiny", **ZERO3, **rows, training__max_steps=4)
    folder = write_run(tmp_path / "run", config)
    outcome = train(folder, config)
    assert outcome["outcome"] == "finished" and outcome["eval_generated_tokens"] > 0
    assert engine_of(folder)["actual"] == "zero3"
    assert "BLEU of 7 texts" in (folder / "train.log").read_text()


def test_fsdp_shares_out_a_protein_model(tmp_path: Path) -> None:
    """transformers names blocks of ESM that are not in it, at which accelerate refuses to start."""
    changes = {"training__max_steps": 8, "checkpoint__every_steps": 4}
    config = tiny_config(**FSDP, **changes)
    folder = write_run(tmp_path / "whole", config)
    train(folder, config)
    assert engine_of(folder)["actual"] == "fsdp"
    alone = tiny_config(**changes)
    train(write_run(tmp_path / "alone", alone), alone)
    assert losses(folder) == pytest.approx(losses(tmp_path / "alone"), abs=1e-3)
    again = resumed_copy(folder, tmp_path / "resumed", config, 4)
    assert different_tensors(folder / "final_model", again / "final_model") == []
    assert [line["step"] for line in metrics(again) if "loss" in line] == [5, 6, 7, 8]
