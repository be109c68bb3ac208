"""MonitorPanel: a framed part of the monitor; its meters, and the panel of advice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.content import Content
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import PANEL_NAMES, ScreenName
from trainwiz.tui.text import pad, wrap
from trainwiz.tui.theme import UNICODE_MARKS, Marks
from trainwiz.tui.widgets.lists import LinedWidget

if TYPE_CHECKING:
    from trainwiz.core.run.attempts import Advice
    from trainwiz.core.telemetry.snapshot import Snapshot


# What a panel says where nothing is known: the reason that the source gives, else what is to be expected.

NO_SAMPLE = mark("No sample of the machine yet; they come while the run lives.")
NOT_HERE = mark("The files do not say which machine trains, and no process of the job was found on this one.")
NO_PACE = mark("No pace yet: it comes with the first logged step.")
SHORT = mark("Nothing is known of its processes, RAM and disk.")
"""Where the panel of the device beside it has the reason already."""


def machine_reason(snapshot: Snapshot) -> str:
    """Why nothing is known of the machine and the processes."""
    for key in ("machine", "processes", "host"):
        if snapshot.unavailable.get(key):
            return plain_text(snapshot.unavailable[key], 300)
    return tr(NO_SAMPLE) if snapshot.source == "run" else tr(NOT_HERE)


def pace_reason(snapshot: Snapshot) -> str:
    """Why no tokens a second are known."""
    if snapshot.unavailable.get("pace"):
        return plain_text(snapshot.unavailable["pace"], 300)
    if snapshot.source == "run":
        return tr(NO_PACE) if snapshot.ending is None else tr("No tokens/s were logged.")
    return tr("No tokens/s: this job logs none.")


# Meters: lines of a panel made of a label, a small chart and a right-aligned value.

LABEL_WIDTH = 9
UNICODE_LEVELS = "▁▂▃▄▅▆▇█"
ASCII_LEVELS = "_.:-=+*#"


def spark(values: Sequence[float | None], width: int, highest: float, marks: Marks) -> str:
    """The newest `width` values as levels between 0 and `highest`; a value that is not known is a blank."""
    levels = UNICODE_LEVELS if marks == UNICODE_MARKS else ASCII_LEVELS
    newest = list(values)[-width:] if width > 0 else []
    top = len(levels) - 1
    return "".join(
        " " if value is None else levels[max(0, min(top, round(value / highest * top) if highest > 0 else 0))]
        for value in newest
    )


def bar(share: float, width: int, marks: Marks, planned: float | None = None, style: str = "$accent") -> Content:
    """A bar of `width` cells, `share` of it full, with a stroke where the plan expected it to end."""
    filled = max(0, min(width, round(share * width)))
    cells = [(marks.full, style)] * filled + [(marks.empty, "$track")] * (width - filled)
    if planned is not None and width > 0 and 0 <= planned <= 1:
        place = min(width - 1, round(planned * width))
        cells[place] = ("│" if marks == UNICODE_MARKS else "|", "$foreground")
    return Content.assemble(*_runs(cells))


def thin_bar(share: float, width: int, marks: Marks, style: str = "$accent") -> Content:
    """A line of `width` cells, `share` of it heavy; told apart without colours too."""
    heavy, light = ("━", "─") if marks == UNICODE_MARKS else ("=", "-")
    filled = max(0, min(width, round(share * width)))
    return Content.assemble((heavy * filled, style), (light * (width - filled), "$track"))


def _runs(cells: list[tuple[str, str]]) -> list[tuple[str, str]]:
    runs: list[tuple[str, str]] = []
    for character, style in cells:
        if runs and runs[-1][1] == style:
            runs[-1] = (runs[-1][0] + character, style)
        else:
            runs.append((character, style))
    return runs


def meter(label: str, chart: Content, value: Content, width: int) -> Content:
    """One line: label, chart, and the value at the right end; the chart gives way first."""
    room = width - LABEL_WIDTH - value.cell_length - 1
    shown = chart.truncate(max(0, room)).pad_right(max(0, room - chart.cell_length))
    return Content.assemble((pad(label, LABEL_WIDTH), "$muted"), shown, " ", value)


def spark_meter(
    label: str,
    values: Sequence[float | None],
    highest: float,
    value: Content,
    width: int,
    marks: Marks,
    value_width: int = 0,
) -> Content:
    """A meter with the recent past as its chart."""
    padded = value.pad_left(max(0, value_width - value.cell_length))
    room = max(0, width - LABEL_WIDTH - padded.cell_length - 2)
    return meter(label, Content.styled(spark(values, room, highest, marks).rjust(room), "$accent 75%"), padded, width)


def bar_meter(
    label: str,
    share: float | None,
    value: Content,
    width: int,
    marks: Marks,
    planned: float | None = None,
    value_width: int = 0,
) -> Content:
    """A meter with a bar; without a share it has only its value."""
    padded = value.pad_left(max(0, value_width - value.cell_length))
    room = max(0, width - LABEL_WIDTH - padded.cell_length - 2)
    chart = Content() if share is None else bar(share, room, marks, planned)
    return meter(label, chart, padded, width)


def spread(left: Content, right: Content, width: int) -> Content:
    """`left` and `right` at the two ends of a line; the right one gives way when both do not fit."""
    gap = width - left.cell_length - right.cell_length
    if gap < 2:
        return left.truncate(width, ellipsis=True)
    return Content.assemble(left, " " * gap, right)


def join_fitting(parts: Sequence[Content], width: int, gap: int = 3) -> Content:
    """As many of `parts` as fit into `width`, in their order."""
    line = Content()
    for part in parts:
        wanted = part if not line else Content.assemble(line, " " * gap, part)
        if wanted.cell_length > width:
            break
        line = wanted
    return line if line or not parts else parts[0].truncate(width, ellipsis=True)


# MonitorPanel: a framed part of the monitor that draws itself from a snapshot in the room it has.


def frame_title(text: str) -> Content:
    """A title for a frame. Content, because a string would be read as markup, and `escape` lets some through."""
    return Content(plain_text(text))


class MonitorPanel(LinedWidget, can_focus=True):
    """A panel says in `lines` what it shows; `title` goes into its frame. `help_text` explains it to F1."""

    help_text = ""
    key_table: ClassVar[ScreenName | None] = None
    """The rows of the key table that work while this panel has the focus."""

    DEFAULT_CSS = """
    MonitorPanel {
        border: round $line; border-title-color: $muted; border-title-style: none;
        padding: 0 1; color: $foreground; height: auto;
    }
    MonitorPanel:focus { border: round $accent; border-title-color: $accent; }
    """

    def __init__(self, title: str, *, marks: Marks = UNICODE_MARKS, id: str | None = None) -> None:
        super().__init__(id=id)
        self.marks = marks
        self.snapshot: Snapshot | None = None
        self._title = title
        self.border_title = frame_title(title)
        self._drawn_title = title

    def show(self, snapshot: Snapshot) -> None:
        """Show this look; what reads as before is not drawn again."""
        self.snapshot = snapshot
        self._show_title(self.has_focus)
        self.refresh_changed()

    def _show_title(self, focused: bool) -> None:
        """A mark before the title says in every terminal which panel has the focus."""
        title = f"{self.marks.here} {self.title_text}" if focused else self.title_text
        if title != self._drawn_title:
            self._drawn_title = title
            self.border_title = frame_title(title)

    def on_focus(self) -> None:
        self._show_title(True)

    def on_blur(self) -> None:
        self._show_title(False)

    def title_of(self, snapshot: Snapshot) -> str:
        """What stands in the frame."""
        return self._title

    @property
    def title_text(self) -> str:
        """The title as it stands in the frame, without the mark of the focus."""
        return self._title if self.snapshot is None else self.title_of(self.snapshot)

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        """At most `height` lines of at most `width` cells, the most important ones first."""
        return []

    def wrapped(self, sentence: str, width: int) -> list[Content]:
        """A quiet sentence in as many lines as it needs."""
        return [Content.styled(line, "$muted") for line in wrap(plain_text(sentence, 400), max(10, width))]

    def content_lines(self) -> list[Content]:
        width, height = self.content_size
        if self.snapshot is None or width <= 0:
            return []
        return [line.truncate(width, ellipsis=True) for line in self.lines(self.snapshot, width, height)[:height]]


# AdvicePanel: what the figures have to say, worst first, each with a mark and words.

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
