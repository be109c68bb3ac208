"""BestCheckpoints: keeps the checkpoints with the best scores, and the newest for resuming."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.config.metrics import BLEU_METRIC, known_metrics, lower_is_better, ranking_metric
from trainwiz.core.findings import Finding
from trainwiz.core.language import tr
from trainwiz.core.run.checkpoints import list_checkpoints
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.training.metrics import PROGRESS_JSON


class BestCheckpoints:
    """The `keep` best checkpoints by one evaluation metric.

    Losses and perplexities are better when lower, all other metrics when higher. Of equal scores
    the later checkpoint is better; one without a score is worse than any with one.
    """

    def __init__(self, folder: Path, keep: int, metric: str) -> None:
        self.metric = metric
        self._folder = folder
        self._keep = keep

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

    def prune(self, newest: int) -> list[Path]:
        """Delete all complete checkpoints but the best ones and `checkpoint-<newest>`; the deleted folders.

        One process of the run calls it. A folder is renamed before it is deleted, so that a
        checkpoint is whole or not there.
        """
        for left in self._folder.glob(".checkpoint-*.deleting"):
            shutil.rmtree(left, ignore_errors=True)
        complete = [found.path for found in list_checkpoints(RunFolder(self._folder)) if found.problem is None]
        ranked = sorted(complete, key=self._rank, reverse=True)
        deleted = [path for path in ranked[self._keep :] if _step(path) != newest]
        for path in deleted:
            going = path.with_name(f".{path.name}.deleting")
            path.rename(going)
            shutil.rmtree(going, ignore_errors=True)
        return deleted

    def _rank(self, checkpoint: Path) -> tuple[bool, float, int]:
        score = self.score(checkpoint)
        if score is None:
            return False, 0.0, _step(checkpoint)
        return True, -score if self.lower_is_better else score, _step(checkpoint)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


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
