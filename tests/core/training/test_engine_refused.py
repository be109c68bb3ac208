"""A run that was to share its states out and would not: one sentence before the first step; and the blocks of FSDP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from trainwiz.core.catalog.models import load_models
from trainwiz.core.errors import CannotRunError
from trainwiz.core.training.engine import block_classes, refuse_unshared
from trainwiz.core.training.weights import MODEL_CLASSES
from transformers import AutoConfig

from tests.core.training.runs import TRAIN_S, metrics, start, tiny_config, write_run
from tests.each import each


@pytest.mark.parametrize(
    ("strategy", "actual", "words"),
    [
        ("fsdp", "ddp", ("FSDP", "DistributedDataParallel", "--strategy ddp")),
        ("zero3", "ddp", ("ZeRO-3", "DistributedDataParallel", "--strategy ddp")),
        ("zero2", "single", ("ZeRO-2", "one process", "--strategy single")),
    ],
)
def test_the_sentence_names_what_would_train(strategy: str, actual: str, words: tuple[str, ...]) -> None:
    with pytest.raises(CannotRunError) as caught:
        refuse_unshared(strategy, {"actual": actual, "device": "cpu"})
    (found,) = caught.value.findings
    assert found.code == "engine_not_as_planned" and all(word in found.message for word in (*words, "cpu"))


MODELS = [name for name, spec in load_models().items() if spec.architecture and spec.task in MODEL_CLASSES]


@each("name", MODELS)
def test_every_model_of_the_catalogue_has_blocks_to_share_out(name: str) -> None:
    """accelerate refuses a name that is not in the model, and shares out nothing by itself where there is none."""
    spec = load_models()[name]
    values = dict(spec.architecture or {})
    with torch.device("meta"):
        model = MODEL_CLASSES[spec.task].from_config(AutoConfig.for_model(values.pop("model_type"), **values))
    names = block_classes(model)
    blocks = [module for module in model.modules() if type(module).__name__ in names]
    assert len(blocks) >= (getattr(model.config, "num_hidden_layers", None) or model.config.n_layer) > 0


@pytest.mark.real
def test_fsdp_without_a_gpu_ends_before_the_first_step(tmp_path: Path) -> None:
    """accelerate takes DistributedDataParallel for it and says nothing."""
    config = tiny_config(engine__strategy="fsdp", engine__processes=2, batch__gradient_accumulation_steps=1)
    folder = write_run(tmp_path / "run", config)
    process = start(folder, config)
    assert process.wait(TRAIN_S) != 0
    failure = json.loads((folder / "failure-rank0.json").read_text())
    assert failure["findings"][0]["code"] == "engine_not_as_planned"
    assert "what would train here is DistributedDataParallel" in failure["message"]
    engine = json.loads((folder / "engine.json").read_text())
    assert (engine["actual"], engine["wrapper"], engine["backend"]) == ("ddp", "DistributedDataParallel", "gloo")
    assert not any("loss" in line for line in metrics(folder))
    assert not list(folder.glob("checkpoint-*")) and not (folder / "final_model").exists()


@each(
    ("strategy", "actual"),
    [("fsdp", "fsdp"), ("fsdp", "fsdp+offload"), ("ddp", "single"), ("zero2", "zero3"), (None, "ddp")],
)
def test_what_shares_out_goes_on(strategy: str | None, actual: str) -> None:
    """Another stage than planned (a DeepSpeed file of the user's) is a warning of the monitor."""
    refuse_unshared(strategy, {"actual": actual, "device": "cuda:0"})
