"""The learning rate at each step, as the scheduler that a run is exported with gives it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from trainwiz.core.config.run import RunConfig
from trainwiz.core.export.training_arguments import scheduler_arguments

Shape = Callable[[float], float]
"""Share of the way from the end of the warm-up (0) to the last step (1) -> share of the way from the last rate (0)
to the peak (1)."""

SHAPES: dict[str, Shape] = {
    "constant": lambda done: 1.0,
    "constant_with_warmup": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "polynomial": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
    "cosine_with_min_lr": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}
"""transformers/optimization.py, with the options that `scheduler_arguments` gives: polynomials of power 1, half a wave."""


@dataclass(frozen=True, slots=True)
class RateSchedule:
    """One learning rate for each step of a run of `steps` steps."""

    kind: str
    """Name of the scheduler in transformers."""
    steps: int
    warmup_steps: int
    peak: float
    last: float
    """The rate after the last step."""

    def at(self, step: int) -> float:
        """The rate of the step that follows `step` finished ones: what `metrics.jsonl` logs as step `step + 1`."""
        if step < self.warmup_steps and self.kind != "constant":
            return self.peak * step / max(1, self.warmup_steps)
        done = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        share = SHAPES[self.kind](min(1.0, max(0.0, done)))
        return self.last + (self.peak - self.last) * share

    @property
    def highest(self) -> float:
        """Of all steps; below `peak` where the run ends within its warm-up."""
        return self.at(min(self.warmup_steps, self.steps - 1))

    @property
    def ends_at(self) -> float:
        """The rate once all steps are done."""
        return self.at(self.steps)


def rate_schedule(config: RunConfig, steps: int) -> RateSchedule:
    """The schedule of a run of `steps` steps, which are those of `config` or, where they are not known, a guess.

    A scheduler in a DeepSpeed file of the user's would take its place; `deepspeed_check` holds it to the same shape.
    """
    training = config.training
    arguments = scheduler_arguments(config)
    kind, warmup = str(arguments["lr_scheduler_type"]), arguments["warmup_steps"]
    # TrainingArguments.get_warmup_steps
    warmup_steps = int(warmup) if warmup >= 1 else math.ceil(steps * warmup)
    options = arguments.get("lr_scheduler_kwargs", {})
    last = options.get("lr_end", options.get("min_lr", 0.0))
    if kind.startswith("constant"):
        last = training.learning_rate
    return RateSchedule(kind, steps, warmup_steps, training.learning_rate, float(last))
