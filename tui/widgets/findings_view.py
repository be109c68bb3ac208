"""FindingsView: what stands against the plan, each sentence with its remedies as buttons that say what they bring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from trainwiz.core.language import tr, trn
from trainwiz.core.text import plain_text
from trainwiz.tui.screens.plan_maker import Effect, effect_key, numbered_remedies
from trainwiz.tui.screens.plan_state import PlanState, state_findings
from trainwiz.tui.text import duration_range, gib
from trainwiz.tui.theme import Marks
from trainwiz.tui.widgets.buttons import RemedyButton
from trainwiz.tui.widgets.lists import TextLines, hanging
from trainwiz.tui.widgets.plan_panel import verdict_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainwiz.core.errors import Finding, Remedy

INDENT = "  "
SEVERITY_STYLES = {"error": "$error", "warning": "$warning", "note": "$muted"}
ARROW = "→"


def severity_mark(severity: str, marks: Marks) -> str:
    return {"error": marks.bad, "warning": marks.tight}.get(severity, marks.dot)


def effect_words(before: Effect, after: Effect, marks: Marks) -> Content:
    """ "5.4 → 4.1 GiB ✓ fits · 7 to 18 years → 11 to 27 days"; what stays as it is is left out."""
    parts: list[Content] = []
    old, new = gib(before.memory_bytes), gib(after.memory_bytes)
    if old != new or before.verdict != after.verdict:
        memory = Content.styled(f"{old} {ARROW} {new} GiB ", "$muted") + verdict_words(after.verdict, marks)
        if after.tier != before.tier:
            memory += Content.styled(f" ({tr(after.tier)})", "$muted")
        parts.append(memory)
    old, new = (duration_range(one.total_low_s, one.total_high_s) for one in (before, after))
    if old != new:
        parts.append(Content.styled(f"{old} {ARROW} {new}", "$muted"))
    if not parts:
        return Content.styled(tr("memory and time stay as they are"), "$muted")
    return Content.styled(f" {marks.dot} ", "$muted").join(parts)


def remedy_lines(number: int, remedy: Remedy, effect: Content | None, width: int) -> list[Content]:
    """ "1  apply: ...", and beneath it what that brings."""
    text = tr("apply: {remedy}", remedy=plain_text(remedy.text))
    lines = hanging(Content.assemble("    ", (f"{number}  ", "$accent"), text), width, 7)
    if effect is not None:
        lines += hanging(Content(" " * 7) + effect, width, 7)
    return lines


def finding_lines(finding: Finding, width: int, marks: Marks) -> list[Content]:
    """The sentence, and beneath it what can be done that no button does."""
    style = SEVERITY_STYLES[finding.severity]
    sign = (severity_mark(finding.severity, marks), style)
    lines = hanging(Content.assemble(INDENT, sign, " ", plain_text(finding.message)), width, 4)
    for remedy in finding.remedies:
        if not remedy.changes:
            words = Content.assemble("    ", (f"{marks.dot}  {plain_text(remedy.text)}", "$muted"))
            lines += hanging(words, width, 7)
    return lines


class FindingsView(Vertical):
    """Rows are kept from plan to plan, so that a button keeps the focus while figures arrive."""

    DEFAULT_CSS = """
    FindingsView { height: auto; }
    """

    def __init__(self, marks: Marks, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._marks = marks
        self._heading = TextLines()
        self._texts: list[TextLines] = []
        self._buttons: list[RemedyButton] = []
        self._shown: tuple[PlanState, int] | None = None

    def compose(self) -> ComposeResult:
        yield self._heading

    def show(self, state: PlanState, width: int) -> None:
        """Draw the findings of a state in `width` cells; as soon as there are rows to draw them in."""
        self._shown = state, width
        if self.children:
            self._draw(state, width)

    def on_mount(self) -> None:
        if self._shown is not None:
            self._draw(*self._shown)

    def _draw(self, state: PlanState, width: int) -> None:
        findings, marks = state_findings(state), self._marks
        self.display = bool(findings) or state.plan is not None
        if findings:
            title = Content.styled(trn("{n} finding", "{n} findings", len(findings)), "bold")
        else:
            nothing = tr("no problems found")
            title = Content.assemble((f"{marks.ok} ", "$success"), (nothing, "$muted"))
        self._heading.show(hanging(title, width, 2))
        before = Effect.of(state.plan) if state.plan is not None and not state.reading.findings else None
        place, number, numbered = 0, 0, len(numbered_remedies(findings))
        for index, finding in enumerate(findings):
            text = self._text(index)
            text.display = True
            text.show(finding_lines(finding, width, marks))
            place = self._put(text, place)
            for remedy in finding.remedies:
                if remedy.changes and number < numbered:
                    button = self._button(number)
                    number += 1
                    button.display = True
                    effect = _effect(before, remedy, state.reading.effects, marks)
                    button.show(remedy_lines(number, remedy, effect, width))
                    place = self._put(button, place)
        for text in self._texts[len(findings) :]:
            text.display = False
        for button in self._buttons[number:]:
            button.display = False

    def _text(self, index: int) -> TextLines:
        """The text of a finding; made when there are more than ever before."""
        while len(self._texts) <= index:
            self._texts.append(TextLines())
            self.mount(self._texts[-1])
        return self._texts[index]

    def _button(self, index: int) -> RemedyButton:
        """The button of a remedy; made when there are more than ever before."""
        while len(self._buttons) <= index:
            self._buttons.append(RemedyButton(len(self._buttons) + 1))
            self.mount(self._buttons[-1])
        return self._buttons[index]

    def _put(self, row: TextLines, place: int) -> int:
        """See to it that a row is in its place below the heading; returns the next place."""
        children = self.children
        if row in children and children[place + 1] is not row:
            self.move_child(row, after=place)
        return place + 1


def _effect(before: Effect | None, remedy: Remedy, effects: Mapping[str, Effect], marks: Marks) -> Content | None:
    after = effects.get(effect_key(remedy.changes))
    return None if before is None or after is None else effect_words(before, after, marks)
