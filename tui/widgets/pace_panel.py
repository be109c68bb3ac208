"""PacePanel: tokens a second, real and padded; data wait; step time against the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.language import mark, tr, tr_as
from trainwiz.core.telemetry.words import rough_words
from trainwiz.core.text import moment_words
from trainwiz.tui.text import gib, pad
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.monitor_panel import LABEL_WIDTH, MonitorPanel, join_fitting, pace_reason

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot

MUCH_WAIT = 0.25
FAR_S = 5 * 365.25 * 86400.0
"""A finish further away than this is no date."""
GAP = 3


class PacePanel(MonitorPanel):
    help_text = mark(
        "How fast the run goes. Real tokens carry text; padded ones count the filling of short rows too. Data wait "
        "is the share of a step in which the device waits for the next batch. Then the planned range of a step and "
        "the planned memory stand against what was measured, and what one step trains on."
    )

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        lines = [join_fitting(token_parts(snapshot), width), self._steps(snapshot, width)]
        lines += [join_fitting(memory_parts(snapshot, self.marks), width), join_fitting(batch_parts(snapshot), width)]
        lines = [line for line in lines if line]
        return [*lines, *since_lines(snapshot)] if height > len(lines) + 1 else lines

    def _steps(self, snapshot: Snapshot, width: int) -> Content:
        full = Content(" " * GAP).join(step_parts(snapshot, self.marks))
        return full if full.cell_length <= width else join_fitting(short_step_parts(snapshot, self.marks), width, 2)


def token_parts(snapshot: Snapshot) -> list[Content]:
    pace = snapshot.pace
    if pace.tokens_per_s is None and pace.real_tokens_per_s is None:
        return [Content.styled(pace_reason(snapshot), "$muted")]
    parts = []
    if pace.real_tokens_per_s is not None:
        parts.append(
            Content.assemble((tr("real") + " ", "$muted"), tr("{n} tokens/s", n=f"{pace.real_tokens_per_s:,.0f}"))
        )
    if pace.tokens_per_s is not None:
        number = f"{pace.tokens_per_s:,.0f}"
        words = number if pace.real_tokens_per_s is not None else tr("{n} tokens/s", n=number)
        parts.append(Content.assemble((tr("padded") + " ", "$muted"), words))
    if pace.data_wait is not None:
        style = "$warning" if pace.data_wait > MUCH_WAIT else "$foreground"
        parts.append(Content.assemble((tr("data wait") + " ", "$muted"), (f"{pace.data_wait * 100:.0f} %", style)))
    return parts


def step_parts(snapshot: Snapshot, marks: Marks) -> list[Content]:
    planned, measured = snapshot.planned, snapshot.pace.step_s
    parts = []
    low, high = planned.step_low_s, planned.step_high_s
    if low is not None and high is not None:
        parts.append(
            Content.assemble((tr("planned") + " ", "$muted"), tr("{seconds} s a step", seconds=_range(low, high)))
        )
    if measured is not None:
        seconds = step_seconds(measured)
        words = seconds if parts else tr("{seconds} s a step", seconds=seconds)
        parts.append(Content.assemble((tr("measured") + " ", "$muted"), words))
    return [*parts, *_step_verdict(snapshot, marks)]


def short_step_parts(snapshot: Snapshot, marks: Marks) -> list[Content]:
    """The same where there is little room, the measured time first."""
    planned, measured = snapshot.planned, snapshot.pace.step_s
    parts = []
    if measured is not None:
        parts.append(
            Content.assemble(
                (tr_as("what it takes", "step") + " ", "$muted"), tr("{amount} s", amount=step_seconds(measured))
            )
        )
    if planned.step_low_s is not None and planned.step_high_s is not None:
        range_ = _range(planned.step_low_s, planned.step_high_s)
        parts.append(Content.assemble((tr("planned") + " ", "$muted"), range_))
    return [*parts, *_step_verdict(snapshot, marks)]


def memory_parts(snapshot: Snapshot, marks: Marks) -> list[Content]:
    """ "memory planned 5.4 GiB   measured 5.3   ✓": the peak of the device against the plan."""
    planned, measured = snapshot.planned, snapshot.peak_memory_bytes
    if planned.memory_bytes is None or measured is None:
        return []
    parts = [
        Content.assemble((tr("memory planned") + " ", "$muted"), f"{gib(planned.memory_bytes)} GiB"),
        Content.assemble((tr("measured") + " ", "$muted"), gib(measured)),
    ]
    # Where one speaks of it as advice too, both have one judgement: that of the advice.
    codes = {advice.code for advice in snapshot.advice}
    if "memory_above_plan" in codes:
        parts.append(Content.styled(f"{marks.tight} {tr('more')}", "$warning"))
    elif "memory_below_plan" in codes:
        parts.append(Content.styled(f"{marks.dot} {tr('less')}", "$muted"))
    elif "memory_as_planned" in codes:
        parts.append(Content.styled(marks.ok, "$success"))
    return parts


def batch_parts(snapshot: Snapshot) -> list[Content]:
    """The effective batch, as far as it is known."""
    planned = snapshot.planned
    parts = []
    if planned.effective_samples:
        parts.append(
            Content.assemble((tr("a step") + " ", "$muted"), tr("{n} sequences", n=f"{planned.effective_samples:,}"))
        )
    if planned.effective_tokens:
        parts.append(Content(tr("{n} tokens", n=f"{planned.effective_tokens:,}")))
    return parts


def since_lines(snapshot: Snapshot) -> list[Content]:
    """When it began and, where that is known, when it is over."""
    lines = []
    if snapshot.started_s is not None:
        lines.append(Content.assemble((_label(tr("began")), "$muted"), moment_words(snapshot.started_s)))
    if snapshot.ended_s is not None and snapshot.ending is not None:
        lines.append(Content.assemble((_label(tr("ended")), "$muted"), moment_words(snapshot.ended_s)))
    elif snapshot.status == "quiet" and snapshot.written_s is not None:
        ago = tr("{time} ago", time=rough_words(snapshot.time_s - snapshot.written_s))
        lines.append(Content.assemble((_label(tr("written")), "$muted"), ago))
    elif snapshot.eta_s is not None and snapshot.eta_s < FAR_S:
        lines.append(
            Content.assemble((_label(tr("finishes")), "$muted"), moment_words(snapshot.time_s + snapshot.eta_s))
        )
    if snapshot.pace.wall_step_s is not None:
        words = tr("{seconds} s a step with evaluations and saving", seconds=step_seconds(snapshot.pace.wall_step_s))
        lines.append(Content.assemble((_label(tr("by clock")), "$muted"), words))
    return lines


def _step_verdict(snapshot: Snapshot, marks: Marks) -> list[Content]:
    measured, low, high = snapshot.pace.step_s, snapshot.planned.step_low_s, snapshot.planned.step_high_s
    if measured is None or low is None or high is None:
        return []
    if measured > high * 1.1:
        return [Content.styled(f"{marks.tight} {tr('slower')}", "$warning")]
    if measured < low * 0.9:
        return [Content.styled(f"{marks.dot} {tr('faster')}", "$muted")]
    return [Content.styled(marks.ok, "$success")]


def _label(text: str) -> str:
    return pad(text, LABEL_WIDTH)


def _range(low: float, high: float) -> str:
    first, second = step_seconds(low), step_seconds(high)
    return first if first == second else tr("{low} to {high}", low=first, high=second)


def step_seconds(seconds: float) -> str:
    """Three digits or so: "742", "12.3", "0.35", "0.004"."""
    if seconds >= 100:
        return f"{seconds:,.0f}"
    if seconds >= 10:
        return f"{seconds:.1f}"
    return f"{seconds:.2f}" if seconds >= 0.1 else f"{seconds:.2g}"
