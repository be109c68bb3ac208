"""What the Trainer tells its callbacks, and what the processes of a run ask each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class Moment(NamedTuple):
    """What is known where something happens."""

    args: TrainingArguments
    state: TrainerState
    control: TrainerControl
    values: dict[str, Any]
    """What only some events bring, as "logs"."""


class RunCallback(TrainerCallback):
    """A callback of the Trainer with a method for each event that it hears: `step_end(now)` for on_step_end."""

    def happens(self, event: str, now: Moment) -> None:
        method: Callable[[Moment], None] | None = getattr(self, event.removeprefix("on_"), None)
        if method is not None:
            method(now)


def _hears(event: str) -> Callable[..., None]:
    def hear(
        self: RunCallback, args: TrainingArguments, state: TrainerState, control: TrainerControl, **values: Any
    ) -> None:
        self.happens(event, Moment(args, state, control, values))

    return hear


for _event in dir(TrainerCallback):
    if _event.startswith("on_"):
        setattr(RunCallback, _event, _hears(_event))


def any_process(accelerator: Accelerator, mine: bool | torch.Tensor) -> bool:
    """Whether it is so in any process; every process must ask at the same place."""
    if accelerator.num_processes == 1:
        return bool(mine)
    flag = torch.as_tensor(mine).to(accelerator.device, torch.int64).reshape(1)
    return bool(accelerator.reduce(flag, reduction="sum").item() > 0)
