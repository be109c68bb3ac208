"""PacePanel: tokens a second, real and padded; data wait; step time against the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.meters import join_fitting
from trainwiz.tui.widgets.monitor_panel import MonitorPanel

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot

MUCH_WAIT = 0.15
GAP = 3


class PacePanel(MonitorPanel):
    help_text = (
        "How fast the run goes. Real tokens carry text; padded ones count the filling of short rows too. Data wait "
        "is the share of a step in which the device waits for the next batch. The last line sets the planned "
        "range of a step against the measured one."
    )

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        return [
            join_fitting(token_parts(snapshot), width),
            self._steps(snapshot, width),
        ]

    def _steps(self, snapshot: Snapshot, width: int) -> Content:
        full = Content(" " * GAP).join(step_parts(snapshot, self.marks))
        return full if full.cell_length <= width else join_fitting(short_step_parts(snapshot, self.marks), width, 2)


def token_parts(snapshot: Snapshot) -> list[Content]:
    pace = snapshot.pace
    if pace.tokens_per_s is None and pace.real_tokens_per_s is None:
        return [Content.styled("No pace yet: it comes with the first logged step.", "$muted")]
    parts = []
    if pace.real_tokens_per_s is not None:
        parts.append(Content.assemble(("real ", "$muted"), f"{pace.real_tokens_per_s:,.0f} tokens/s"))
    if pace.tokens_per_s is not None:
        unit = " tokens/s" if pace.real_tokens_per_s is None else ""
        parts.append(Content.assemble(("padded ", "$muted"), f"{pace.tokens_per_s:,.0f}{unit}"))
    if pace.data_wait is not None:
        style = "$warning" if pace.data_wait > MUCH_WAIT else "$foreground"
        parts.append(Content.assemble(("data wait ", "$muted"), (f"{pace.data_wait * 100:.0f} %", style)))
    return parts


def step_parts(snapshot: Snapshot, marks: Marks) -> list[Content]:
    planned, measured = snapshot.planned, snapshot.pace.step_s
    parts = []
    low, high = planned.step_low_s, planned.step_high_s
    if low is not None and high is not None:
        first, second = step_seconds(low), step_seconds(high)
        range_ = first if first == second else f"{first} to {second}"
        parts.append(Content.assemble(("planned ", "$muted"), f"{range_} s a step"))
    if measured is not None:
        unit = "" if parts else " s a step"
        parts.append(Content.assemble(("measured ", "$muted"), f"{step_seconds(measured)}{unit}"))
    return [*parts, *_step_verdict(snapshot, marks)]


def short_step_parts(snapshot: Snapshot, marks: Marks) -> list[Content]:
    """The same where there is little room, the measured time first."""
    planned, measured = snapshot.planned, snapshot.pace.step_s
    parts = []
    if measured is not None:
        parts.append(Content.assemble(("step ", "$muted"), f"{step_seconds(measured)} s"))
    if planned.step_low_s is not None and planned.step_high_s is not None:
        range_ = f"{step_seconds(planned.step_low_s)} to {step_seconds(planned.step_high_s)}"
        parts.append(Content.assemble(("planned ", "$muted"), range_))
    return [*parts, *_step_verdict(snapshot, marks)]


def _step_verdict(snapshot: Snapshot, marks: Marks) -> list[Content]:
    measured, low, high = snapshot.pace.step_s, snapshot.planned.step_low_s, snapshot.planned.step_high_s
    if measured is None or low is None or high is None:
        return []
    if measured > high * 1.1:
        return [Content.styled(f"{marks.tight} slower", "$warning")]
    if measured < low * 0.9:
        return [Content.styled(f"{marks.ok} faster", "$success")]
    return [Content.styled(marks.ok, "$success")]


def step_seconds(seconds: float) -> str:
    """Three digits or so: "742", "12.3", "0.35", "0.004"."""
    if seconds >= 100:
        return f"{seconds:,.0f}"
    if seconds >= 10:
        return f"{seconds:.1f}"
    return f"{seconds:.2f}" if seconds >= 0.1 else f"{seconds:.2g}"
