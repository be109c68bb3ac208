"""Which checkpoints stay."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from trainwiz.core.errors import Finding
from trainwiz.core.training.disk_guard import BestCheckpoints, NewestCheckpoints, best_checkpoints

from tests.core.run.checkpoint_files import write_checkpoint
from tests.core.training.runs import text_config, tiny_config


def checkpoint(folder: Path, step: int, evaluation: dict[str, object], evaluated_step: int | None = None) -> None:
    path = write_checkpoint(folder, step)
    progress = {"last_evaluation": evaluation, "evaluated_step": step if evaluated_step is None else evaluated_step}
    (path / "progress.json").write_text(json.dumps(progress))


def steps(folder: Path) -> list[int]:
    return sorted(int(path.name.rpartition("-")[2]) for path in folder.glob("checkpoint-*"))


@pytest.mark.parametrize(
    ("metric", "kept"), [("eval_loss", [30, 50]), ("eval_perplexity", [30, 50]), ("eval_bleu", [20, 40, 50])]
)
def test_the_best_two_and_the_newest_stay(tmp_path: Path, metric: str, kept: list[int]) -> None:
    scores = {10: 3.0, 20: 9.0, 30: 1.0, 40: 9.0, 50: 2.0}
    for step, score in scores.items():
        checkpoint(tmp_path, step, {metric: score})
    deleted = BestCheckpoints(tmp_path, 2, metric).prune(50)
    assert steps(tmp_path) == kept
    assert len(deleted) == len(scores) - len(kept)
    assert not list(tmp_path.glob(".checkpoint*"))


def test_what_cannot_be_removed_stays_and_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in (1, 2, 3):
        checkpoint(tmp_path, step, {})
    (tmp_path / ".checkpoint-2.deleting").write_text("in the way")
    retention = NewestCheckpoints(tmp_path, 1)
    assert retention.prune(3) == [tmp_path / "checkpoint-1"]
    assert retention.tighten(lambda: False) == []
    assert steps(tmp_path) == [2, 3]
    assert "checkpoint-2 could not be removed: " in capsys.readouterr().out


def test_a_checkpoint_that_is_only_half_deleted_is_none_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2):
        checkpoint(tmp_path, step, {})
    monkeypatch.setattr(shutil, "rmtree", lambda path, ignore_errors: (path / "trainer_state.json").unlink())
    NewestCheckpoints(tmp_path, 1).prune(2)
    assert steps(tmp_path) == [2]
    monkeypatch.undo()
    NewestCheckpoints(tmp_path, 1).prune(2)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]


def test_settings_become_a_metric_or_a_sentence(tmp_path: Path) -> None:
    findings: list[Finding] = []
    assert best_checkpoints(tiny_config(), tmp_path, findings, evaluates=True) is None
    named = best_checkpoints(
        tiny_config(checkpoint__keep_best=True, evaluation__metric="hidden_loss"), tmp_path, findings, evaluates=True
    )
    assert named is not None and named.metric == "eval_hidden_loss" and findings == []
    none = best_checkpoints(tiny_config(checkpoint__keep_best=True), tmp_path, findings, evaluates=True)
    assert none is not None and none.metric == "eval_loss"
    wrong = text_config("t5-chat-tiny", checkpoint__keep_best=True, evaluation__metric="eval_bleu")
    assert best_checkpoints(wrong, tmp_path, findings, evaluates=True) is None
    assert best_checkpoints(tiny_config(checkpoint__keep_best=True), tmp_path, findings, evaluates=False) is None
    assert [finding.code for finding in findings] == ["unknown_metric", "nothing_held_out"]
    assert "eval_loss, eval_accuracy, eval_perplexity. eval_bleu needs evaluation.generate" in findings[0].message


def test_scores_that_count(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1, {"eval_loss": 0.5})
    checkpoint(tmp_path, 2, {"eval_loss": "NaN"})
    checkpoint(tmp_path, 3, {"eval_loss": 0.1}, evaluated_step=2)
    checkpoint(tmp_path, 4, {})
    best = BestCheckpoints(tmp_path, 1, "eval_loss")
    assert [best.score(tmp_path / f"checkpoint-{step}") for step in (1, 2, 3, 4)] == [0.5, None, None, None]
    best.prune(4)
    assert steps(tmp_path) == [1, 4]


def test_what_is_no_whole_checkpoint_is_left_alone(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        checkpoint(tmp_path, step, {"eval_loss": float(step)})
    (tmp_path / "checkpoint-2" / "trainer_state.json").write_text("{")
    (tmp_path / "broken-checkpoint-9").mkdir()
    (tmp_path / ".checkpoint-7.deleting").mkdir()
    BestCheckpoints(tmp_path, 1, "eval_loss").prune(3)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "broken-checkpoint-9", "checkpoint-1", "checkpoint-2", "checkpoint-3",
    ]  # fmt: skip


def test_better() -> None:
    loss, bleu = (BestCheckpoints(Path(), 1, metric) for metric in ("eval_loss", "eval_bleu"))
    assert loss.better(1.0, None) and loss.better(1.0, 2.0) and not loss.better(2.0, 1.0) and loss.better(2.0, 2.0)
    assert bleu.better(2.0, 1.0) and not bleu.better(1.0, 2.0) and bleu.better(2.0, 2.0)
    assert not bleu.better(float("nan"), None)
