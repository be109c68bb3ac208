"""Axes: round ticks and short labels for linear and logarithmic scales."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from trainwiz.core.language import tr

LARGE = 1e4
LARGE_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
"""From LARGE on."""


LARGEST, SMALLEST = 1e300, 1e-290
"""Beyond these a float has no room for what is computed from it."""
SYMMETRIC_DECADES = 3
"""A logarithmic scale of values on both sides of 0 is linear below the largest one divided by 10 to this power."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to dot rows; `low` and `high` are the values at the bottom and at the top."""

    low: float
    high: float
    logarithmic: bool = False
    linear_below: float = 0.0
    """Above 0 on a symmetric logarithmic scale: values nearer to 0 than this are spread evenly."""

    def share(self, value: float) -> float:
        """0 at the bottom, 1 at the top; outside of [0, 1] for values outside."""
        bottom, top = self._bent(self.low), self._bent(self.high)
        return (self._bent(value) - bottom) / (top - bottom)

    def _bent(self, value: float) -> float:
        if self.linear_below:
            return math.copysign(math.log10(1 + abs(value) / self.linear_below), value)
        return math.log10(value) if self.logarithmic else value


def within_reach(value: float) -> float:
    return min(max(value, -LARGEST), LARGEST)


def make_scale(low: float, high: float, logarithmic: bool) -> Scale:
    """A scale that shows [low, high] with a little air; a flat curve gets room on both sides.

    A logarithmic one that has to show values below 0 is symmetric about 0.
    """
    low, high = within_reach(low), within_reach(high)
    if logarithmic and low > 0:
        low, high = max(low, SMALLEST), max(high, SMALLEST)
        if high / low < 1.001:
            return Scale(low / 1.1, high * 1.1, True)
        return Scale(low, high, True)
    span = high - low
    if span <= max(abs(low), abs(high), SMALLEST) * 1e-9:
        room = abs(high) * 0.05 if abs(high) > SMALLEST else 1.0
        return Scale(low - room, high + room)
    if logarithmic:
        return Scale(low, high, True, max(abs(low), abs(high)) / 10.0**SYMMETRIC_DECADES)
    return Scale(low, high)


def ticks_of(scale: Scale, count: int) -> list[float]:
    """At most about `count` round values inside the scale, from below."""
    if scale.linear_below:
        return symmetric_ticks(scale, count)
    return (log_ticks if scale.logarithmic else linear_ticks)(scale.low, scale.high, count)


def round_step(span: float, count: int) -> float:
    """The smallest of 1, 2, 5 x 10^n that cuts `span` into at most `count` parts."""
    rough = span / max(1, count)
    power = 10.0 ** math.floor(math.log10(rough))
    for factor in (1.0, 2.0, 5.0, 10.0):
        if factor * power >= rough * (1 - 1e-9):
            return factor * power
    return 10.0 * power


def linear_ticks(low: float, high: float, count: int) -> list[float]:
    """Round values inside [low, high], at most about `count`."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low]
    step = round_step(high - low, count)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, min(last, first + 4 * count) + 1)]


def log_ticks(low: float, high: float, count: int) -> list[float]:
    """Powers of ten inside [low, high], with 2 and 5 between them where there is room; few decades give linear ticks."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1, 2, 5), (1,)):
        ticks = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
        ticks = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if 2 <= len(ticks) <= count + 1:
            return ticks
    if len(ticks) < 2:
        return linear_ticks(low, high, count)
    stride = math.ceil(len(ticks) / count)
    return ticks[::stride]


def symmetric_ticks(scale: Scale, count: int) -> list[float]:
    """0 and powers of ten on both sides of it, from the largest down; a narrow range gets linear ones."""
    largest = math.floor(math.log10(max(abs(scale.low), abs(scale.high))))
    powers = [10.0**power for power in range(largest, largest - SYMMETRIC_DECADES, -1)]
    ticks: list[float] = []
    for tick in (0.0, *(sign * power for power in powers for sign in (1.0, -1.0))):
        if scale.low <= tick <= scale.high and len(ticks) < count:
            ticks.append(tick)
    return sorted(ticks) if len(ticks) >= 2 else linear_ticks(scale.low, scale.high, count)


def tick_labels(ticks: list[float]) -> list[str]:
    """The ticks as text, all with the same number of decimals."""
    if not ticks:
        return []
    if len(ticks) == 1:
        # No gap says how many decimals matter.
        return [value_label(ticks[0])]
    largest = max(abs(tick) for tick in ticks)
    gap = min((b - a for a, b in pairwise(ticks) if b > a), default=largest or 1.0)
    if largest >= LARGE:
        size, unit = next((size, unit) for size, unit in LARGE_UNITS if largest >= size)
        if largest < 1e15:
            return ["0" if tick == 0 else f"{tick / size:.{_decimals(gap / size)}f}{unit}" for tick in ticks]
        return ["0" if tick == 0 else short_exponent(f"{tick:.{_digits(tick, gap)}e}") for tick in ticks]
    if largest < 1e-2:
        return ["0" if tick == 0 else short_exponent(f"{tick:.{_digits(tick, gap)}e}") for tick in ticks]
    return [f"{tick:.{_decimals(gap)}f}" for tick in ticks]


def short_exponent(text: str) -> str:
    """ "2.4e-04" as "2.4e-4"."""
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else text


def value_label(value: float) -> str:
    """One value, short: four significant digits, also where the last ones are 0, so that a column keeps its width."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return tr("infinite") if value > 0 else tr("−infinite")
    size = abs(value)
    if size >= LARGE:
        for unit_size, unit in LARGE_UNITS:
            if size >= unit_size:
                return f"{value / unit_size:.2f}{unit}" if size < 1e15 else short_exponent(f"{value:.2e}")
    if 0 < size < 1e-2:
        return short_exponent(f"{value:.1e}")
    if size >= 999.95 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:#.4g}" if size >= 1 else f"{value:.3f}"


def _decimals(gap: float) -> int:
    return max(0, min(8, -math.floor(math.log10(gap) + 1e-9)))


def _digits(tick: float, gap: float) -> int:
    return max(0, min(4, math.floor(math.log10(abs(tick)) + 1e-9) - math.floor(math.log10(gap) + 1e-9)))
