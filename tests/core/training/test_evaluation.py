"""When and what is measured on held-out rows."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trainwiz.core.estimate import activations as logit_slices
from trainwiz.core.training.batches import IGNORED
from trainwiz.core.training.evaluation import EvaluationSchedule, ScheduleCallback, token_metrics, token_sums
from transformers import TrainerControl, TrainerState

from tests.core.training.runs import tiny_config
from tests.each import each


def evaluated_steps(
    schedule: EvaluationSchedule | None, last: int = 10, per_epoch: int = 4, saves: int = 5
) -> list[int]:
    callback, arguments = ScheduleCallback(schedule), SimpleNamespace()
    found = []
    for step in range(1, last + 1):
        state = TrainerState(global_step=step, max_steps=last, epoch=step / per_epoch)
        control = TrainerControl(should_save=step % saves == 0, should_evaluate=True)
        callback.on_step_end(arguments, state, control)  # type: ignore[arg-type]
        found += [step] * control.should_evaluate
        if step % per_epoch == 0 or step == last:
            # The Trainer's own rule for epochs would measure the same step again.
            control.should_evaluate = True
            callback.on_epoch_end(arguments, state, control)  # type: ignore[arg-type]
            found += [step] * control.should_evaluate
    return found


@each(
    ("changes", "with_saves", "steps"),
    [
        ({"evaluation__every_steps": 3}, False, [3, 6, 9, 10]),
        ({"checkpoint__every_steps": 5}, False, [5, 10]),
        ({"evaluation__every_epoch": True}, False, [4, 8, 10]),
        ({"evaluation__every_epoch": True, "evaluation__every_steps": 3}, False, [3, 4, 6, 8, 9, 10]),
        ({"evaluation__every_epoch": True}, True, [4, 5, 8, 10]),
    ],
)
def test_steps_epochs_saves_and_always_the_end(changes: dict[str, Any], with_saves: bool, steps: list[int]) -> None:
    assert evaluated_steps(EvaluationSchedule.of(tiny_config(**changes), with_saves=with_saves)) == steps


@pytest.mark.parametrize("slice_bytes", [2**28, 400, 1])
def test_sums_and_means(slice_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logit_slices, "EVALUATION_SLICE_BYTES", slice_bytes)
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 6, 11), torch.randint(0, 11, (2, 6))
    labels[0, 2:] = IGNORED
    inputs = torch.zeros(2, 6, dtype=torch.int64)
    inputs[1, :2] = 9
    metrics = token_metrics(token_sums(inputs, logits, labels, 9).double(), "eval")
    expected = torch.nn.functional.cross_entropy(logits.view(-1, 11), labels.view(-1)).item()
    assert metrics["eval_loss"] == pytest.approx(expected, rel=1e-5)
    assert metrics["eval_perplexity"] == pytest.approx(math.exp(expected), rel=1e-5)
    assert metrics["eval_labelled_tokens"] == 8
    right = (logits.argmax(-1) == labels).sum().item()
    assert metrics["eval_accuracy"] == pytest.approx(right / 8)
    hidden = torch.nn.functional.cross_entropy(logits[1, :2], labels[1, :2]).item()
    assert metrics["eval_hidden_loss"] == pytest.approx(hidden, rel=1e-5)
    # -1 stands for no mask token, not for an input.
    inputs[:] = -1
    assert "eval_hidden_loss" not in token_metrics(token_sums(inputs, logits, labels, -1), "eval")


def test_a_loss_beyond_all_bounds_is_a_number_still() -> None:
    assert token_metrics(torch.tensor([8000.0, 0, 8, 0, 0]), "eval")["eval_perplexity"] == math.inf
    assert token_metrics(torch.tensor([16.0, 0, 8, 0, 0]), "eval")["eval_perplexity"] == pytest.approx(math.exp(2))
    assert math.isnan(token_metrics(torch.tensor([math.nan, 0, 8, 0, 0]), "eval")["eval_perplexity"])
    assert math.isnan(token_metrics(torch.zeros(5), "eval")["eval_loss"])
