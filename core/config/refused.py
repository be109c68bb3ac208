"""What pydantic refuses, in our own words: a sentence for each key, in the language in use."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from trainwiz.core.config.keys import did_you_mean, field_at, literals, nearest_keys
from trainwiz.core.language import mark, tr

BOUNDS = {
    "greater_than_equal": mark("it must be {ge} or more."),
    "greater_than": mark("it must be above {gt}."),
    "less_than_equal": mark("it must be {le} or less."),
    "less_than": mark("it must be below {lt}."),
    "finite_number": mark("it must be a finite number."),
    "string_too_long": mark("it has more than {max_length} characters."),
    "string_too_short": mark("it is empty."),
    "too_short": mark("it needs at least {min_length} entry."),
    "too_long": mark("it has more than {max_length} entries."),
    "no_place": mark("there is no such entry to change."),
}
"""What pydantic's errors mean, by their type, with the names of its bounds."""
WANTS = {
    "int": mark("it must be a whole number."),
    "float": mark("it must be a number."),
    "bool": mark("it must be true or false."),
    "string": mark("it must be text."),
    "list": mark("it must be a list."),
    "dict": mark("it must be a mapping."),
    "mapping": mark("it must be a mapping."),
    "model": mark("it must be a mapping."),
    "none": mark("it must be empty."),
}
"""Likewise by the beginning of the type: int_type, int_parsing, int_from_float."""


def problems_of(error: ValidationError) -> list[tuple[str, str]]:
    """(key, sentence) of all that is wrong with a whole document, such as a run.yaml that was changed by hand."""
    found: dict[str, str] = {}
    for detail in error.errors(include_url=False):
        path = field_path(detail)
        kind = detail["type"]
        if kind == "extra_forbidden":
            found.setdefault(path, unknown_key_message(path))
        elif kind == "missing":
            found.setdefault(path, tr("{path} is missing.", path=path))
        else:
            wanted = expectation(path, detail.get("input"), detail)
            found.setdefault(path, tr("{path}: {problem}", path=path or tr("the document"), problem=wanted))
    return list(found.items())


def unknown_key_message(key: str) -> str:
    """One sentence for a key that cannot be set, with the nearest ones."""
    return tr("{key} is not a setting.", key=repr(key)) + did_you_mean(nearest_keys(key))


def field_path(detail: Mapping[str, Any]) -> str:
    """The key path of an error; pydantic appends the branch of a union ("text_column.str"), one error for each."""
    path = ".".join(str(part) for part in detail["loc"])
    parent = path.rpartition(".")[0]
    return parent if detail["type"] != "extra_forbidden" and field_at(path) is None and field_at(parent) else path


def expectation(key: str, value: Any, error: Mapping[str, Any]) -> str:
    """What the field wants, in words, with its full stop."""
    kind, context = str(error["type"]), error.get("ctx") or {}
    choices = literals(key)
    if choices:
        near = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.5)
        listed = ", ".join(choices)
        if near:
            return tr("it takes {choices}. Did you mean {near}?", choices=listed, near=near[0])
        return tr("it takes {choices}.", choices=listed)
    if kind in BOUNDS:
        return tr(BOUNDS[kind], **context) if context else tr(BOUNDS[kind])
    for start, sentence in WANTS.items():
        if kind.startswith(start):
            return tr(sentence)
    detail = str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    # What a validator of ours says is translated; of pydantic's own words the rest are not.
    return tr("{sentence}.", sentence=detail)
