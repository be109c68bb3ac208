"""Texts in lines of cells, English and Chinese; numbers as people read and type them."""

from __future__ import annotations

import random
import textwrap

import pytest
from rich.cells import cell_len
from trainwiz.core.text import plain_text
from trainwiz.tui import output
from trainwiz.tui import text as figures
from trainwiz.tui.text import command_apart, wrap

from tests.each import each

ENGLISH = "The GPU ran out of memory at step 1,600: 9.1 GiB were wanted and 7.8 GiB are there."
CHINESE = "GPU 在第 1,600 步显存不足：需要 9.1 GiB，只有 7.8 GiB（trainwiz --micro-batch 3）。再试一次就能放下，峰值约 5.4 GiB。"


@each("width", [1, 2, 5, 10, 24, 80])
def test_english_lines_are_those_of_textwrap(width: int) -> None:
    assert wrap(ENGLISH, width) == textwrap.wrap(ENGLISH, width)


@each("width", range(16, 60))
def test_no_line_of_chinese_begins_or_ends_with_the_wrong_punctuation(width: int) -> None:
    assert not [line for line in wrap(CHINESE, width) if line[0] in "，。：）" or line[-1] == "（"]


@each("limit", [1, 2, 3, 7, 24])
def test_plain_text_counts_cells_as_the_terminal_does(limit: int) -> None:
    chance = random.Random(7)
    for _ in range(2_000):
        text = "".join(chance.choices("ab z中文，。é한글🙂…e\u0301", k=chance.randrange(30)))
        short, whole = plain_text(text, limit), plain_text(text)
        assert cell_len(short) <= limit
        if cell_len(whole) <= limit:
            assert short == whole
        else:
            assert short.endswith("…") and whole.startswith(short[:-1])
            assert cell_len(short) >= limit - 1, "a wide letter may leave one cell free, not more"


def test_any_text_at_any_width_comes_back_whole() -> None:
    chance = random.Random(6)
    letters = "ab ，。（）中文字 －…—“”é％😀　\n"
    for _ in range(2_000):
        text = "".join(chance.choice(letters) for _ in range(chance.randrange(40)))
        width = chance.randrange(2, 20)
        lines = wrap(text, width)
        assert "".join("".join(lines).split()) == "".join(text.split())
        assert all(cell_len(line) <= width for line in lines)


@each(
    ("text", "apart"),
    [
        ("Try 0.0002 instead of 0.001. trainwiz --yes", ("Try 0.0002 instead of 0.001.", "trainwiz --yes")),
        ("saved. Go on: trainwiz runs resume 'a. b'", ("saved. Go on:", "trainwiz runs resume 'a. b'")),
        ("改好之后继续。trainwiz runs resume one", ("改好之后继续。", "trainwiz runs resume one")),
        ("trainwiz runs resume one", ("", "trainwiz runs resume one")),
        ("Free some space. trainwiz goes on by itself.", ("Free some space. trainwiz goes on by itself.", "")),
        ("`trainwiz diagnose` says it", ("`trainwiz diagnose` says it", "")),
    ],
)
def test_a_command_at_the_end_stands_apart(text: str, apart: tuple[str, str]) -> None:
    assert command_apart(text) == apart


def test_a_labelled_line_keeps_its_command_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "trainwiz --profile cpu-demo --learning-rate 0.0002 --set training.weight_decay=0.1 --yes"
    monkeypatch.setattr(output, "width_of", lambda stream: 60)
    output.say_rows([("Next", f"Train again with a lower learning rate: 0.0002 instead of 0.001. {command}")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == " " * 10 + command
    assert len(lines) == 3 and all(cell_len(line) <= 60 for line in lines[:-1])


@each(
    ("low", "high", "text"),
    [
        (40, 70, "40 to 70 s"),
        (0.0004, 0.002, "under 0.001 to 0.002 s"),
        (6.9 * 31557600, 18.2 * 31557600, "6.9 to 18 years"),
        (3600 * 5, 3600 * 9, "5 to 9 h"),
        (10, 10, "10 s"),
        (1, 600, "1 s to 10 min"),
        (None, 5, "unknown"),
    ],
)
def test_duration_range(low, high, text):
    assert figures.duration_range(low, high) == text


def test_sizes_counts_and_shares():
    sizes = [figures.size(value) for value in (0, 999, 24 * 2**20, 5.4 * 2**30, None)]
    assert sizes == ["0 B", "999 B", "24 MiB", "5.4 GiB", "unknown"]
    counts = [figures.short_count(value) for value in (651e6, 7.5e6, 500, 35_000, None, 999.9e9)]
    assert counts == ["651M", "7.5M", "500", "35.0k", "unknown", "1.0T"]
    shares = [figures.deviation(value) for value in (-0.000064, 0.03, 0.5)]
    assert shares == ["−0.01%", "+3.00%", "+50%"]
    epochs = [figures.three_digits(value) for value in (0.03214, 1.266, 37.51, 2000.4)]
    assert epochs == ["0.0321", "1.27", "37.5", "2,000"]


@each(
    ("value", "text"),
    [(4e-4, "4e-4"), (1.5e-5, "1.5e-5"), (0.9, "0.9"), (512, "512"), (2_000_000, "2,000,000"), (0.0, "0")],
)
def test_number_is_short_and_reads_back(value, text):
    assert figures.number(value) == text
    assert figures.parse_number(text) == value


def test_what_is_typed_is_a_number_or_a_sentence():
    texts = ("2M", "1.5k", "4e-4", " 2 000 000 ", "-3")
    assert [figures.parse_number(text) for text in texts] == [2e6, 1500, 4e-4, 2e6, -3]
    for text in ("", "abc", "1e999", "nan", "1/2", "2MM", "--3"):
        with pytest.raises(ValueError, match=r"^[A-Z].*\.$"):
            figures.parse_number(text)
    assert figures.parse_whole_number("1.5k") == 1500
    with pytest.raises(ValueError, match="whole"):
        figures.parse_whole_number("1.5")


def test_plain_text_keeps_words_and_loses_commands():
    hostile = (
        "\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07 a\tb\nc\x00\x08 \u202egnp.exe [bold]x[/bold] 中文"
    )
    assert plain_text(hostile) == "red link a b c gnp.exe [bold]x[/bold] 中文"
