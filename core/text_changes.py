"""The lines of a text that differ from another text's."""

from __future__ import annotations

from difflib import SequenceMatcher
from functools import lru_cache
from typing import Literal

Change = Literal[" ", "+", "-"]


@lru_cache(maxsize=32)
def changed_lines(theirs: str, yours: str) -> tuple[tuple[Change, str], ...]:
    """Every line of `yours`, those that `theirs` has otherwise marked "+" and after the lines ("-") that they replace."""
    old, new = theirs.splitlines(), yours.splitlines()
    lines: list[tuple[Change, str]] = []
    for kind, old_first, old_last, new_first, new_last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += [(" ", line) for line in new[new_first:new_last]]
        else:
            lines += [("-", line) for line in old[old_first:old_last]]
            lines += [("+", line) for line in new[new_first:new_last]]
    return tuple(lines)


def count_changes(theirs: str, yours: str) -> int:
    """Lines of `yours` that are new or other than in `theirs`, and lines that are gone without another in their place."""
    plus = minus = found = 0
    for change, _ in (*changed_lines(theirs, yours), (" ", "")):
        if change == " ":
            found, plus, minus = found + max(plus, minus), 0, 0
        elif change == "+":
            plus += 1
        else:
            minus += 1
    return found
