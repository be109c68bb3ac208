"""MonitorPanel: a framed part of the monitor that draws a snapshot; its meters, and the panels of advice and answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.content import Content
from trainwiz.core.language import mark, tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import PANEL_NAMES, ScreenName, bindings
from trainwiz.tui.text import pad, wrap
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.lists import LinedWidget, level_sign

if TYPE_CHECKING:
    from trainwiz.core.telemetry.snapshot import Answer, PromptAnswers, Snapshot


# What a panel says where nothing is known: the reason that the source gives, else what is to be expected.

NO_SAMPLE = mark("No samples of the machine yet; they are taken while the run is active.")
NOT_HERE = mark("The files do not show which machine is training, and no process of the job was found on this one.")
NO_PACE = mark("No pace yet: it appears after the first logged step.")
SHORT = mark("Its processes, RAM and disk are unknown.")
"""Where the panel of the device beside it has the reason already."""


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
    stroke = Content.styled(marks.stroke, "$foreground")
    return Content.assemble(line[:place], stroke, line[place + 1 :])


def thin_bar(share: float, width: int, style: str = "$accent") -> Content:
    """A line of `width` cells, `share` of it heavy; told apart without colours too."""
    filled = max(0, min(width, round(share * width)))
    return Content.assemble((marks.heavy * filled, style), (marks.light * (width - filled), "$track"))


def labelled(label: str, value: Content | str) -> Content:
    return Content.assemble((pad(label, LABEL_WIDTH), "$muted"), value)


def quiet(label: str, value: Content | str) -> Content:
    return Content.assemble((f"{label} ", "$muted"), value)


def meter(
    label: str, draw: Callable[[int], Content | str], value: Content, width: int, value_width: int = 0
) -> Content:
    """One line: label, the chart that `draw` gives for so many cells, and the value at the right end."""
    padded = value.pad_left(max(0, value_width - value.cell_length))
    room = width - LABEL_WIDTH - padded.cell_length - 1
    chart = Content.styled(drawn, "$accent 75%") if isinstance(drawn := draw(max(0, room - 1)), str) else drawn
    shown = chart.truncate(max(0, room)).pad_right(max(0, room - chart.cell_length))
    return labelled(label, Content.assemble(shown, " ", padded))


def spark_meter(
    label: str,
    values: Sequence[float | None],
    highest: float,
    value: Content,
    width: int,
    value_width: int = 0,
) -> Content:
    """A meter with the recent past as its chart."""
    return meter(label, lambda room: spark(values, room, highest).rjust(room), value, width, value_width)


def bar_meter(
    label: str,
    share: float | None,
    value: Content,
    width: int,
    planned: float | None = None,
    value_width: int = 0,
) -> Content:
    """A meter with a bar; without a share it has only its value."""
    chart = lambda room: Content() if share is None else bar(share, room, planned)  # noqa: E731
    return meter(label, chart, value, width, value_width)


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
        self._show_title(False)

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        self._show_title(self.has_focus)

    def _show_title(self, focused: bool) -> None:
        """A mark before the title says in every terminal which panel has the focus."""
        title = f"{marks.here} {self.title_text}" if focused else self.title_text
        if title != self._drawn_title:
            self._drawn_title = title
            self.border_title = frame_title(title)

    def on_focus(self) -> None:
        self._show_title(True)

    def on_blur(self) -> None:
        self._show_title(False)

    def title_of(self, snapshot: Snapshot) -> str:
        return self._title

    @property
    def title_text(self) -> str:
        """The title as it stands in the frame, without the mark of the focus."""
        return self._title if self.snapshot is None else self.title_of(self.snapshot)

    def wrapped(self, sentence: str, width: int) -> list[Content]:
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
            key = PANEL_NAMES.index("advice") + 1
            more = trn(
                "{n} more line: press {key} to see it.", "{n} more lines: press {key} to see them.", hidden, key=key
            )
            more = tr("{n} more", n=hidden) if self.has_class("-alone") else more
            lines = [*lines[: height - 1], Content.styled(more, "$muted")]
        return lines or [Content.styled(tr("Nothing to report yet."), "$muted")]

    def _advice_lines(self, snapshot: Snapshot, width: int, *, remedies: bool) -> list[Content]:
        room = max(10, width - 2)
        # Why something is not known stands in the panel that would show it.
        reasons = set(snapshot.unavailable.values())
        said: list[tuple[str, str, str | None]] = [("warning", sentence, None) for sentence in snapshot.problems]
        said += [(advice.level, advice.text, advice.remedy) for advice in snapshot.advice if advice.text not in reasons]
        lines: list[Content] = []
        for level, text, remedy in said:
            first, *rest = wrap(plain_text(text, 400), room) or [""]
            lines.append(Content.assemble(level_sign(level), " ", first))
            lines += [Content(f"  {line}") for line in rest]
            if remedies and remedy:
                lines += [Content.styled(f"  {line}", "$muted") for line in wrap(plain_text(remedy, 400), room)]
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
        dot = marks.dot
        return f"{self._title} {dot} {self.number % len(snapshot.answers) + 1}/{len(snapshot.answers)}"

    def lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        if not snapshot.answers:
            return self.wrapped(tr(NOT_YET if snapshot.ending is None else NOTHING), width)
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
    """The prompt, the chosen answer, the first one, and what the data answers; where not all have room, the chosen
    answer has what the others leave with a line each."""
    chosen = shown.answers[max(0, len(shown.answers) - 1 - back)]
    texts = [
        (tr("prompt"), plain_text(shown.source, LONGEST), "$muted"),
        (answer_label(chosen), answer_text(chosen), ""),
    ]
    if chosen is not shown.first:
        texts.append((answer_label(shown.first), answer_text(shown.first), ""))
    if shown.reference is not None:
        texts.append((tr("data"), plain_text(shown.reference, LONGEST), "$muted"))
    room = max(10, width - LABEL)
    wrapped = [wrap(text, room) or [""] for _, text, _ in texts]
    counts = [len(lines) for lines in wrapped]
    if sum(counts) > height:
        counts = [1] * len(counts)
        counts[1] = max(1, height - len(counts) + 1)
    lines = []
    for (label, _, style), parts, count in zip(texts, wrapped, counts, strict=True):
        cut = len(parts) > count > 0
        for place, part in enumerate(parts[:count]):
            text = f"{part[: room - 1]}…" if cut and place == count - 1 else part
            lines.append(Content.assemble((pad(label if place == 0 else "", LABEL), "$muted"), (text, style)))
    return lines
