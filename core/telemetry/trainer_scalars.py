"""TrainerScalars: what the TensorBoard callback of a Trainer wrote, over all its sessions, under the Trainer's own names."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from trainwiz.core.telemetry.event_file import Scalar
from trainwiz.core.telemetry.scalars import Scalars

EPOCH = "epoch"
TRAIN = "train/"
OTHER_SETS = ("eval/", "test/")
MOST_BEFORE = 1_000
LEAST_STEP = -(1 << 63)


def trainer_name(tag: str) -> str:
    """The name before transformers' `rewrite_logs` made a tag of it: train/loss -> loss, eval/loss -> eval_loss."""
    if tag.startswith(TRAIN):
        return tag[len(TRAIN) :]
    for prefix in OTHER_SETS:
        if tag.startswith(prefix):
            return f"{prefix[:-1]}_{tag[len(prefix) :]}"
    return tag


class TrainerScalars(Scalars):
    """All sessions as one training. Each start of the Trainer writes a folder of its own: where a later
    one trains from an earlier step (it resumed a checkpoint, or began anew), what lies after that
    step is forgotten. Of two that train at the same time only the one that began last is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.training_began_s: float | None = None
        """Unix time of the first point of the newest session that trains."""
        self.current: Scalars | None = None
        """The newest session that trains."""
        self.last_trained_s = -math.inf
        self.joined = 0
        """Sessions whose points are one series here."""
        self.apart: list[Scalars] = []
        """Sessions that train beside `current`, and are left out."""

    def session(self) -> Scalars:
        """What takes the scalars of one more session."""
        return _Session(self)


class _Session(Scalars):
    def __init__(self, whole: TrainerScalars) -> None:
        super().__init__()
        self._whole = whole
        self._trains = False
        self._before: deque[Scalar] = deque(maxlen=MOST_BEFORE)
        """What it said before it trained: the values of an evaluation come before the epoch they are logged with."""

    def add_all(self, scalars: Iterable[Scalar], *, steps_back_purge: bool = False, session: object = None) -> None:
        self._whole.add_all(self._renamed(scalars), steps_back_purge=steps_back_purge, session=self)

    def _renamed(self, scalars: Iterable[Scalar]) -> Iterable[Scalar]:
        whole = self._whole
        for tag, step, value, time_s in scalars:
            if self._trains and whole.current is not self:
                if tag is not None and tag.startswith(TRAIN) and self not in whole.apart:
                    whole.apart.append(self)
                continue
            if tag is None:
                yield tag, step, value, time_s
                continue
            if tag.startswith(TRAIN):
                if not self._trains:
                    self._begin(step, time_s)
                    yield from (said for said in self._before if said[1] >= step)
                    self._before.clear()
                whole.last_trained_s = max(whole.last_trained_s, time_s)
            elif not self._trains:
                self._before.append((trainer_name(tag), step, value, time_s))
                if not step and whole.step:
                    # A model evaluated by a process of its own knows no step; it says nothing of the training's course.
                    continue
            yield trainer_name(tag), step, value, time_s

    def _begin(self, step: int, time_s: float) -> None:
        whole = self._whole
        if whole.current is not None and time_s < whole.last_trained_s:
            whole.apart.append(whole.current)
            step = LEAST_STEP
        self._trains, whole.current, whole.training_began_s, whole.last_trained_s = True, self, time_s, time_s
        whole.purge(step)
        whole.joined = whole.joined + 1 if "loss" in whole.tags else 1
