"""Comparison: settings of one plan beside their alternatives, measured in turns on this machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from trainwiz.core.config.values import Attention, Optimizer, Precision
from trainwiz.core.history.measurement import is_date, is_number

Verdict = Literal["faster", "slower", "no_difference", "differs", "failed", "not_measured"]
"""Of an alternative against the setting of the plan; `differs`: its losses or gradients are others."""
WORTH_IT = 1.03
"""Pace over pace that is worth a change: an assumption."""
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14)
"""97.5 % point of Student's t for 1, 2, ... degrees of freedom; the last one for more."""

WORDS = {
    "engine.attention": get_args(Attention),
    "engine.optimizer": get_args(Optimizer),
    "engine.precision": get_args(Precision),
}
SWITCHES = frozenset({"engine.tf32", "engine.compile"})
"""Settings that are compared, with their values."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Pace over pace: 2.0 is half the time. The range is that of 95 % of such measurements."""

    likely: float
    low: float
    high: float

    def widened(self, noise: float) -> Gain:
        """With `noise`, the pace over pace of two processes of the very same settings: turns tell nothing of what a process
        is for good."""
        factor = max(noise, 1 / noise)
        return Gain(self.likely, self.low / factor, self.high * factor)

    @property
    def verdict(self) -> Verdict:
        if self.low > 1.0 and self.likely >= WORTH_IT:
            return "faster"
        return "slower" if self.high < 1.0 and self.likely <= 1 / WORTH_IT else "no_difference"


def gain_of(base_s: Sequence[float], other_s: Sequence[float]) -> Gain | None:
    """Of the seconds of the same rows, turn by turn; None with fewer than two turns, whose spread nobody knows.

    The geometric mean of the turns' ratios with its 95 % interval by Student's t of their logarithms.
    """
    logs = [math.log(base / other) for base, other in zip(base_s, other_s, strict=True)]
    if len(logs) < 2:
        return None
    mean = sum(logs) / len(logs)
    deviation = math.sqrt(sum((one - mean) ** 2 for one in logs) / (len(logs) - 1))
    half = STUDENT[min(len(logs) - 1, len(STUDENT)) - 1] * deviation / math.sqrt(len(logs))
    return Gain(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another value of one setting, or several together, against the plan's own."""

    changes: dict[str, Any]
    """Config key -> value."""
    base: dict[str, Any]
    """What the plan has there."""
    verdict: Verdict
    gain: float | None = None
    """Its pace over that of the plan's own: 1.4 is 1.4 times as fast."""
    gain_low: float | None = None
    gain_high: float | None = None
    turns: int = 0
    """In which both were measured with the same rows."""
    once_s: float | None = None
    """Seconds that its first steps take longer, once a run: compiling."""
    loss_difference: float | None = None
    """Relative difference of the mean losses of the same rows, in the first steps that both measured."""
    note: str = ""
    taken: bool = False
    """The next plan takes it where nobody chose a value; what is paid once, where the run is long enough."""

    @property
    def key(self) -> str:
        """Of its only setting; "" for several together."""
        return next(iter(self.changes)) if len(self.changes) == 1 else ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One `trainwiz bench --choose`."""

    measured_at: str
    machine: str
    """Key of the device, as in a Measurement; the fields below it too."""
    model: str
    model_name: str
    task: str
    precision: str
    strategy: str
    offload: str
    world_size: int
    lora_rank: int
    checkpointing: bool
    micro_batch: int
    accumulation: int
    length: int
    threads: int | None
    step_s: float | None
    """Of the plan's own settings, where it was measured."""
    alternatives: tuple[Alternative, ...]
    noise: float | None = None
    """The largest pace over pace of two processes of the plan's own settings, above 1; in the ranges of all gains."""
    packed: bool = False
    """Rows end to end (data.packing)."""
    versions: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def day(self) -> str:
        """ "2026-11-21"."""
        return self.measured_at[:10]

    def is_sound(self) -> bool:
        """As of a Measurement: what a file says may be anything."""
        words = (self.machine, self.model, self.model_name, self.task, self.precision, self.strategy, self.offload)
        counts = (self.world_size, self.micro_batch, self.accumulation, self.length)
        return (
            is_date(self.measured_at)
            and all(isinstance(one, str) for one in words)
            and all(isinstance(one, int) and is_number(one) and one > 0 for one in counts)
            and all(one is None or (is_number(one) and one > 0) for one in (self.step_s, self.noise))
            and isinstance(self.lora_rank, int)
            and (self.threads is None or isinstance(self.threads, int))
            and isinstance(self.packed, bool)
            and isinstance(self.versions, dict)
            and all(isinstance(one, str) for one in self.versions.values())
            and all(_is_sound(one) for one in self.alternatives)
        )

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Comparison:
        """Unknown keys of a newer version are left out. TypeError or KeyError for what is no comparison."""
        known = {one.name for one in fields(cls)}
        kept = {key: value for key, value in values.items() if key in known}
        inner = {one.name for one in fields(Alternative)}
        alternatives = tuple(
            Alternative(**{key: value for key, value in one.items() if key in inner})
            for one in kept["alternatives"]
            if isinstance(one, dict)
        )
        return cls(**{**kept, "alternatives": alternatives})


def _is_value(key: str, value: Any) -> bool:
    """Of a setting that this version knows, one of its values: a plan takes it."""
    known = WORDS.get(key)
    if known is not None:
        return isinstance(value, str) and value in known
    return isinstance(value, bool) if key in SWITCHES else isinstance(value, str | bool)


def _is_sound(one: Alternative) -> bool:
    figures = (one.gain, one.gain_low, one.gain_high)
    settings = (one.changes, one.base)
    return (
        one.verdict in get_args(Verdict)
        and all(figure is None or (is_number(figure) and figure > 0) for figure in figures)
        and (one.once_s is None or is_number(one.once_s))
        and all(isinstance(each, dict) and each.keys() == one.changes.keys() for each in settings)
        and all(_is_value(key, value) for each in settings for key, value in each.items())
        and isinstance(one.note, str)
        and isinstance(one.taken, bool)
        and (one.gain is not None or not one.taken)
    )
