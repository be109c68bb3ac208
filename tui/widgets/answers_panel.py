"""AnswersPanel: what the model says to a prompt now, beside what it said before the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.content import Content
from trainwiz.core.language import mark, tr
from trainwiz.core.text import plain_text
from trainwiz.tui.keys import ScreenName, bindings
from trainwiz.tui.text import pad, wrap
from trainwiz.tui.theme import marks
from trainwiz.tui.widgets.monitor_panel import MonitorPanel

if TYPE_CHECKING:
    from trainwiz.core.telemetry.answers import Answer, PromptAnswers
    from trainwiz.core.telemetry.snapshot import Snapshot

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
    """The prompt, the chosen answer, the first one, and what the data answers: each has at least a line, and the answers
    share what is left."""
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
    counts = shares([len(lines) for lines in wrapped], height)
    lines = []
    for (label, _, style), parts, count in zip(texts, wrapped, counts, strict=True):
        cut = len(parts) > count > 0
        for place, part in enumerate(parts[:count]):
            text = f"{part[: room - 1]}…" if cut and place == count - 1 else part
            lines.append(Content.assemble((pad(label if place == 0 else "", LABEL), "$muted"), (text, style)))
    return lines


def shares(wanted: list[int], height: int) -> list[int]:
    """How many of `height` lines each text has: one each; what is left goes to the chosen answer (the second), then on."""
    given = [1 if place < height else 0 for place in range(len(wanted))]
    for place in (1, *range(2, len(wanted)), 0):
        given[place] += min(wanted[place] - given[place], height - sum(given))
    return given
