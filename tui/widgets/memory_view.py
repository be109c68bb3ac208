"""Memory of a plan as it is drawn: the verdict, the capacity as a bar, and what the peak is made of, with a legend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from textual.content import Content
from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text
from trainwiz.core.plan.words import part_word
from trainwiz.tui.figures import GIB, gib
from trainwiz.tui.theme import Marks

if TYPE_CHECKING:  # the plan's own module loads pydantic, which waits until the first frame is drawn
    from trainwiz.core.plan.result import Plan

VERDICTS: Mapping[str | None, tuple[str, str]] = {
    "fits": (mark("fits"), "$success"),
    "tight": (mark("tight"), "$warning"),
    "does_not_fit": (mark("does not fit"), "$error"),
    None: (mark("capacity unknown"), "$muted"),
}
FILLS, ASCII_FILLS = "█▓▒░", "#=+."
"""The parts from the largest on; those after the last share it."""
WORTH_A_WORD = 0.005 * GIB


def verdict_mark(verdict: str | None, marks: Marks) -> str:
    return {"fits": marks.ok, "tight": marks.tight, "does_not_fit": marks.bad}.get(verdict or "", "")


def verdict_words(verdict: str | None, marks: Marks) -> Content:
    """Mark and words, coloured: "✓ fits"."""
    words, style = VERDICTS.get(verdict, VERDICTS[None])
    return Content.styled(f"{verdict_mark(verdict, marks)} {tr(words)}".strip(), style)


def memory_bar(plan: Plan, width: int, marks: Marks) -> Content:
    """The capacity as a bar: filled up to the low estimate, hatched up to the high one."""
    memory = plan.memory
    capacity = memory.capacity_bytes
    if not capacity:
        return Content.styled(marks.empty * width, "$track")
    low = min(width, round(width * memory.low_bytes / capacity))
    high = min(width, max(low, round(width * memory.high_bytes / capacity)))
    if memory.high_bytes > 0:
        low, high = max(low, 1), max(high, 1)
    colour = {"fits": "$accent", "tight": "$warning", "does_not_fit": "$error"}.get(memory.verdict or "", "$accent")
    return Content.assemble(
        (marks.full * low, colour), (marks.range * (high - low), colour), (marks.empty * (width - high), "$track")
    )


def part_lines(breakdown: Mapping[str, int], width: int, marks: Marks) -> list[Content]:
    """The peak as a bar of its parts, largest first, and beneath it which is which, in GiB."""
    parts = [(name, amount) for name, amount in breakdown.items() if amount >= WORTH_A_WORD]
    parts.sort(key=lambda part: -part[1])
    total = sum(amount for _, amount in parts)
    if not total or width < 8:
        return []
    fills = FILLS if marks.full == FILLS[0] else ASCII_FILLS
    bar, legend, end = "", [], 0
    for index, (name, amount) in enumerate(parts):
        fill = fills[min(index, len(fills) - 1)]
        end += amount
        bar += fill * max(0, round(width * end / total) - len(bar))
        legend.append(f"{fill} {plain_text(part_word(name))} {gib(amount)}")
    return [Content.styled(bar, "$muted"), *_filled(legend, width)]


def _filled(words: list[str], width: int) -> list[Content]:
    """As many words in each line as there is room for."""
    lines = [Content.styled(words[0], "$muted")]
    for word in words[1:]:
        longer = lines[-1] + Content.styled(f"  {word}", "$muted")
        if longer.cell_length <= width:
            lines[-1] = longer
        else:
            lines.append(Content.styled(word, "$muted"))
    return lines
