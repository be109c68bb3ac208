"""padded_length: how long a micro-batch becomes (data.pad_to_multiple_of)."""

from __future__ import annotations


def padded_length(longest: int, multiple: int, limit: int | None = None) -> int:
    """Tokens that the rows of a micro-batch are padded to: `longest` of them rounded up to a multiple.

    Never beyond `limit`, the longest that the run allows (the model may have no positions there), which need not be
    a multiple; and never less than `longest`.
    """
    rounded = -(-longest // multiple) * multiple
    return rounded if limit is None else max(longest, min(rounded, limit))
