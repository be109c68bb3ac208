"""MonitorPanel: a framed part of the monitor that draws a snapshot; its meters, and the panels of advice and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.content import Content
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import ScreenName, bindings
from trainwiz.tui.text import cut, pad, wrap
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.lists import LinedWidget, level_sign

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Answer, PromptAnswers, Snapshot


# What a panel says where nothing is known: the reason that the source gives, else what is to be expected.

NO_SAMPLE = mark("No samples of the machine yet; they are taken while the run is active.")
NOT_HERE = mark("The files do not show which machine is training, and no process of the job was found on this one.")
NO_PACE = mark("No pace yet: it appears after the first logged step.")


def machine_reason(snapshot: Snapshot) -> str:
    for key in ("machine", "processes", "host"):
        if snapshot.unavailable.get(key):
            return plain_text(snapshot.unavailable[key], 300)
    return tr(NO_SAMPLE) if snapshot.source == "run" else tr(NOT_HERE)


def pace_reason(snapshot: Snapshot) -> str:
    if snapshot.source == "run":
        return tr(NO_PACE) if snapshot.ending is None else tr("No tokens/s were logged.")
    return tr("No tokens/s: this job does not log it.")


LABEL_WIDTH = 9
VALUE_WIDTH = 15
ROOMY = 36
"""Where there is so much room, the values of all meters end at the same place and their charts begin at one."""


def spark(values: Sequence[float | None], width: int, highest: float) -> str:
    """The newest `width` values as levels between 0 and `highest`; a value that is not known is a blank."""
    levels = marks.levels
    newest = list(values)[-width:] if width > 0 else []
    top = len(levels) - 1
    return "".join(
        " " if value is None else levels[max(0, min(top, round(value / highest * top) if highest > 0 else 0))]
        for value in newest
    )


def bar(share: float, width: int, planned: float | None = None) -> Content:
    """A bar of `width` cells, `share` of it full, with a stroke where the plan expected it to end."""
    filled = max(0, min(width, round(share * width)))
    line = Content.assemble((marks.full * filled, "$accent"), (marks.empty * (width - filled), "$track"))
    if planned is None or width <= 0 or not 0 <= planned <= 1:
        return line
    place = min(width - 1, round(planned * width))
    return Content.assemble(line[:place], (marks.stroke, "$foreground"), line[place + 1 :])


def labelled(label: str, value: Content | str) -> Content:
    return Content.assemble((pad(label, LABEL_WIDTH), "$muted"), value)


def quiet(label: str, value: Content | str) -> Content:
    return Content.assemble((f"{label} ", "$muted"), value)


def _meter(label: str, chart: Content, value: Content, room: int) -> Content:
    return labelled(label, Content.assemble(chart, " " * (room - chart.cell_length), "  ", value))


def _room(value: Content, width: int) -> tuple[Content, int]:
    """The value at its width, and the cells that it leaves for a chart."""
    padded = value.pad_left(max(0, VALUE_WIDTH - value.cell_length)) if width >= ROOMY else value
    return padded, max(0, width - LABEL_WIDTH - padded.cell_length - 2)


def spark_meter(label: str, values: Sequence[float | None], highest: float, value: Content, width: int) -> Content:
    """One line: label, the recent past, and the value at the right end."""
    value, room = _room(value, width)
    chart = Content.styled(spark(values, room, highest).rjust(room), "$accent 75%")
    return _meter(label, chart, value, room)


def bar_meter(label: str, share: float | None, value: Content, width: int, planned: float | None = None) -> Content:
    """One line with a bar; without a share it has only its value."""
    value, room = _room(value, width)
    return _meter(label, Content() if share is None else bar(share, room, planned), value, room)


def join_fitting(parts: Sequence[Content], width: int, gap: str = "   ") -> Content:
    """As many of `parts` as fit into `width`, in their order."""
    line = Content()
    for part in parts:
        wanted = Content.assemble(line, gap, part) if line else part
        if wanted.cell_length > width:
            break
        line = wanted
    return line if line or not parts else parts[0].truncate(width, ellipsis=True)


# What draws itself from a snapshot in the room it has.


class SnapshotView(LinedWidget):
    """What reads as before is not drawn again."""

    snapshot: Snapshot | None = None

    def show(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.refresh_changed()

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        """At most `height` lines of at most `width` cells, the most important ones first."""
        return []

    def content_lines(self) -> list[Content]:
        width, height = self.content_size
        if self.snapshot is None or width <= 0:
            return []
        return [line.truncate(width, ellipsis=True) for line in self.lines(self.snapshot, width, height)[:height]]


def frame_title(text: str) -> Content:
    """A title for a frame. Content, because a string would be read as markup, and `escape` lets some through."""
    return Content(plain_text(text))


class MonitorPanel(SnapshotView, can_focus=True):
    """A panel with a frame; `title_of` goes into it. `help_text` explains it to F1."""

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

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title
        self._drawn_title = ""
        self._show_title()

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        self._show_title()

    def _show_title(self) -> None:
        """A mark before the title says in every terminal which panel has the focus."""
        title = f"{marks.here} {self.title_text}" if self.has_focus else self.title_text
        if title != self._drawn_title:
            self._drawn_title = title
            self.border_title = frame_title(title)

    def watch_has_focus(self, has_focus: bool) -> None:
        super().watch_has_focus(has_focus)
        self._show_title()
        self.refresh_changed()

    def title_of(self, snapshot: Snapshot) -> str:
        return self._title

    @property
    def title_text(self) -> str:
        """The title as it stands in the frame, without the mark of the focus."""
        return self._title if self.snapshot is None else self.title_of(self.snapshot)


def wrapped(sentence: str, width: int) -> list[Content]:
    """A quiet sentence in as many lines as it needs."""
    return [Content.styled(line, "$muted") for line in wrap(plain_text(sentence, 400), max(10, width))]


class AdvicePanel(MonitorPanel):
    help_text = mark(
        "What needs attention: temperature, memory against the plan, data wait, a disk that fills up, a NaN or "
        "infinite loss. Marks: ✗ act now, ! worth a look, ✓ as expected."
    )

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        lines = self._advice_lines(snapshot, width, remedies=True)
        if len(lines) > height:
            # What stands out comes before what could be done about it.
            lines = self._advice_lines(snapshot, width, remedies=False)
        hidden = len(lines) - height + 1
        if hidden > 1 and height > 1:
            more = trn("{n} more line", "{n} more lines", hidden)
            lines = [*lines[: height - 1], Content.styled(more, "$muted")]
        return lines or [Content.styled(tr("Nothing to report yet."), "$muted")]

    def _advice_lines(self, snapshot: Snapshot, width: int, *, remedies: bool) -> list[Content]:
        # Why something is not known stands in the panel that would show it.
        reasons = set(snapshot.unavailable.values())
        said: list[tuple[str, str, str | None]] = [("warning", sentence, None) for sentence in snapshot.problems]
        said += [(advice.level, advice.text, advice.remedy) for advice in snapshot.advice if advice.text not in reasons]
        lines: list[Content] = []
        for level, text, remedy in said:
            first, *rest = [Content(line) for line in wrap(plain_text(text, 400), max(10, width - 2))] or [Content()]
            rest += wrapped(remedy, width - 2) if remedy and remedies else []
            lines += [Content.assemble(level_sign(level), " ", first), *(Content.assemble("  ", line) for line in rest)]
        return lines


LONGEST = 4000
LABEL = 12
"""Cells of "step 10,000"."""
NOTHING = mark("This run generates no answers.")
NOT_YET = mark("No answers yet: they are generated before the first step and at every evaluation.")


def answer_label(answer: Answer) -> str:
    return tr("before") if answer.step == 0 else tr("step {step}", step=f"{answer.step:,}")


def answer_text(answer: Answer) -> str:
    """One line of it; of one that was cut off, with dots."""
    text = plain_text(answer.text, LONGEST) or tr("(empty)")
    return text if answer.ended else f"{text} …"


class AnswersPanel(MonitorPanel):
    """One prompt at a time; the arrow keys go through the steps and the prompts."""

    help_text = mark(
        "The model's answers to a few prompts, with greedy decoding. The newest answer is above the one from before "
        "training. Left and right show other steps, up and down other prompts. The prompts are held-out rows, or those "
        "of evaluation.prompts. An ellipsis means that the answer reached its maximum length or time."
    )
    key_table: ClassVar[ScreenName | None] = "answers"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("answers")]

    number = 0
    """Of the prompt that is shown."""
    back = 0
    """Evaluations before the newest one."""

    def show(self, snapshot: Snapshot) -> None:
        self.set_class(not snapshot.answers, "-none")
        super().show(snapshot)

    def title_of(self, snapshot: Snapshot) -> str:
        if len(snapshot.answers) < 2:
            return self._title
        return f"{self._title} {marks.dot} {self.number % len(snapshot.answers) + 1}/{len(snapshot.answers)}"

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        if not snapshot.answers:
            return wrapped(tr(NOT_YET if snapshot.ending is None else NOTHING), width)
        return prompt_lines(snapshot.answers[self.number % len(snapshot.answers)], self.back, width, height)

    def action_move_step(self, by: int) -> None:
        """Towards older answers with a negative `by`."""
        if self.snapshot is not None and self.snapshot.answers:
            shown = self.snapshot.answers[self.number % len(self.snapshot.answers)]
            self.back = max(0, min(len(shown.answers) - 1, self.back - by))
            self.refresh_changed()

    def action_move_prompt(self, by: int) -> None:
        if self.snapshot is not None and self.snapshot.answers:
            self.number = (self.number + by) % len(self.snapshot.answers)
            self.show(self.snapshot)


def prompt_lines(shown: PromptAnswers, back: int, width: int, height: int) -> list[Content]:
    """The prompt, the chosen answer, the first one, and what the data answers: with little room a line each, and the
    rest for the chosen answer."""
    chosen = shown.answers[max(0, len(shown.answers) - 1 - back)]
    texts = [(tr("prompt"), plain_text(shown.source, LONGEST), "$muted")]
    texts += [(answer_label(answer), answer_text(answer), "") for answer in dict.fromkeys((chosen, shown.first))]
    if shown.reference is not None:
        texts.append((tr("data"), plain_text(shown.reference, LONGEST), "$muted"))
    room, others = max(10, width - LABEL), max(1, height // 6)
    lines = []
    for place, (label, text, style) in enumerate(texts):
        most = max(1, height - others * (len(texts) - 1)) if place == 1 else others
        parts = wrap(text, room) or [""]
        if len(parts) > most:
            parts = [*parts[: most - 1], f"{cut(parts[most - 1], room - 1, '')}…"]
        for number, part in enumerate(parts):
            lines.append(Content.assemble((pad("" if number else label, LABEL), "$muted"), (part, style)))
    return lines
