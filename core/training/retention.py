"""Which checkpoints stay: the newest ones, or those with the best scores and the newest for resuming."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.config.metrics import BLEU_METRIC, known_metrics, lower_is_better, ranking_metric
from trainwiz.core.errors import os_reason
from trainwiz.core.findings import Finding
from trainwiz.core.language import tr
from trainwiz.core.run.checkpoints import PROGRESS_JSON, complete_checkpoints
from trainwiz.core.run.folder import RunFolder, read_json


class NewestCheckpoints:
    """The `keep` newest checkpoints.

    Nothing is deleted before the newest one has proved to be whole by its content: there is always
    one that the training can go on from. One process of the run calls it. A folder is renamed before
    it is deleted, so that a checkpoint is whole or not there; broken ones are left alone.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder = RunFolder(folder)
        self._keep = keep

    def prune(self, newest: int) -> list[Path]:
        """Delete all complete checkpoints but those to keep and `checkpoint-<newest>`; the deleted folders.

        None is deleted while `checkpoint-<newest>` is not whole.
        """
        self._finish_deleting()
        complete = [found.path for found in complete_checkpoints(self._folder)]
        if newest not in map(_step, complete):
            return []
        unwanted = (path for path in self._best_first(complete)[self._keep :] if _step(path) != newest)
        return [path for path in unwanted if _delete(path)]

    def tighten(self, enough: Callable[[], bool], at_least: int = 0) -> list[Path]:
        """Delete complete checkpoints, the least wanted first, until it is `enough`; the newest always stays.

        `at_least` so many go whatever `enough` says, if there are as many.
        """
        self._finish_deleting()
        complete = [found.path for found in complete_checkpoints(self._folder)]
        deleted: list[Path] = []
        for path in reversed(self._best_first(complete)):
            if len(deleted) >= at_least and enough():
                break
            if path != complete[-1] and _delete(path):
                deleted.append(path)
        return deleted

    def _best_first(self, complete: list[Path]) -> list[Path]:
        """`complete` is ordered by step, the oldest first."""
        return complete[::-1]

    def _finish_deleting(self) -> None:
        for left in self._folder.path.glob(".checkpoint-*.deleting"):
            shutil.rmtree(left, ignore_errors=True)


class BestCheckpoints(NewestCheckpoints):
    """The `keep` best checkpoints by one evaluation metric, and the newest for resuming.

    Losses and perplexities are better when lower, all other metrics when higher. Of equal scores
    the later checkpoint is better; one without a score is worse than any with one.
    """

    def __init__(self, folder: Path, keep: int, metric: str) -> None:
        super().__init__(folder, keep)
        self.metric = metric

    @property
    def lower_is_better(self) -> bool:
        return lower_is_better(self.metric)

    def better(self, score: float, other: float | None) -> bool:
        """Whether `score` is at least as good as `other`; a score that is not finite never is."""
        if not math.isfinite(score):
            return False
        return other is None or (score <= other if self.lower_is_better else score >= other)

    def score(self, checkpoint: Path) -> float | None:
        """The finite score of a checkpoint that was evaluated at its own step, as it stands in progress.json."""
        progress = read_json(checkpoint / PROGRESS_JSON) or {}
        if progress.get("evaluated_step") != _step(checkpoint):
            return None
        evaluation: Any = progress.get("last_evaluation")
        value = evaluation.get(self.metric) if isinstance(evaluation, dict) else None
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

    def _best_first(self, complete: list[Path]) -> list[Path]:
        return sorted(complete, key=self._rank, reverse=True)

    def _rank(self, checkpoint: Path) -> tuple[bool, float, int]:
        score = self.score(checkpoint)
        if score is None:
            return False, 0.0, _step(checkpoint)
        return True, -score if self.lower_is_better else score, _step(checkpoint)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _delete(checkpoint: Path) -> bool:
    """False where the system does not let it go: no reason to end a training that has just been saved."""
    going = checkpoint.with_name(f".{checkpoint.name}.deleting")
    try:
        checkpoint.rename(going)
    except OSError as error:
        print(f"{checkpoint.name} could not be removed: {os_reason(error)}", flush=True)
        return False
    shutil.rmtree(going, ignore_errors=True)
    return True


def best_checkpoints(
    config: RunConfig, folder: Path, findings: list[Finding], *, evaluates: bool
) -> BestCheckpoints | None:
    """What checkpoint.keep_best asks for, or None where it is off; what is wrong with it goes to `findings`."""
    if not config.checkpoint.keep_best:
        return None
    if not evaluates:
        message = tr(
            "checkpoint.keep_best chooses by the score on held-out rows, and none are held out: set data.validation_rows "
            "or data.validation_sources, or leave keep_best off."
        )
        findings.append(Finding("nothing_held_out", "error", "checkpoint.keep_best", message))
        return None
    metric, known = ranking_metric(config), known_metrics(config)
    if metric not in known:
        message = tr(
            "this run measures no {metric}; evaluation.metric can be {names}.", metric=metric, names=", ".join(known)
        )
        if metric == BLEU_METRIC:
            message = tr("{message} eval_bleu needs evaluation.generate: true.", message=message)
        findings.append(Finding("unknown_metric", "error", "evaluation.metric", message))
        return None
    return BestCheckpoints(folder, config.checkpoint.keep, metric)
