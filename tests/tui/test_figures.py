"""Figures and plain text: what numbers and foreign texts look like."""

from __future__ import annotations

import pytest
from trainwiz.core.text import plain_text
from trainwiz.tui import text as figures

from tests.each import each


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
    shares = [figures.deviation(value) for value in (0, -0.000064, 0.03, 0.5, None)]
    assert shares == ["exact", "−0.01%", "+3.00%", "+50%", ""]
    epochs = [figures.epochs(value) for value in (0.03214, 1.266, 37.51, 2000.4)]
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
