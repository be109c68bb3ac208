"""Ranges as guides write them."""

import pytest
from trainwiz.core.plan.words import duration_of, size_of

from tests.each import each

GIB = 2**30


@each(
    ("text", "seconds"),
    [
        ("3.5-4 h", (12600, 14400)),
        ("3,5 to 4 hours", (12600, 14400)),
        ("about 2 days", (172800, 172800)),
        ("90 min", (5400, 5400)),
        ("30s", (30, 30)),
        ("1 week", (604800, 604800)),
        ("half a day", None),
        ("4-3 h", None),
        ("5 parsecs", None),
        ("", None),
    ],
)
def test_durations(text: str, seconds: tuple[float, float] | None) -> None:
    assert duration_of(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("text", "size"),
    [("14-15 GB", (14 * GIB, 15 * GIB)), ("8 GB", (8 * GIB, 8 * GIB)), ("7.5G", (int(7.5 * GIB),) * 2), ("much", None)],
)
def test_sizes(text: str, size: tuple[int, int] | None) -> None:
    assert size_of(text) == size
