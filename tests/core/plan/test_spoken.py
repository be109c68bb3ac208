"""Ranges as guides write them."""

import pytest
from trainwiz.core.plan.words import duration_of, size_of

from tests.each import each

GIB = 2**30


@each(
    ("read", "text", "ends"),
    [
        (duration_of, "3,5 to 4 hours", (12600, 14400)),
        (duration_of, "about 2 days", (172800, 172800)),
        (duration_of, "90 min", (5400, 5400)),
        (duration_of, "half a day", None),
        (duration_of, "4-3 h", None),
        (duration_of, "5 parsecs", None),
        (size_of, "14-15 GB", (14 * GIB, 15 * GIB)),
        (size_of, "7.5G", (int(7.5 * GIB),) * 2),
        (size_of, "much", None),
    ],
)
def test_ranges(read, text: str, ends: tuple[float, float] | None) -> None:
    assert read(text) == (None if ends is None else pytest.approx(ends))
