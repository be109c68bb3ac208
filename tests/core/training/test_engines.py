"""The engines for real: adapters, gloo processes, DeepSpeed and FSDP on the CPU, and resuming; what is refused before a step."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import threading
import time
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from torch.utils import cpp_extension
from torch.utils.file_baton import FileBaton
from trainwiz.core.catalog.models import load_models
from trainwiz.core.errors import CannotRunError
from trainwiz.core.training.engine import KernelBaton, block_classes, refuse_unshared, use_kernel_locks
from trainwiz.core.training.weights import MODEL_CLASSES
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from tests.core.training.runs import (
    BUILD_AND_TRAIN_S,
    different_tensors,
    losses,
    resumed,
    text_config,
    train,
    write_run,
)
from tests.each import each
from tests.engines.look import SHARDS_ON_CPU
from tests.site import LOOK_VARIABLE

needs_deepspeed = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed (pip install deepspeed)"
)


@pytest.mark.real
@pytest.mark.all
@pytest.mark.timeout(BUILD_AND_TRAIN_S + 120)
@pytest.mark.parametrize("strategy", [pytest.param("zero3", marks=needs_deepspeed), "fsdp"])
def test_adapters_on_a_base_that_is_shared_out(strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They learn, are merged and resumed. The model answers before a step, when nothing is gathered yet; of seven rows one
    of two processes has a batch more, and each of its forward passes needs the other. The best is left."""
    monkeypatch.setenv(LOOK_VARIABLE, "1")
    monkeypatch.setenv(SHARDS_ON_CPU, "1")
    config = text_config(
        "qwen2-tiny", engine__processes=2, engine__strategy=strategy, batch__gradient_accumulation_steps=1,
        peft__method="lora", peft__dropout=0.1, peft__merge=True, training__learning_rate=5e-2,
        checkpoint__every_steps=1, checkpoint__final="best", evaluation__prompts="rows", evaluation__at_start=True,
        evaluation__generate=True, evaluation__generation_length=4, data__validation_rows=7,
        batch__eval_micro_batch_size=1,
    )  # fmt: skip
    folder = write_run(tmp_path / "whole", config)
    outcome = train(folder, config)
    assert outcome["last_loss"] < outcome["first_loss"]
    engine = json.loads((folder / "engine.json").read_text())
    assert (engine["actual"], engine["adapter"]) == (strategy, "lora")
    assert 0 < engine["trainable_parameters"] < engine["parameters"] / 10
    answered = [json.loads(line)["step"] for line in (folder / "generations.jsonl").read_text().splitlines()]
    assert {*answered} == {*range(9)} and "BLEU of 7 texts" in (folder / "train.log").read_text()
    best = folder / f"checkpoint-{outcome['final']['step']}"
    assert different_tensors(folder / "adapter", best) == []

    tokens = AutoTokenizer.from_pretrained(folder / "final_model")("a question", return_tensors="pt")["input_ids"]
    base = AutoModelForCausalLM.from_pretrained(folder / "base_model")
    with torch.no_grad():
        before = base(input_ids=tokens).logits
        alone = PeftModel.from_pretrained(base, folder / "adapter")(input_ids=tokens).logits
        merged = AutoModelForCausalLM.from_pretrained(folder / "final_model")(input_ids=tokens).logits
    assert torch.allclose(alone, merged, atol=1e-4) and (merged - before).abs().max() > 0.01

    again = resumed(folder, tmp_path / "resumed", config, 4)
    assert losses(again) == losses(folder, after=4)
    assert different_tensors(folder / "checkpoint-8", again / "checkpoint-8") == []


@each(("strategy", "actual", "words"), [
    ("fsdp", "ddp", ("FSDP", "DistributedDataParallel", "--strategy ddp")),
    ("zero2", "single", ("ZeRO-2", "one process", "--strategy single")),
    # Another stage than planned (a DeepSpeed file of the user's) is a warning of the monitor.
    *(("fsdp", "fsdp+offload", ()), ("ddp", "single", ()), ("zero2", "zero3", ()), (None, "ddp", ())),
])  # fmt: skip
def test_the_sentence_names_what_would_train_and_what_shares_out_goes_on(
    strategy: str | None, actual: str, words: tuple[str, ...]
) -> None:
    if not words:
        refuse_unshared(strategy, {"actual": actual, "device": "cuda:0"})
        return
    with pytest.raises(CannotRunError) as caught:
        refuse_unshared(strategy, {"actual": actual, "device": "cpu"})
    (found,) = caught.value.findings
    assert found.code == "engine_not_as_planned" and all(word in found.message for word in (*words, "cpu"))


MODELS = {
    spec.architecture["model_type"]: name
    for name, spec in load_models().items()
    if spec.architecture and spec.task in MODEL_CLASSES
}


@each("name", MODELS.values())
def test_every_model_of_the_catalogue_has_blocks_to_share_out(name: str) -> None:
    """accelerate refuses a name that is not in the model, and shares out nothing by itself where there is none."""
    spec = load_models()[name]
    values = dict(spec.architecture or {})
    with torch.device("meta"):
        model = MODEL_CLASSES[spec.task].from_config(AutoConfig.for_model(values.pop("model_type"), **values))
    names = block_classes(model)
    blocks = [module for module in model.modules() if type(module).__name__ in names]
    assert len(blocks) >= (getattr(model.config, "num_hidden_layers", None) or model.config.n_layer) > 0


def holder(lock: Path) -> multiprocessing.process.BaseProcess:
    """A process that holds the lock until it is killed."""
    server = multiprocessing.get_context("fork")
    held = server.Event()

    def hold() -> None:
        assert KernelBaton(str(lock)).try_acquire()
        held.set()
        time.sleep(60)

    process = server.Process(target=hold)
    process.start()
    assert held.wait(60)
    return process


def test_the_lock_of_a_killed_process_is_free_and_waiting_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock"
    # What torch's own lock of a killed process leaves behind.
    lock.touch()
    other, mine = holder(lock), KernelBaton(str(lock))
    assert not mine.try_acquire()
    other.kill()
    other.join()
    assert mine.try_acquire() and not KernelBaton(str(lock)).try_acquire()
    mine.release()
    other = holder(lock)
    threading.Timer(0.2, other.kill).start()
    waiting = KernelBaton(str(lock))
    assert not waiting.try_acquire()
    waiting.wait()
    other.join()
    monkeypatch.setattr(cpp_extension, "FileBaton", FileBaton)
    use_kernel_locks()
    assert cpp_extension.FileBaton is KernelBaton  # type: ignore[attr-defined]
