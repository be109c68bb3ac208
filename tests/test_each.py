"""The helper that goes through a table in one case."""

from __future__ import annotations

from pathlib import Path

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


def test_a_table_without_rows_and_one_that_is_skipped_whole_are_no_success() -> None:
    @each("number", [])
    def nothing(number: int) -> None: ...

    with pytest.raises(AssertionError):
        nothing()

    @each("number", [1, 2])
    def skipped(number: int) -> None:
        pytest.skip("not here")

    with pytest.raises(pytest.skip.Exception):
        skipped()


@each("name", ["one", "two"])
@each("word", ["three", "four"])
def test_each_row_has_its_own_folder_and_patches(
    name: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    assert "TRAINWIZ_EACH" not in os.environ and not list(tmp_path.iterdir())
    monkeypatch.setenv("TRAINWIZ_EACH", name)
    (tmp_path / word).write_text(name)
