"""PacePanel: tokens a second, real and padded; data wait; step time against the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.tui.widgets.meters import join_fitting
from trainwiz.tui.widgets.monitor_panel import MonitorPanel

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot

MUCH_WAIT = 0.15


class PacePanel(MonitorPanel):
    help_text = (
        "How fast the run goes. Real tokens carry text; padded ones count the filling of short rows too. Data wait "
        "is the share of a step in which the device waits for the next batch. The last line sets the planned "
        "range of a step against the measured one."
    )

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        return [
            join_fitting(token_parts(snapshot), width),
            join_fitting(step_parts(snapshot, self.marks.ok, self.marks.tight, self.marks.minus), width),
        ]


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


def step_parts(snapshot: Snapshot, ok: str, tight: str, minus: str) -> list[Content]:
    planned, measured = snapshot.planned, snapshot.pace.step_s
    parts = []
    low, high = planned.step_low_s, planned.step_high_s
    if low is not None and high is not None:
        range_ = (
            step_seconds(low)
            if step_seconds(low) == step_seconds(high)
            else f"{step_seconds(low)} to {step_seconds(high)}"
        )
        parts.append(Content.assemble(("planned ", "$muted"), f"{range_} s a step"))
    if measured is not None:
        unit = "" if parts else " s a step"
        parts.append(Content.assemble(("measured ", "$muted"), f"{step_seconds(measured)}{unit}"))
    if measured is not None and low is not None and high is not None:
        if measured > high * 1.1:
            parts.append(Content.styled(f"{tight} slower", "$warning"))
        elif measured < low * 0.9:
            parts.append(Content.styled(f"{ok} faster", "$success"))
        else:
            parts.append(Content.styled(ok, "$success"))
    return parts


def step_seconds(seconds: float) -> str:
    """Three digits or so: "742", "12.3", "0.35", "0.004"."""
    if seconds >= 100:
        return f"{seconds:,.0f}"
    if seconds >= 10:
        return f"{seconds:.1f}"
    return f"{seconds:.2f}" if seconds >= 0.1 else f"{seconds:.2g}"
