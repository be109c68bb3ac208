"""The sessions of a Trainer in its event files, and what it says at its end."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainwiz.core.telemetry.metrics import MetricSummary
from trainwiz.core.telemetry.scalar_files import Scalar, Scalars
from trainwiz.core.telemetry.series import Curve
from trainwiz.core.text import numbers_finite

# TrainerScalars: what the TensorBoard callback of a Trainer wrote, over all its sessions, under the Trainer's own names.

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


# TrainerSummary: the figures that a Trainer logs at its end, and what they are figures of.

RATE_DIGITS = 0.0005
"""Rates are rounded to thousandths, and to four digits in newer logs."""
COARSE = 0.02
"""A figure that rounding makes less certain than this is none."""
WHOLE = 0.4
"""Off by less, a count is the whole number next to it."""


@dataclass(frozen=True, slots=True)
class TrainerSummary:
    """The row with `train_runtime`; None where it does not say."""

    runtime_s: float | None
    steps_per_s: float | None
    samples_per_s: float | None
    train_loss: float | None

    @classmethod
    def of(cls, metrics: Mapping[str, MetricSummary]) -> TrainerSummary:
        names = ("train_runtime", "train_steps_per_second", "train_samples_per_second", "train_loss")
        known = (numbers_finite(metrics[name].last) if name in metrics else None for name in names)
        return cls(*(value if value is not None and value > 0 else None for value in known))

    def _counted(self) -> tuple[float, float] | None:
        """The steps that the rate was made from, and how far rounding may have moved them."""
        if not self.runtime_s or not self.steps_per_s:
            return None
        steps, off = self.steps_per_s * self.runtime_s, self.runtime_s * RATE_DIGITS * max(1.0, self.steps_per_s)
        return (round(steps), 0.0) if off < WHOLE else (steps, off)

    def session_steps(self, loss: Curve, step: int | None, max_steps: int | None) -> float | None:
        """The steps of the session that ran for `runtime_s`; None where nothing proves them.

        Trainers before transformers 5 divide by the planned steps, whatever was done of them, and carry the rows
        of earlier sessions along. What they do say is the sum of all losses of the session, as `train_loss`
        times the last step: the logged losses show from which step on they make up that sum.
        """
        counted = self._counted()
        if counted is not None and max_steps and counted[0] + counted[1] < max_steps - 0.5:
            return counted[0] if counted[1] <= COARSE * counted[0] else None
        if not step or not self.train_loss or not len(loss.steps):
            return None
        if loss.bucket_steps or loss.non_finite_steps or min(loss.values) < 0:
            return None
        began = _began_at(loss, step, self.train_loss * step)
        return None if began is None or began >= step else step - began

    def covers_plan(self, session_steps: float | None, max_steps: int | None) -> bool:
        """Whether rates per planned step are those of what was done."""
        counted = self._counted()
        if counted is None or not max_steps or counted[0] + counted[1] < max_steps - 0.5:
            return True
        return session_steps is not None and session_steps >= max_steps * (1 - COARSE)

    def effective_samples(self, unit: int, step: int | None, epoch: float | None, max_steps: int | None) -> int | None:
        """Sequences of one optimizer step: the one multiple of `unit` that the rates, as rounded, can come from."""
        counted = self._counted()
        if counted is None or not self.samples_per_s or not self.runtime_s or counted[1] >= counted[0]:
            return None
        least, most = counted[0] - counted[1], counted[0] + counted[1]
        if max_steps and least <= max_steps <= most:
            least = most = max_steps
        samples, off = self.samples_per_s * self.runtime_s, self.runtime_s * RATE_DIGITS * max(1.0, self.samples_per_s)
        low, high = (samples - off) / most, (samples + off) / least
        if (high - low) < unit / 4 and (fitting := _only_multiple(unit, low, high)):
            return fitting
        # The last batch of an epoch may be smaller than the others, or left out.
        a_pass = step / epoch if step and epoch else 0.0
        if not 1 < a_pass < math.inf:
            return None
        return _only_multiple(unit, low * a_pass / (a_pass + 1), high * a_pass / (a_pass - 1))


def _only_multiple(unit: int, low: float, high: float) -> int | None:
    last = math.floor(high / unit) * unit if math.isfinite(high) else 0
    return last if last >= low > last - unit and last > 0 else None


def _began_at(loss: Curve, step: int, total: float) -> float | None:
    """The step after which the losses of all steps until `step` add up to `total`; 0 where all of them do."""
    ends = [*loss.steps]
    if ends[-1] > step:
        return None
    # What came after the last logged step counts as it did.
    ends[-1] = step
    parts = [
        (end, end - before, value) for before, end, value in zip([0.0, *ends[:-1]], ends, loss.values, strict=True)
    ]
    whole = sum(steps * value for _, steps, value in parts)
    if abs(whole - total) <= COARSE * whole:
        return 0.0
    for end, steps, value in reversed(parts):
        if total <= steps * value:
            return end - total / value if value else None
        total -= steps * value
    return None
