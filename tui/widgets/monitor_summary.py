"""MonitorSummary: device, host, pace and the worst advice in one line each, where panels have no room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.tui.theme import UNICODE_MARKS, Marks
from trainwiz.tui.widgets.advice_panel import advice_line
from trainwiz.tui.widgets.device_panel import device_line
from trainwiz.tui.widgets.host_panel import host_line
from trainwiz.tui.widgets.meters import join_fitting
from trainwiz.tui.widgets.pace_panel import token_parts
from trainwiz.tui.widgets.repaint import LinedWidget

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Snapshot


class MonitorSummary(LinedWidget):
    DEFAULT_CSS = """
    MonitorSummary { height: 4; padding: 0 1; color: $foreground; }
    """

    def __init__(self, *, marks: Marks = UNICODE_MARKS, id: str | None = None) -> None:
        super().__init__(id=id)
        self.marks = marks
        self.snapshot: Snapshot | None = None

    def show(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.refresh_changed()

    def content_lines(self) -> list[Content]:
        snapshot, width = self.snapshot, self.content_size.width
        if snapshot is None or width <= 0:
            return []
        lines = [device_line(snapshot), host_line(snapshot), join_fitting(token_parts(snapshot), width)]
        if snapshot.advice:
            worst = snapshot.advice[0]
            mark = {"error": self.marks.bad, "warning": self.marks.tight, "ok": self.marks.ok}.get(
                worst.level, self.marks.dot
            )
            lines.append(advice_line(worst, mark))
        return [line.truncate(width, ellipsis=True) for line in lines]
