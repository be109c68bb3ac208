"""The best so far: which checkpoint it is, how it is kept, when a run that finds nothing better ends, and what final_model is."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import (
    BLEU_METRIC,
    DEFAULT_METRIC,
    known_metrics,
    lower_is_better,
    ranking_metric,
    ranks_checkpoints,
)
from trainwiz.core.errors import Finding
from trainwiz.core.language import tr
from trainwiz.core.run.checkpoints import PROGRESS_JSON, complete_checkpoints
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.training.events import Moment, RunCallback
from trainwiz.core.training.saving import NewestCheckpoints, step_of


@dataclass(frozen=True, slots=True)
class Ranking:
    """Scores by one metric: losses and perplexities are better when lower, all other metrics when higher."""

    metric: str

    @property
    def sign(self) -> int:
        return -1 if lower_is_better(self.metric) else 1

    def score(self, checkpoint: Path) -> float | None:
        """The finite score of a checkpoint that was evaluated at its own step, as its progress.json says."""
        progress = read_json(checkpoint / PROGRESS_JSON) or {}
        if progress.get("evaluated_step") != step_of(checkpoint):
            return None
        evaluation: Any = progress.get("last_evaluation")
        return finite(evaluation.get(self.metric) if isinstance(evaluation, dict) else None)

    def rank(self, checkpoint: Path) -> tuple[bool, float, int]:
        """Larger is better: of equal scores the later checkpoint, and any score beats none."""
        score = self.score(checkpoint)
        return (False, 0.0, step_of(checkpoint)) if score is None else (True, self.sign * score, step_of(checkpoint))

    def best(self, checkpoints: list[Path]) -> Path | None:
        """The best of them that has a score."""
        scored = [path for path in checkpoints if self.score(path) is not None]
        return max(scored, key=self.rank, default=None)

    def better(self, score: float | None, other: float | None) -> bool:
        """Whether `score` is strictly better than `other`; a score that is missing or not finite never is."""
        score = finite(score)
        return score is not None and (other is None or self.sign * score > self.sign * other)


def finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


class BestCheckpoints(NewestCheckpoints):
    """The `keep` best checkpoints and the newest for resuming; or, with `newest_first`, the best one and the newest.

    The best one stays even where the disk has no room for the next.
    """

    def __init__(self, folder: Path, keep: int, ranking: Ranking, *, newest_first: bool = False) -> None:
        super().__init__(folder, keep)
        self.ranking = ranking
        self._newest_first = newest_first

    def _best_first(self, complete: list[Path]) -> list[Path]:
        if not self._newest_first:
            return sorted(complete, key=self.ranking.rank, reverse=True)
        best = self._spared(complete)
        return [*best, *(path for path in reversed(complete) if path not in best)]

    def _spared(self, complete: list[Path]) -> list[Path]:
        best = self.ranking.best(complete)
        return [] if best is None else [best]


def best_checkpoints(
    config: RunConfig, folder: Path, findings: list[Finding], *, evaluates: bool
) -> BestCheckpoints | None:
    """What checkpoint.keep_best or checkpoint.final ask for, or None; what is wrong goes to `findings`."""
    if not ranks_checkpoints(config) and config.evaluation.patience is None:
        return None
    if not evaluates:
        keys = {"checkpoint.keep_best": config.checkpoint.keep_best, "evaluation.patience": config.evaluation.patience}
        findings += [
            Finding(
                "nothing_held_out",
                "error",
                key,
                tr(
                    "{key} uses the score on held-out rows, but none are held out: set data.validation_rows or "
                    "data.validation_sources, or turn {key} off.",
                    key=key,
                ),
            )
            for key, asked in keys.items()
            if asked
        ]
        return None
    metric, known = ranking_metric(config), known_metrics(config)
    if metric not in known:
        message = tr(
            "this run does not measure {metric}; evaluation.metric can be {names}.",
            metric=metric,
            names=", ".join(known),
        )
        if metric == BLEU_METRIC:
            message = tr("{message} eval_bleu requires evaluation.generate: true.", message=message)
        findings.append(Finding("unknown_metric", "error", "evaluation.metric", message))
        return None
    if not ranks_checkpoints(config):
        return None
    return BestCheckpoints(
        folder, config.checkpoint.keep, Ranking(metric), newest_first=not config.checkpoint.keep_best
    )


def measured_ranking(config: RunConfig) -> Ranking:
    """By the metric that was asked for, where the run measures it."""
    metric = ranking_metric(config)
    return Ranking(metric if metric in known_metrics(config) else DEFAULT_METRIC)


# Waiting for a better score: evaluation.patience.


class Patience(RunCallback):
    """Remembers the best score of all evaluations, the one before the first step included, and ends a run that has
    found no better one in `evaluations` of them in a row; None never ends one.

    Every process has the same scores, and comes to the same end.
    """

    def __init__(self, ranking: Ranking, evaluations: int | None) -> None:
        self.ended = False
        self._ranking = ranking
        self._evaluations = evaluations
        self._best: float | None = None
        self._best_step: int | None = None
        self._without_gain = 0

    def to_json(self) -> dict[str, Any]:
        """For the progress.json of a checkpoint."""
        return {"best": self._best, "best_step": self._best_step, "evaluations_without_gain": self._without_gain}

    def resume(self, progress: Mapping[str, Any]) -> None:
        self._best, self._best_step = finite(progress.get("best")), progress.get("best_step")
        self._without_gain = int(progress.get("evaluations_without_gain") or 0)

    def train_begin(self, now: Moment) -> None:
        """A run that was killed between its last checkpoint and its end."""
        self._end_if_due(now)

    def evaluate(self, now: Moment) -> None:
        score = finite((now.values.get("metrics") or {}).get(self._ranking.metric))
        if score is None:
            return
        if self._ranking.better(score, self._best):
            self._best, self._best_step, self._without_gain = score, now.state.global_step, 0
        else:
            self._without_gain += 1
        self._end_if_due(now)

    def _end_if_due(self, now: Moment) -> None:
        if self._evaluations is None or self._without_gain < self._evaluations or self.ended:
            return
        if now.state.global_step >= now.state.max_steps:
            return
        self.ended = True
        now.control.should_training_stop = True
        now.control.should_save = now.state.global_step > 0

    def outcome(self) -> dict[str, Any]:
        """What outcome.json says of a run that ended early, and of one that made nothing better."""
        base = {"best_before_training": True} if self._best_step == 0 else {}
        if not self.ended:
            return base
        early = {
            "metric": self._ranking.metric,
            "evaluations": self._evaluations,
            "best": self._best,
            "best_step": self._best_step,
        }
        return {"ended_early": early, **base}


# final_model: the last weights, or those of the best checkpoint.

STATES = (
    "optimizer*", "scheduler.pt", "scaler.pt", "rng_state*", "trainer_state.json", "progress.json", "identity.json",
    "files.json", "global_step*", "latest", "zero_to_fp32.py", "pytorch_model_fsdp*",
)  # fmt: skip
"""Of a checkpoint, what only a resume needs."""


@dataclass(frozen=True, slots=True)
class FinalChoice:
    """Which weights final_model has."""

    step: int
    checkpoint: Path | None
    """None: the weights as they are at the end."""
    metric: str | None = None
    score: float | None = None

    def to_json(self) -> dict[str, Any]:
        which = {"step": self.step, "which": "last" if self.metric is None else "best"}
        return {"final": which if self.metric is None else {**which, "metric": self.metric, "score": self.score}}


def choose_final(config: RunConfig, folder: RunFolder, retention: NewestCheckpoints, step: int) -> FinalChoice:
    """`step` is the last one. Every process must call it, and finds the same files."""
    if config.checkpoint.final != "best" or not isinstance(retention, BestCheckpoints):
        return FinalChoice(step, None)
    ranking = retention.ranking
    best = ranking.best([found.path for found in complete_checkpoints(folder)])
    if best is None:
        return FinalChoice(step, None)
    at = step_of(best)
    return FinalChoice(at, None if at == step else best, ranking.metric, ranking.score(best))


def copy_model(checkpoint: Path, place: Path) -> None:
    """The files of the model and its tokenizer: what the Trainer's own saving of a model writes."""
    shutil.copytree(
        checkpoint,
        place,
        ignore=lambda _, names: [name for name in names if any(fnmatch(name, state) for state in STATES)],
    )
