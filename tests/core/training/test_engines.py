"""The engines for real: gloo processes, DeepSpeed on the CPU, adapters on both, and resuming."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from trainwiz.core.config import RunConfig

from tests.core.training.runs import metrics, tiny_config, train, write_run
from tests.core.training.text_runs import text_config

pytestmark = pytest.mark.real

needs_deepspeed = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed (pip install deepspeed)"
)
TWO: dict[str, Any] = {"engine__processes": 2, "batch__gradient_accumulation_steps": 1}
ENGINES: dict[str, dict[str, Any]] = {
    "single": {},
    "ddp": {**TWO, "engine__strategy": "ddp"},
    "zero2+offload": {"engine__strategy": "zero2", "engine__offload": "optimizer"},
    "zero2+offload, two processes": {**TWO, "engine__strategy": "zero2", "engine__offload": "optimizer"},
    "zero3+offload of all, two processes": {**TWO, "engine__strategy": "zero3", "engine__offload": "all"},
}
LORA: dict[str, Any] = {"peft__method": "lora", "training__learning_rate": 1e-2}


def losses(folder: Path, after: int = 0) -> list[float]:
    return [line["loss"] for line in metrics(folder) if "loss" in line and line["step"] > after]


def engine_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "engine.json").read_text())


def different_tensors(first: Path, second: Path) -> list[str]:
    """Names of tensors that are not equal bit for bit, over all safetensors files of two folders."""
    names = sorted(path.name for path in first.glob("*.safetensors"))
    assert names and names == sorted(path.name for path in second.glob("*.safetensors"))
    found = []
    for name in names:
        one, two = load_file(first / name), load_file(second / name)
        assert one.keys() == two.keys()
        found += [key for key in one if not torch.equal(one[key], two[key])]
    return found


def resumed_copy(folder: Path, copy: Path, config: RunConfig, step: int) -> Path:
    """The run again from its checkpoint of `step`, as if nothing later had been written."""
    later = [path.name for path in folder.glob("checkpoint-*") if int(path.name.split("-")[1]) > step]
    gone = [*later, "final_model", "adapter", "outcome.json", "engine.json", "state.json", "metrics.jsonl", ".lock"]
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(*gone))
    train(copy, config, "--resume", f"checkpoint-{step}")
    return copy


def test_lora_merged_at_the_end_and_resumed(tmp_path: Path) -> None:
    config = text_config("qwen2-tiny", **LORA, peft__dropout=0.1, peft__merge=True, training__max_steps=6)
    folder = write_run(tmp_path / "whole", config)
    outcome = train(folder, config)
    assert outcome["last_loss"] < outcome["first_loss"] - 0.2
    engine = engine_of(folder)
    assert (engine["actual"], engine["adapter"], engine["model"]) == ("single", "lora", "Qwen2ForCausalLM")
    assert 0 < engine["trainable_parameters"] < engine["parameters"] / 10
    weights = {path.name for path in (folder / "checkpoint-4").iterdir()} & {
        "model.safetensors",
        "adapter_model.safetensors",
    }
    assert weights == {"adapter_model.safetensors"}

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
    assert losses(again, after=4) == losses(folder, after=4)
    for name in ("checkpoint-6", "final_model", "adapter"):
        assert different_tensors(folder / name, again / name) == []


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], Path]:
    """Four steps of a model by one process, each made once."""
    made: dict[tuple[str, bool], Path] = {}

    def run(model: str, lora: bool) -> Path:
        if (model, lora) not in made:
            config = four_steps(model, lora, "single")
            folder = made[model, lora] = write_run(tmp_path_factory.mktemp("alone") / "run", config)
            train(folder, config)
        return made[model, lora]

    return run


def four_steps(model: str, lora: bool, engine: str) -> RunConfig:
    return text_config(model, **ENGINES[engine], **(LORA if lora else {}), training__max_steps=4)


MODELS = [
    ("nllb-tiny", True),
    *(pytest.param(name, lora, marks=pytest.mark.all)
      for name, lora in (("gpt2-tiny", False), ("qwen2-tiny", True), ("opus-mt-tiny", False), ("t5-chat-tiny", True))),
]  # fmt: skip


@pytest.mark.all
def test_ddp_with_recomputed_activations_and_weights_that_get_no_gradient(tmp_path: Path) -> None:
    """The Trainer then says that every weight takes part; ESM's contact head does not, and the second step failed."""
    config = tiny_config(**ENGINES["ddp"], engine__checkpointing=True, training__max_steps=3)
    folder = write_run(tmp_path / "run", config)
    assert train(folder, config)["step"] == 3
    assert engine_of(folder)["activation_checkpointing"] is True
