"""When held-out rows are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainwiz.core.config import RunConfig
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


@dataclass(frozen=True, slots=True)
class EvaluationSchedule:
    """The steps after which a run evaluates. The last step is always one of them."""

    every_steps: int | None
    every_epoch: bool
    with_saves: bool
    """At each save too, so that every checkpoint has a score."""

    @classmethod
    def of(cls, config: RunConfig, *, with_saves: bool = False) -> EvaluationSchedule:
        every_epoch = config.evaluation.every_epoch
        every_steps = config.evaluation.every_steps
        if every_steps is None and not every_epoch:
            every_steps = config.checkpoint.every_steps
        return cls(every_steps, every_epoch, with_saves)

    def due(self, state: TrainerState, *, saves: bool) -> bool:
        step = state.global_step
        return (
            (self.every_steps is not None and step % self.every_steps == 0)
            or (self.every_epoch and ends_epoch(state))
            or (self.with_saves and saves)
            or step >= state.max_steps
        )


def ends_epoch(state: TrainerState) -> bool:
    """Whether the step that was just done is the last of its epoch: the Trainer's epoch is a whole number then."""
    return state.epoch is not None and float(state.epoch).is_integer()


class ScheduleCallback(TrainerCallback):
    """Evaluates by the schedule in place of the Trainer's own rule, which knows steps or epochs but not both.

    Always at the end of a step and before its save, so that the checkpoint holds the score, and
    never twice at one step.
    """

    def __init__(self, schedule: EvaluationSchedule | None) -> None:
        """None: nothing is held out, and nothing is evaluated."""
        self._schedule = schedule

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        control.should_evaluate = self._schedule is not None and self._schedule.due(state, saves=control.should_save)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        control.should_evaluate = False
