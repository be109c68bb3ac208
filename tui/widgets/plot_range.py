"""StepRange: which steps a plot shows, and how keys, a mouse or typed words change that. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainwiz.core.language import mark, tr

ZOOM_SHARES = (1.0, 0.2, 0.04)
NARROWEST = 1e-6
"""Share of all steps below which a range is not narrowed further."""
HOW_TO_TYPE = mark("Type two steps as 400-900, or 400- for the rest, or last 500, or all.")

_SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_NUMBER = r"(\d[\d,_']*(?:\.\d+)?)\s*([kmg]?)"
_SPAN = re.compile(rf"(?:{_NUMBER})?\s*(?:-|–|\.\.|:|to|到|至|\s)\s*(?:{_NUMBER})?$")
_LAST = re.compile(rf"(?:last\s+|最后\s*){_NUMBER}\s*(%?)(?:\s*(?:steps?|步))?$")


@dataclass(frozen=True, slots=True)
class StepRange:
    """An end that is None is open: it follows the run. `share` or `length` count from the last step."""

    first: float | None = None
    last: float | None = None
    share: float = 1.0
    """Only the newest share of all steps, where neither end is given."""
    length: float | None = None
    """Only the newest `length` steps, where neither end is given."""

    def ends(self, low: float, high: float) -> tuple[float | None, float | None]:
        """The steps to draw of a run that has values from `low` to `high`; None leaves that end to the plot."""
        if self.first is not None or self.last is not None:
            return self.first, self.last
        if self.length is not None:
            return max(low, high - self.length), None
        return (None if self.share >= 1 else high - (high - low) * self.share), None

    def words(self) -> str:
        """What stands in the title; empty where all steps are shown."""
        if self.first is not None and self.last is not None:
            return tr("steps {first} to {last}", first=f"{self.first:,.0f}", last=f"{self.last:,.0f}")
        if self.first is not None:
            return tr("from step {step}", step=f"{self.first:,.0f}")
        if self.last is not None:
            return tr("to step {step}", step=f"{self.last:,.0f}")
        if self.length is not None:
            return tr("last {n} steps", n=f"{self.length:,.0f}")
        if self.share in (1.0, 0.2):
            return "" if self.share == 1 else tr("last fifth")
        return tr("last {share}", share=f"{self.share * 100:g} %")

    def next_zoom(self) -> StepRange:
        """All steps, the last fifth, the last 4 %, all again."""
        own = self in [StepRange(share=share) for share in ZOOM_SHARES]
        place = ZOOM_SHARES.index(self.share) + 1 if own else 1
        return StepRange(share=ZOOM_SHARES[place % len(ZOOM_SHARES)])

    def resized(self, factor: float, low: float, high: float, about: float | None = None) -> StepRange:
        """`factor` times as many steps around `about`; without it the last step shown stays where it is."""
        first, last = self._closed(low, high)
        length = (last - first) * factor
        if length >= high - low:
            return StepRange()
        if length < (high - low) * NARROWEST or length <= 0:
            return self
        if about is None:
            return StepRange(last - length, None if last >= high else last)
        start = about - length * (about - first) / (last - first)
        return StepRange(start, start + length)._within(low, high)

    def moved(self, direction: int, low: float, high: float) -> StepRange:
        """Half of its length to the left (-1) or to the right (1); it stops at the ends of the run."""
        first, last = self._closed(low, high)
        if last - first >= high - low:
            return self
        by = direction * (last - first) / 2
        return StepRange(first + by, last + by)._within(low, high)

    def _closed(self, low: float, high: float) -> tuple[float, float]:
        first, last = self.ends(low, high)
        return low if first is None else first, high if last is None else last

    def _within(self, low: float, high: float) -> StepRange:
        """The same length inside [low, high]; at the end of the run it follows the run."""
        assert self.first is not None and self.last is not None
        length = self.last - self.first
        first = min(max(self.first, low), high - length)
        return StepRange(first, None if first + length >= high else first + length)


def parse_range(text: str, low: float, high: float) -> StepRange:
    """The range that a user typed for a run with steps `low` to `high`. ValueError with one sentence."""
    typed = text.strip().lower()
    if typed in {"", "all", "-", "全部"}:
        return StepRange()
    if found := _LAST.match(typed):
        number, size, percent = found.groups()
        value = _value(number, size)
        if value <= 0:
            raise ValueError(tr("A range holds at least one step."))
        if percent:
            return StepRange(share=min(1.0, value / 100))
        return StepRange(length=value)
    if not (found := _SPAN.match(typed)):
        raise ValueError(tr(HOW_TO_TYPE))
    start, start_size, end, end_size = found.groups()
    first = None if start is None else _value(start, start_size)
    last = None if end is None else _value(end, end_size)
    if first is not None and first >= (high if last is None else last):
        if last is not None:
            raise ValueError(tr("The first step of a range lies before its last one."))
        known = {"low": f"{low:,.0f}", "high": f"{high:,.0f}"}
        raise ValueError(
            tr("The first step of a range lies before its last one; the run has steps {low} to {high}.", **known)
        )
    if last is not None and last <= low:
        raise ValueError(tr("There is nothing before step {step}.", step=f"{low:,.0f}"))
    if first is not None and first > high:
        raise ValueError(tr("There is nothing after step {step} yet.", step=f"{high:,.0f}"))
    return StepRange(first, last)


def _value(number: str, size: str | None) -> float:
    return float(re.sub("[,_']", "", number)) * _SIZES[size or ""]
