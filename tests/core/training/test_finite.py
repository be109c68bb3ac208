"""A loss that is no number: the run ends before it can be saved, in all processes at the same step."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from trainwiz.core.run.checkpoints import complete_checkpoints
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.training.callbacks import MOST_SKIPPED, LossGuard, NonFiniteLoss
from transformers import TrainerControl, TrainerState, TrainingArguments

from tests.core.training.runs import metrics, start, tiny_config, write_run
from tests.each import each

NAN = torch.tensor(float("nan"))
FINE = torch.tensor(2.5)


class Guarded:
    """A guard and the optimizer steps that it is shown; `skips` stands for what the scaler of fp16 decides."""

    def __init__(self, folder: Path, on_nan: Any = "stop") -> None:
        self.accelerator = SimpleNamespace(
            num_processes=1, optimizer_step_was_skipped=False, device=torch.device("cpu"), is_main_process=True
        )
        self.guard = LossGuard(on_nan, cast(Accelerator, self.accelerator), RunFolder(folder))
        self.state = TrainerState()

    def step(self, *losses: torch.Tensor, skips: bool = False) -> None:
        for loss in losses:
            self.guard.see(loss)
        self.accelerator.optimizer_step_was_skipped = skips
        self.guard.on_optimizer_step(cast(TrainingArguments, None), self.state, TrainerControl())
        self.state.global_step += 1


@each("bad", [float("nan"), -float("inf")])
def test_one_bad_micro_batch_of_a_window_ends_it(tmp_path: Path, bad: float) -> None:
    guarded = Guarded(tmp_path)
    guarded.step(FINE, FINE)
    with pytest.raises(NonFiniteLoss, match=r"NaN or infinite at step 2\. There is no earlier checkpoint"):
        guarded.step(FINE, torch.tensor(bad), FINE)


def test_overflows_that_the_scaler_leaves_out_are_no_end(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    for _ in range(5):
        for _ in range(MOST_SKIPPED - 1):
            guarded.step(NAN, skips=True)
        guarded.step(FINE)
    for _ in range(200):
        guarded.step(FINE, skips=True)
    with pytest.raises(NonFiniteLoss, match=f"{MOST_SKIPPED} steps in a row"):
        for _ in range(MOST_SKIPPED):
            guarded.step(NAN, skips=True)


def test_weights_that_are_no_numbers_are_never_saved(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3)
    guarded = Guarded(tmp_path)
    assert guarded.guard.may_save(model, 4)
    with torch.no_grad():
        model.bias[1] = float("inf")
    with pytest.raises(NonFiniteLoss, match="step 4: they are not saved"):
        guarded.guard.may_save(model, 4)
    goes_on = Guarded(tmp_path, "continue")
    goes_on.step(NAN)
    assert not goes_on.guard.may_save(model, 4)
    with pytest.raises(NonFiniteLoss, match="no final_model"):
        goes_on.guard.refuse_final(model, 9)
    model.bias.requires_grad_(False)
    assert goes_on.guard.may_save(model, 4), "frozen weights are not of this training"


def test_weights_that_are_shared_out_are_looked_at_where_they_are(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 3)
    cast(Any, model.weight).ds_tensor = torch.tensor([1.0, float("nan")])
    model.weight.data = torch.empty(0)
    with pytest.raises(NonFiniteLoss, match="they are not saved"):
        Guarded(tmp_path).guard.may_save(model, 4)


@pytest.mark.real
@pytest.mark.parametrize(("processes", "fault"), [(1, "nan@8"), pytest.param(2, "nan@8:rank=1", marks=pytest.mark.all)])
def test_a_real_run_ends_at_its_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int, fault: str
) -> None:
    monkeypatch.setenv("TRAINWIZ_FAULTS", fault)
    config = tiny_config(
        training__max_steps=12,
        checkpoint__every_steps=3,
        checkpoint__keep=2,
        checkpoint__keep_best=True,
        evaluation__every_steps=3,
        engine__processes=processes,
        engine__strategy="single" if processes == 1 else "ddp",
        logging__every_steps=4,
    )
    folder = write_run(tmp_path / "run", config)
    assert start(folder, config).wait(240) != 0
    assert {found.step for found in complete_checkpoints(RunFolder(folder))} == {3, 6}
    assert not (folder / "final_model").exists() and not list(folder.glob("*partial*"))
    failures = [json.loads(path.read_text()) for path in sorted(folder.glob("failure-rank*.json"))]
    assert len(failures) == processes, "all ranks end by themselves, none hangs in a collective"
    for failure in failures:
        assert failure["type"] == "NonFiniteLoss" and failure["findings"][0]["code"] == "nan_loss"
        assert failure["message"] == "The loss is NaN or infinite at step 8. The last good checkpoint is checkpoint-6."
    for checkpoint in (folder / "checkpoint-3", folder / "checkpoint-6"):
        assert all(tensor.isfinite().all() for tensor in load_file(checkpoint / "model.safetensors").values())


@pytest.mark.real
@pytest.mark.all
def test_a_real_run_that_goes_on_saves_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWIZ_FAULTS", "nan@5")
    config = tiny_config(training__max_steps=8, checkpoint__every_steps=3, recovery__on_nan="continue")
    folder = write_run(tmp_path / "run", config)
    assert start(folder, config).wait(240) != 0
    assert [row["step"] for row in metrics(folder) if row.get("loss") == "NaN"] == [5, 6, 7, 8]
    assert sorted(path.name for path in folder.glob("checkpoint-*")) == ["checkpoint-3"]
    assert not (folder / "final_model").exists()
    assert "no final_model" in json.loads((folder / "failure-rank0.json").read_text())["message"]
