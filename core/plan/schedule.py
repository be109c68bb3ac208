"""How often a run saves, evaluates and generates: what core/training/evaluation_schedule.py and generation.py do."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.config import RunConfig

BLEU = ("bleu", "eval_bleu")


@dataclass(frozen=True, slots=True)
class Counts:
    """Over the whole run, the last step included."""

    saves: int
    evaluations: int
    generations: int


def count_events(config: RunConfig, steps: int, epochs: float | None) -> Counts:
    """`epochs` is None where the rows are not known; an evaluation at each epoch then counts as one."""
    evaluation = config.evaluation
    save_every = config.checkpoint.every_steps or steps
    saves = _times(steps, save_every)
    whole_epochs = int(epochs or 0)
    every = evaluation.every_steps
    if every is None and not evaluation.every_epoch:
        every = save_every
    evaluations = _times(steps, every) if every else 0
    if evaluation.every_epoch:
        evaluations += max(1, whole_epochs)
    if config.checkpoint.keep_best and every != save_every:
        evaluations += steps // save_every
    generations = 0
    if evaluation.generate:
        generations = {"evaluation": evaluations, "epoch": max(1, whole_epochs), "end": 1}[evaluation.generate_at]
        if evaluation.generate_at != "evaluation" and config.checkpoint.keep_best and evaluation.metric in BLEU:
            generations += steps // save_every
    return Counts(saves, max(1, evaluations), generations)


def _times(steps: int, every: int) -> int:
    """Multiples of `every` up to `steps`, and the end where it is none."""
    return steps // every + (1 if steps % every else 0)
