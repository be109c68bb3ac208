"""Every engine by `trainwiz ... --yes`, in `make test` some without the command: what ran, against one process; a stop and a
resume, against a run that went through."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from trainwiz.core.config.yaml_text import load_yaml
from trainwiz.core.data.texts import load_text_rows
from trainwiz.core.estimate.families import read_architecture
from trainwiz.core.estimate.states import states_of
from trainwiz.core.estimate.workload import Workload
from trainwiz.core.launch.start import read_run_config
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.run.state import read_state
from trainwiz.core.training.model import build_model
from trainwiz.core.training.tokenizer import build_tokenizer

from tests.core.training.runs import losses, stop_at, text_config, train, write_run
from tests.core.training.runs import start as start_training
from tests.engines.case import CASES, IN_SHORT, Case
from tests.engines.command import PATIENCE_S, SAVE_EVERY, STEPS, STOP_AFTER, choices, run, run_and_stop
from tests.engines.look import GATHERED, SHARDS_ON_CPU
from tests.engines.record import WRITES_TO, row_of
from tests.site import FAULTS_VARIABLE, LOOK_VARIABLE

pytestmark = [pytest.mark.real, pytest.mark.timeout(3 * PATIENCE_S)]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with its tokenizer."""
    place, config = tmp_path_factory.mktemp("start"), text_config("qwen2-tiny")
    tokenizer = build_tokenizer(config, place, load_text_rows(config, place))
    for part in (tokenizer, build_model(config, None, place, tokenizer)):
        part.save_pretrained(place / "model")
    return place


def by_one_process(case: Case, start: Path, folder: Path, by_the_command: bool) -> Path:
    """The same training as in `folder` by one process, once for each device; a plan settles what is open otherwise."""
    alone = start / (f"{case.device}-planned" if by_the_command else case.device)
    if not alone.exists():
        one = {"strategy": "single", "processes": 1, "offload": "none"}
        values = {"model.name": str(start / "model"), "batch.gradient_accumulation_steps": 2}
        values |= {f"engine.{key}": value for key, value in one.items()}
        config = read_run_config(RunFolder(folder)).with_values(values, "you")
        train(write_run(alone, config), config)
    return alone


def stop_and_resume(case: Case, model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same training without the command, its plan and its keeper."""
    config = text_config(
        "qwen2-tiny", model__name=str(model / "model"), model__init="pretrained", engine__strategy=case.strategy,
        engine__offload=case.offload, engine__processes=case.processes(), batch__gradient_accumulation_steps=1,
        evaluation__every_steps=STEPS,
    )  # fmt: skip
    write_run(folder, config)
    for variable in (LOOK_VARIABLE, SHARDS_ON_CPU):
        monkeypatch.setenv(variable, "1")
    monkeypatch.setenv(FAULTS_VARIABLE, "slow@3:seconds=2")
    stopped = stop_at(folder, start_training(folder, config), STOP_AFTER)["step"]
    monkeypatch.delenv(FAULTS_VARIABLE)
    train(folder, config, "--resume", f"checkpoint-{stopped}")


def parameter(case: Case) -> Any:
    marks = [] if case.name in IN_SHORT else [pytest.mark.all]
    return pytest.param(case, marks=marks, id=case.name.replace(" ", "-"))


@pytest.mark.parametrize("case", [parameter(case) for case in CASES])
def test_engine(case: Case, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = case.why_not()
    if reason is not None:
        pytest.skip(reason)
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    words = [*choices(case, str(start / "model")), "--set", "model.init=pretrained"]
    # In `make test` one process is the measure, and several are started without the command and their keeper.
    exactly = case.name not in IN_SHORT or bool(os.environ.get(WRITES_TO))
    by_the_command = exactly or case.processes() == 1
    if by_the_command:
        run_and_stop(halves, *words)
        run(halves, "--resume")
    else:
        stop_and_resume(case, start, halves, monkeypatch)
    if exactly:
        run(whole, *words)
    attempts = read_state(RunFolder(halves)).attempts
    stopped_at = int(str(attempts[-1].resume).removeprefix("checkpoint-"))
    assert len(attempts) == 2 and 0 < stopped_at < SAVE_EVERY, "the stop came between two planned saves"
    folder = whole if exactly else halves
    engine = json.loads((folder / "engine.json").read_text())
    state = read_state(RunFolder(folder))
    assert engine["offload"] in case.offloaded
    assert (engine["actual"], engine["world_size"]) == (case.actual, case.processes())
    assert state.engine["actual"] == case.actual
    assert not by_the_command or (state.engine["planned"], state.engine["findings"]) == (case.actual, [])
    assert engine["parameters"] == sum(tensor.numel() for tensor in load_file(folder / GATHERED).values())
    checked = ["engine read from the process, as planned"]
    checked.append(f"bytes of {assert_holds_what_is_planned(case, folder)} as the plan counts them")

    assert list(losses(folder)) == list(range(1, STEPS + 1))
    alone = by_one_process(case, start, folder, by_the_command)
    assert losses(folder) == pytest.approx(losses(alone), abs=1e-3)
    assert far_apart(load_file(folder / GATHERED), load_file(alone / "final_model" / "model.safetensors")) == []
    checked.append("losses and weights as one process has them")

    assert_loads_back(folder)
    checked.append("final_model by from_pretrained = the gathered weights, every tensor")

    if exactly:
        exact = case.device == "cpu"
        assert list(losses(halves)) == list(range(1, STEPS + 1))
        assert losses(halves) == (losses(whole) if exact else pytest.approx(losses(whole), abs=1e-3))
        ends = [load_file(folder / GATHERED) for folder in (whole, halves)]
        assert (different(*ends) if exact else far_apart(*ends)) == []
        assert_loads_back(halves)
        checked.append(f"stopped and resumed = undisturbed, {'bit for bit' if exact else 'within 1e-3'}")
    if os.environ.get(WRITES_TO):
        Path(os.environ[WRITES_TO]).write_text(row_of(case, engine, checked), encoding="utf-8")


def assert_holds_what_is_planned(case: Case, folder: Path) -> str:
    """What each process counted in its own tensors, against the estimate; says what was counted. Where DeepSpeed keeps
    gradients and master weights is its own affair: tests/core/estimate/test_states.py counts those."""
    states = states_of(work_of(case, folder))
    for rank in range(case.processes()):
        held = json.loads((folder / f"held-rank{rank}.json").read_text())
        # A matrix with an odd number of rows is shared out unevenly, and ZeRO-3 fills its parts up.
        assert held["weights"] == pytest.approx(states.weights, rel=0.02)
        # Two moments of four bytes; DeepSpeed has a master weight of four beside them.
        moments = states.optimizer * 2 / 3 if case.uses_deepspeed else states.optimizer
        assert held["moments"] == pytest.approx(moments, rel=0.02)
        if not case.uses_deepspeed:
            assert held["gradients"] == pytest.approx(states.gradients, rel=0.02)
    return "weights and moments" if case.uses_deepspeed else "weights, gradients and moments"


def work_of(case: Case, folder: Path) -> Workload:
    """What the estimate is made of, with everything on the device: the sizes are the same elsewhere."""
    document = load_yaml((folder / "run.yaml").read_text(encoding="utf-8"))
    architecture, _ = read_architecture(document["model"]["architecture"])
    assert architecture is not None
    return Workload(
        architecture=architecture, micro_batch=4, length=48, target_length=48,
        accumulation=document["batch"]["gradient_accumulation_steps"], world_size=case.processes(), precision="fp32",
        optimizer="adamw_torch", strategy=case.strategy,
    )  # fmt: skip


def assert_loads_back(folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    model, report = AutoModelForCausalLM.from_pretrained(folder / "final_model", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    loaded = {name: parameter.detach() for name, parameter in model.named_parameters()}
    assert different(loaded, load_file(folder / GATHERED)) == []


def different(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> list[str]:
    """Names of tensors that are not equal bit for bit."""
    assert one.keys() == other.keys() and len(one) > 10
    return [name for name in one if not torch.equal(one[name], other[name])]


def far_apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> list[str]:
    """Names of tensors that differ by more than the order of sums explains: AdamW divides by gradients near zero."""
    assert one.keys() == other.keys() and len(one) > 10
    return [name for name in one if (one[name] - other[name]).abs().mean() > 1e-3]
