"""The panel of answers as a value: what stands on its lines in little and in much room."""

from __future__ import annotations

from trainwiz.core.telemetry.answers import Answer, PromptAnswers
from trainwiz.tui.widgets.answers_panel import prompt_lines, shares

LONG = "Let it cool down and empty it, and do not use it again. " * 3
PROMPT = PromptAnswers(
    "What now?\x1b]0;title\x07",
    "Unplug it.",
    (Answer(0, "kettle kettle", False), Answer(40, "?", True), Answer(80, LONG, True)),
)


def shown(back: int, width: int, height: int) -> list[str]:
    return [line.plain for line in prompt_lines(PROMPT, back, width, height)]


def test_the_newest_answer_stands_over_the_first_one_and_takes_what_room_is_left() -> None:
    lines = shown(0, 60, 8)
    assert [line[:12].strip() for line in lines if line[:12].strip()] == ["prompt", "step 80", "before", "data"]
    assert lines[-2].endswith("kettle kettle …") and len(lines) == 7
    cramped = shown(0, 60, 4)
    assert len(cramped) == 4 and cramped[1].endswith("…") and "\x1b" not in "".join(cramped)
    assert all(len(line) <= 60 for line in (*lines, *cramped))


def test_older_answers_can_be_gone_back_to() -> None:
    assert shown(1, 60, 9)[1].split() == ["step", "40", "?"]
    first = shown(2, 60, 9)
    assert [line[:12].strip() for line in first] == ["prompt", "before", "data"] and shown(9, 60, 9) == first


def test_each_text_has_a_line_and_the_chosen_answer_the_rest() -> None:
    assert (
        shares([1, 9, 9, 1], 4) == [1, 1, 1, 1]
        and shares([1, 3, 9, 1], 7) == [1, 3, 2, 1]
        and shares([9, 9, 9], 6) == [1, 4, 1]
    )
    assert shares([2, 3], 1) == [1, 0] and shares([1, 1], 9) == [1, 1]
