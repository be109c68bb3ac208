"""Which column of a file holds the text."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from trainwiz.core.data.reader import Column
from trainwiz.core.errors import UsageError, usage_error

USUAL_NAMES = ("sequence", "text")
"""Taken when no column was named, in this order."""


def find_column(columns: Sequence[Column], wanted: str | int | None, file: str, key: str) -> int:
    """The position of the wanted column; with None `sequence`, `text`, or the only text column.

    `key` is the setting that chooses it, for the sentence. Raises UsageError that lists the
    columns which the file has.
    """
    names = [column.name for column in columns]
    has = ", ".join(f"{column.name} ({column.type_name})" if not column.is_text else column.name for column in columns)
    if isinstance(wanted, str) and wanted not in names and wanted.isdigit():
        wanted = int(wanted)
    if isinstance(wanted, int):
        if not 0 <= wanted < len(columns):
            raise _missing(file, key, f"has no column at position {wanted} (from 0)", has)
        index = wanted
    elif wanted is not None:
        if wanted not in names:
            near = difflib.get_close_matches(wanted, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise _missing(file, key, f"has no column {wanted!r}{hint}", has)
        index = names.index(wanted)
    else:
        index = _guess(columns, file, key, has)
    column = columns[index]
    if not column.is_text:
        raise usage_error(
            "not_text", key, f"{file}: column {column.name!r} holds {column.type_name}, not text (its columns: {has})."
        )
    return index


def _guess(columns: Sequence[Column], file: str, key: str, has: str) -> int:
    lower = [column.name.lower() for column in columns]
    for name in USUAL_NAMES:
        if name in lower and columns[lower.index(name)].is_text:
            return lower.index(name)
    texts = [index for index, column in enumerate(columns) if column.is_text]
    if len(texts) == 1:
        return texts[0]
    problem = "has no text column" if not texts else "does not say which column holds the text"
    raise _missing(file, key, problem, has)


def _missing(file: str, key: str, problem: str, has: str) -> UsageError:
    return usage_error("missing_column", key, f"{file} {problem}; its columns: {has or 'none'}. Set {key}.")
