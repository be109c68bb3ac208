"""The engines for real: adapters, gloo processes, DeepSpeed and FSDP on the CPU, and resuming; what is refused before a step."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch.utils import cpp_extension
from torch.utils.file_baton import FileBaton
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config import RunConfig
from trainwiz.core.errors import CannotRunError
from trainwiz.core.export.launch_script import TRAINING_MODULE, launch_command
from trainwiz.core.training.engine import (
    KernelBaton,
    block_classes,
    join_processes,
    refuse_unshared,
    use_kernel_locks,
)
from trainwiz.core.training.weights import MODEL_CLASSES
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from tests.conftest import REPOSITORY
from tests.core.training import runs
from tests.core.training.runs import (
    BUILD_AND_TRAIN_S,
    TRAIN_S,
    different_tensors,
    losses,
    resumed,
    start,
    text_config,
    tiny_config,
    train,
    write_run,
)
from tests.each import each

needs_deepspeed = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed (pip install deepspeed)"
)
costly = [pytest.mark.real, pytest.mark.all, pytest.mark.timeout(BUILD_AND_TRAIN_S + 120)]
TWO: dict[str, Any] = {"engine__processes": 2, "batch__gradient_accumulation_steps": 1}
DDP, ZERO3, FSDP = ({**TWO, "engine__strategy": strategy} for strategy in ("ddp", "zero3", "fsdp"))
LORA: dict[str, Any] = {"peft__method": "lora", "training__learning_rate": 1e-2}


@pytest.fixture
def fsdp_shares_out_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(config: RunConfig) -> list[str]:
        entry = "tests.core.training.fsdp_on_cpu"
        words = launch_command(config)
        return [entry if word == TRAINING_MODULE and config.engine.strategy == "fsdp" else word for word in words]

    monkeypatch.setattr(runs, "launch_command", command)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(REPOSITORY)])))


def engine_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "engine.json").read_text())


@pytest.mark.real
@pytest.mark.parametrize(
    "engine",
    [
        pytest.param({}, id="single"),
        pytest.param(ZERO3, id="zero3", marks=[*costly, needs_deepspeed]),
        pytest.param(FSDP, id="fsdp", marks=costly),
    ],
)
@pytest.mark.usefixtures("fsdp_shares_out_on_a_cpu")
def test_adapters_are_merged_into_the_whole_base_and_resumed(engine: dict[str, Any], tmp_path: Path) -> None:
    config = text_config("qwen2-tiny", **engine, **LORA, peft__dropout=0.1, peft__merge=True)
    folder = write_run(tmp_path / "whole", config)
    outcome = train(folder, config)
    assert outcome["last_loss"] < outcome["first_loss"] - 0.2
    engine_json = engine_of(folder)
    assert engine_json["actual"] == engine.get("engine__strategy", "single")
    assert (engine_json["adapter"], engine_json["model"]) == ("lora", "Qwen2ForCausalLM")
    assert 0 < engine_json["trainable_parameters"] < engine_json["parameters"] / 10
    weights = {path.name for path in (folder / "checkpoint-4").iterdir()}
    assert weights & {"model.safetensors", "adapter_model.safetensors"} == {"adapter_model.safetensors"}

    tokens = AutoTokenizer.from_pretrained(folder / "final_model")("a question", return_tensors="pt")["input_ids"]
    base = AutoModelForCausalLM.from_pretrained(folder / "base_model")
    with torch.no_grad():
        before = base(input_ids=tokens).logits
        alone = PeftModel.from_pretrained(base, folder / "adapter")(input_ids=tokens).logits
        merged = AutoModelForCausalLM.from_pretrained(folder / "final_model")(input_ids=tokens).logits
    assert torch.allclose(alone, merged, atol=1e-4) and (merged - before).abs().max() > 0.01

    again = resumed(folder, tmp_path / "resumed", config, 4)
    assert losses(again) == losses(folder, after=4)
    for name in ("checkpoint-8", "final_model", "adapter"):
        assert different_tensors(folder / name, again / name) == []


@pytest.mark.real
@pytest.mark.all
def test_ddp_with_recomputed_activations_and_weights_that_get_no_gradient(tmp_path: Path) -> None:
    """The Trainer then says that every weight takes part; ESM's contact head does not, and the second step failed."""
    config = tiny_config(**DDP, engine__checkpointing=True, training__max_steps=3)
    folder = write_run(tmp_path / "run", config)
    assert train(folder, config)["step"] == 3
    assert engine_of(folder)["activation_checkpointing"] is True


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(DDP, id="ddp", marks=[pytest.mark.real, pytest.mark.all]),
        pytest.param(ZERO3, id="zero3", marks=[*costly, needs_deepspeed]),
        pytest.param(FSDP, id="fsdp", marks=costly),
    ],
)
@pytest.mark.usefixtures("fsdp_shares_out_on_a_cpu")
def test_every_engine_answers_before_the_first_step_and_leaves_the_best(engine: dict[str, Any], tmp_path: Path) -> None:
    """Before a step nothing is gathered yet, and a process that answers alone would wait for the others."""
    asked = {"evaluation__prompts": "rows", "evaluation__at_start": True, "evaluation__generation_length": 4}
    spoilt = {"training__learning_rate": 5e-2, "checkpoint__final": "best", "checkpoint__every_steps": 1}
    config = text_config("qwen2-tiny", **engine, **asked, **spoilt)
    folder = write_run(tmp_path / "run", config)
    best = train(folder, config)["final"]["step"]
    assert engine_of(folder)["actual"] == engine["engine__strategy"]
    answered = [json.loads(line)["step"] for line in (folder / "generations.jsonl").read_text().splitlines()]
    assert answered == sorted([*range(9)] * 3) and best < 8
    assert different_tensors(folder / "final_model", folder / f"checkpoint-{best}") == []


@needs_deepspeed
@pytest.mark.real
@pytest.mark.all
@pytest.mark.timeout(BUILD_AND_TRAIN_S + 120)
def test_processes_with_unlike_numbers_of_rows_generate_together(tmp_path: Path) -> None:
    """Seven rows for two processes: one has a batch more, and each of its forward passes needs the other."""
    rows = {"data__validation_rows": 7, "batch__eval_micro_batch_size": 1, "evaluation__generate": True}
    config = text_config("t5-chat-tiny", **ZERO3, **rows, training__max_steps=4)
    folder = write_run(tmp_path / "run", config)
    outcome = train(folder, config)
    assert outcome["outcome"] == "finished" and outcome["eval_generated_tokens"] > 0
    assert engine_of(folder)["actual"] == "zero3"
    assert "BLEU of 7 texts" in (folder / "train.log").read_text()


@pytest.mark.real
@pytest.mark.all
@pytest.mark.timeout(BUILD_AND_TRAIN_S + 120)
@pytest.mark.usefixtures("fsdp_shares_out_on_a_cpu")
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
    again = resumed(folder, tmp_path / "resumed", config, 4)
    assert different_tensors(folder / "final_model", again / "final_model") == []
    assert list(losses(again)) == [5, 6, 7, 8]


@pytest.mark.real
@pytest.mark.all
def test_fsdp_without_a_gpu_ends_before_the_first_step(tmp_path: Path) -> None:
    """accelerate takes DistributedDataParallel for it and says nothing."""
    config = tiny_config(engine__strategy="fsdp", engine__processes=2, batch__gradient_accumulation_steps=1)
    folder = write_run(tmp_path / "run", config)
    process = start(folder, config)
    assert process.wait(TRAIN_S) != 0
    failure = json.loads((folder / "failure-rank0.json").read_text())
    assert failure["findings"][0]["code"] == "engine_not_as_planned"
    assert "DistributedDataParallel would train on the device cpu" in failure["message"]
    engine = json.loads((folder / "engine.json").read_text())
    assert (engine["actual"], engine["wrapper"], engine["backend"]) == ("ddp", "DistributedDataParallel", "gloo")
    assert not losses(folder) and not list(folder.glob("checkpoint-*")) and not (folder / "final_model").exists()


@each(
    ("strategy", "actual", "words"),
    [
        ("fsdp", "ddp", ("FSDP", "DistributedDataParallel", "--strategy ddp")),
        ("zero2", "single", ("ZeRO-2", "one process", "--strategy single")),
        # Another stage than planned (a DeepSpeed file of the user's) is a warning of the monitor.
        *(("fsdp", "fsdp+offload", ()), ("ddp", "single", ()), ("zero2", "zero3", ()), (None, "ddp", ())),
    ],
)
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


def test_only_deepspeed_on_several_cpu_processes_needs_a_group_of_ours() -> None:
    two = {"engine__processes": 2, "engine__strategy": "zero2"}
    assert join_processes(tiny_config()) == {}
    assert join_processes(tiny_config(engine__processes=2, engine__strategy="ddp")) == {}
    assert join_processes(tiny_config(engine__strategy="zero2")) == {}
    assert join_processes(tiny_config(**two, engine__device="cuda")) == {}


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


def killed(process: multiprocessing.process.BaseProcess) -> None:
    process.kill()
    process.join()


def test_the_lock_of_a_killed_process_is_free_and_waiting_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock"
    # What torch's own lock of a killed process leaves behind.
    lock.touch()
    other, mine = holder(lock), KernelBaton(str(lock))
    assert not mine.try_acquire()
    killed(other)
    assert mine.try_acquire() and not KernelBaton(str(lock)).try_acquire()
    mine.release()
    other = holder(lock)
    threading.Timer(0.2, other.kill).start()
    KernelBaton(str(lock)).wait()
    killed(other)
    monkeypatch.setattr(cpp_extension, "FileBaton", FileBaton)
    use_kernel_locks()
    assert cpp_extension.FileBaton is KernelBaton  # type: ignore[attr-defined]
