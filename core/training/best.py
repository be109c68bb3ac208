"""Which checkpoints stay, the newest or the best; when a run that finds nothing better ends, and what final_model is."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.config import RunConfig
from trainwiz.core.config.keys import (
    DEFAULT_METRIC,
    known_metrics,
    lower_is_better,
    ranking_metric,
    ranks_checkpoints,
)
from trainwiz.core.errors import os_reason
from trainwiz.core.run.checkpoints import PROGRESS_JSON, complete_checkpoints
from trainwiz.core.run.folder import RunFolder, read_json
from trainwiz.core.text import numbers_finite
from trainwiz.core.training.callbacks import Moment, RunCallback


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
        return numbers_finite(evaluation.get(self.metric) if isinstance(evaluation, dict) else None)

    def rank(self, checkpoint: Path) -> tuple[bool, float, int]:
        """Larger is better: of equal scores the later checkpoint, and any score beats none."""
        score = self.score(checkpoint)
        return score is not None, self.sign * (score or 0.0), step_of(checkpoint)

    def best(self, checkpoints: list[Path]) -> Path | None:
        """The best of them that has a score."""
        scored = [path for path in checkpoints if self.score(path) is not None]
        return max(scored, key=self.rank, default=None)


@dataclass(frozen=True, slots=True)
class KeptCheckpoints:
    """The `keep` newest checkpoints; with a `ranking` the `keep` best and the newest for resuming, or, with `newest_first`,
    the best one and the newest.

    Nothing is deleted before the newest one has proved to be whole by its content. One process of the run calls it. A folder
    is renamed before it is deleted, so that a checkpoint is whole or not there; broken ones are left alone.
    """

    folder: Path
    keep: int
    ranking: Ranking | None = None
    newest_first: bool = False

    def prune(self, newest: int) -> list[Path]:
        """Delete all complete checkpoints but those to keep and `checkpoint-<newest>`, once that is whole; what went."""
        complete = self._complete()
        if newest not in map(step_of, complete):
            return []
        unwanted = (path for path in self._wanted_first(complete)[self.keep :] if step_of(path) != newest)
        return [path for path in unwanted if _delete(path)]

    def tighten(self, enough: Callable[[], bool], at_least: int = 0) -> list[Path]:
        """Delete complete checkpoints, the least wanted first, until it is `enough` and `at_least` so many went; the newest
        and the best one stay even where the disk has no room for the next."""
        complete = self._complete()
        stay = (*complete[-1:], self._best(complete))
        deleted: list[Path] = []
        for path in reversed(self._wanted_first(complete)):
            if len(deleted) >= at_least and enough():
                break
            if path not in stay and _delete(path):
                deleted.append(path)
        return deleted

    def _best(self, complete: list[Path]) -> Path | None:
        return None if self.ranking is None else self.ranking.best(complete)

    def _wanted_first(self, complete: list[Path]) -> list[Path]:
        if self.ranking is not None and not self.newest_first:
            return sorted(complete, key=self.ranking.rank, reverse=True)
        best = self._best(complete)
        return sorted(complete, key=lambda path: (path == best, step_of(path)), reverse=True)

    def _complete(self) -> list[Path]:
        """By step, the oldest first; what is half deleted goes."""
        for left in self.folder.glob(".checkpoint-*.deleting"):
            shutil.rmtree(left, ignore_errors=True)
        return [found.path for found in complete_checkpoints(RunFolder(self.folder))]


def step_of(checkpoint: Path) -> int:
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


def best_checkpoints(config: RunConfig, folder: Path, *, evaluates: bool) -> KeptCheckpoints | None:
    """What checkpoint.keep_best or checkpoint.final ask for, or None: the newest are kept."""
    if not (evaluates and ranks_checkpoints(config)):
        return None
    return KeptCheckpoints(folder, config.checkpoint.keep, measured_ranking(config), not config.checkpoint.keep_best)


def measured_ranking(config: RunConfig) -> Ranking:
    """By the metric that was asked for. A plan refuses one that the run does not measure; forced, the loss takes its place."""
    metric = ranking_metric(config)
    return Ranking(metric if metric in known_metrics(config) else DEFAULT_METRIC)


# Waiting for a better score: evaluation.patience.


@dataclass(eq=False)
class Patience(RunCallback):
    """Remembers the best score of all evaluations, the one before the first step included, and ends a run that has
    found no better one in `evaluations` of them in a row; None never ends one.

    Every process has the same scores, and comes to the same end.
    """

    ranking: Ranking
    evaluations: int | None
    best: float | None = None
    best_step: int | None = None
    without_gain: int = 0
    ended: bool = False

    def to_json(self) -> dict[str, Any]:
        """For the progress.json of a checkpoint."""
        return {"best": self.best, "best_step": self.best_step, "evaluations_without_gain": self.without_gain}

    def resume(self, progress: Mapping[str, Any]) -> None:
        self.best, self.best_step = numbers_finite(progress.get("best")), progress.get("best_step")
        self.without_gain = int(progress.get("evaluations_without_gain") or 0)

    def train_begin(self, now: Moment) -> None:
        """A run that was killed between its last checkpoint and its end."""
        self._end_if_due(now)

    def evaluate(self, now: Moment) -> None:
        score = numbers_finite((now.values.get("metrics") or {}).get(self.ranking.metric))
        if score is None:
            return
        sign = self.ranking.sign
        if self.best is None or sign * score > sign * self.best:
            self.best, self.best_step, self.without_gain = score, now.state.global_step, 0
        else:
            self.without_gain += 1
        self._end_if_due(now)

    def _end_if_due(self, now: Moment) -> None:
        is_due = self.evaluations is not None and self.without_gain >= self.evaluations
        if is_due and not self.ended and now.state.global_step < now.state.max_steps:
            self.ended = now.control.should_training_stop = True
            now.control.should_save = now.state.global_step > 0

    def outcome(self) -> dict[str, Any]:
        """What outcome.json says of a run that ended early, and of one that made nothing better."""
        base: dict[str, Any] = {"best_before_training": True} if self.best_step == 0 else {}
        if self.ended:
            how = {"metric": self.ranking.metric, "evaluations": self.evaluations}
            base["ended_early"] = {**how, "best": self.best, "best_step": self.best_step}
        return base


# final_model: the last weights, or those of the best checkpoint.

STATES = (
    "optimizer*", "scheduler.pt", "scaler.pt", "rng_state*", "trainer_state.json", "progress.json", "identity.json",
    "files.json", "global_step*", "latest", "zero_to_fp32.py", "pytorch_model_fsdp*",
)  # fmt: skip
"""Of a checkpoint, what only a resume needs."""


@dataclass(frozen=True, slots=True)
class FinalChoice:
    """Which weights final_model has."""

    checkpoint: Path | None
    """None: the weights as they are at the end."""
    said: dict[str, Any]
    """In outcome.json."""


def final_ranking(config: RunConfig, retention: KeptCheckpoints) -> Ranking | None:
    """By what final_model is chosen; None: it has the last weights, or there is none."""
    return retention.ranking if config.mode.saves and config.checkpoint.final == "best" else None


def choose_final(
    config: RunConfig, folder: RunFolder, retention: KeptCheckpoints, step: int, evaluation: Mapping[str, Any]
) -> FinalChoice:
    """`step` is the last one, `evaluation` the one after it, which a checkpoint that was saved before it does not hold.
    Every process must call it, and finds the same files."""
    ranking = final_ranking(config, retention)
    if ranking is None:
        return FinalChoice(None, {"step": step, "which": "last"})
    best = ranking.best([found.path for found in complete_checkpoints(folder)])
    last, score = numbers_finite(evaluation.get(ranking.metric)), None if best is None else ranking.score(best)
    if last is not None and (score is None or ranking.sign * last >= ranking.sign * score):
        best, score = None, last
    if score is None:
        return FinalChoice(None, {"step": step, "which": "last"})
    at = step if best is None else step_of(best)
    return FinalChoice(
        None if at == step else best, {"step": at, "which": "best", "metric": ranking.metric, "score": score}
    )


def copy_model(checkpoint: Path, place: Path) -> None:
    """The files of the model and its tokenizer: what the Trainer's own saving of a model writes."""
    shutil.copytree(checkpoint, place, ignore=shutil.ignore_patterns(*STATES))
