"""What is pasted is text, whatever pieces it comes in."""

from __future__ import annotations

import pytest
from trainwiz.tui.paste_filter import END, START, PasteFilter

TYPED = "a\x1b[Ab\x1b"
PASTED = "one\n\x1b[31mq\x1b]0;t\x07\x1b[201 two\x1b"
CLEAN = "one\n[31mq]0;t\x07[201 two"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
def test_escapes_of_a_paste_are_taken_out_and_keys_stay(size: int) -> None:
    text = f"{TYPED}{START}{PASTED}{END}{TYPED}{START}{END}{TYPED}"
    pasted = PasteFilter()
    found = "".join(pasted.passed(text[at : at + size]) for at in range(0, len(text), size))
    assert found == f"{TYPED}{START}{CLEAN}{END}{TYPED}{START}{END}{TYPED}"


def test_a_key_is_passed_on_at_once() -> None:
    pasted = PasteFilter()
    assert [pasted.passed(key) for key in ("\x1b", "[", "200", "x")] == ["\x1b", "[", "200", "x"]
