"""How often a run saves, evaluates and generates: what core/training/evaluation_schedule.py and generation.py do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from trainwiz.core.config import RunConfig
from trainwiz.core.config.metrics import generates_at_saves


@dataclass(frozen=True, slots=True)
class Counts:
    """Over the whole run, the last step included."""

    saves: int
    evaluations: int
    generations: int


def count_events(config: RunConfig, steps: int, epochs: float | None) -> Counts:
    """`epochs` is None where the rows are not known; an evaluation at each epoch then counts as the last one."""
    evaluation = config.evaluation
    save_every = config.checkpoint.every_steps or steps
    at_epochs = _ends_of_epochs(steps, epochs)
    at_saves = _Every(save_every)
    every = evaluation.every_steps
    if every is None and not evaluation.every_epoch:
        every = save_every
    evaluates = [_Every(every)] if every else []
    evaluates += [at_epochs] if evaluation.every_epoch else []
    evaluates += [at_saves] if config.checkpoint.keep_best else []
    generates = {"evaluation": evaluates, "epoch": [at_epochs], "end": []}[evaluation.generate_at]
    if generates_at_saves(config):
        generates = [*generates, at_saves]
    return Counts(
        saves=_moments(steps, [at_saves]) if config.mode.saves else 0,
        evaluations=_moments(steps, evaluates),
        generations=_moments(steps, generates) if evaluation.generate else 0,
    )


@dataclass(frozen=True, slots=True)
class _Every:
    """Each multiple of `steps`; or, with `times`, so many moments before the end that fall together with no others."""

    steps: int
    times: int | None = None


def _ends_of_epochs(steps: int, epochs: float | None) -> _Every:
    if not epochs:
        return _Every(steps)
    each = steps / epochs
    return _Every(int(each)) if each >= 1 and each.is_integer() else _Every(steps, math.ceil(epochs) - 1)


def _moments(steps: int, rules: Sequence[_Every]) -> int:
    """Steps of a run that one rule or several name, and its last step. Multiples of several count once."""
    inside = steps - 1
    apart = sum(rule.times for rule in rules if rule.times is not None)
    intervals = {rule.steps for rule in rules if rule.times is None}
    together = 0
    for size in range(1, len(intervals) + 1):
        for some in combinations(intervals, size):
            together += (-1) ** (size + 1) * (inside // math.lcm(*some))
    return 1 + apart + together
