"""The helper that goes through a table in one case."""

from __future__ import annotations

import pytest

from tests.each import each


def test_every_row_that_fails_is_listed_and_the_others_are_tried() -> None:
    tried = []

    @each("number, word", [(1, "one"), (2, "two"), (3, "three"), (4, "four")])
    def odd(number: int, word: str) -> None:
        tried.append(word)
        assert number % 2, f"{word} is even"

    with pytest.raises(pytest.fail.Exception) as failure:
        odd()
    assert tried == ["one", "two", "three", "four"]
    text = str(failure.value)
    assert "2 of 4 rows" in text and "two is even" in text and "four is even" in text and "one is even" not in text
