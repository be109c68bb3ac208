"""AdvicePanel: what the figures have to say, worst first, each with a mark and words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.plain import plain_text
from trainwiz.tui.keys import PANEL_NAMES
from trainwiz.tui.widgets.monitor_panel import MonitorPanel
from trainwiz.tui.wrapping import wrap

if TYPE_CHECKING:
    from trainwiz.core.run.advice import Advice
    from trainwiz.core.telemetry.snapshot import Snapshot

PANEL_KEY = str(PANEL_NAMES.index("advice") + 1)
STYLES = {"error": "$error", "warning": "$warning", "note": "$muted", "ok": "$success"}


class AdvicePanel(MonitorPanel):
    help_text = mark(
        "What stands out: heat, memory against the plan, waiting for data, a disk that fills up, a loss that is not "
        "a number. Marks: ✗ needs you now, ! is worth a look, ✓ is as it should be."
    )

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        lines = self._advice_lines(snapshot, width, remedies=True)
        if len(lines) > height:
            # What stands out comes before what could be done about it.
            lines = self._advice_lines(snapshot, width, remedies=False)
        if len(lines) > height > 1:
            hidden = len(lines) - height + 1
            if self.has_class("-alone"):
                more = trn(
                    "{n} more line: a larger terminal shows it.",
                    "{n} more lines: a larger terminal shows them.",
                    hidden,
                )
            else:
                more = trn("{n} more line: {key} shows it.", "{n} more lines: {key} shows them.", hidden, key=PANEL_KEY)
            lines = [*lines[: height - 1], Content.styled(more, "$muted")]
        return lines or [Content.styled(tr("Nothing to say yet."), "$muted")]

    def _advice_lines(self, snapshot: Snapshot, width: int, *, remedies: bool) -> list[Content]:
        lines: list[Content] = []
        for sentence in snapshot.problems:
            lines += self._wrapped("warning", sentence, width)
        # Why something is not known stands in the panel that would show it.
        reasons = set(snapshot.unavailable.values())
        for advice in snapshot.advice:
            if advice.text in reasons:
                continue
            lines += self._wrapped(advice.level, advice.text, width)
            if remedies and advice.remedy:
                wrapped = wrap(plain_text(advice.remedy, 400), max(10, width - 2))
                lines += [Content.styled(f"  {line}", "$muted") for line in wrapped]
        return lines

    def _wrapped(self, level: str, text: str, width: int) -> list[Content]:
        sign = {"error": self.marks.bad, "warning": self.marks.tight, "ok": self.marks.ok}.get(level, self.marks.dot)
        first, *rest = wrap(plain_text(text, 400), max(10, width - 2)) or [""]
        return [Content.assemble((sign, STYLES[level]), " ", first), *(Content(f"  {line}") for line in rest)]


def advice_line(advice: Advice, mark: str) -> Content:
    """One piece of advice in one line, for small terminals."""
    return Content.assemble((mark, STYLES[advice.level]), " ", plain_text(advice.text))
