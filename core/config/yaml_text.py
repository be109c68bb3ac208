"""YAML files with the place of each key, and what pydantic refuses in our own words."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from trainwiz.core.config.keys import ENVIRONMENT, did_you_mean, nearest_keys, setting_at
from trainwiz.core.errors import Finding, UsageError, os_reason, usage_error
from trainwiz.core.files import read_small
from trainwiz.core.language import mark, tr
from trainwiz.core.text import within_bounds

# YAML files with the place of each key, so that a wrong value can be named with its line.

MOST_NODES = 50_000
"""Values that aliases may add to one document once they are written out: a few lines of them can stand for billions."""


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A mapping read from a file. `lines` maps dotted key paths to their line, from 1."""

    path: Path
    values: dict[str, Any]
    lines: dict[str, int]

    def where(self, key: str) -> str:
        """ "FILE:LINE" of a key, or of the nearest key above it that is in the file."""
        while key and key not in self.lines:
            key = key.rpartition(".")[0]
        return f"{self.path}:{self.lines[key]}" if key else str(self.path)


def read_yaml(path: Path) -> YamlDocument:
    """Read one mapping. Raises UsageError naming file, line and column of what is wrong."""
    try:
        text = read_small(path).decode("utf-8")
    except OSError as error:
        message = tr("Cannot read {path}: {reason}.", path=path, reason=os_reason(error))
        raise usage_error("unreadable_file", str(path), message) from None
    except UnicodeDecodeError:
        raise _broken(path, ValueError(tr("not UTF-8 text"))) from None
    return parse_yaml(text, path)


def parse_yaml(text: str, path: Path) -> YamlDocument:
    """Parse the text of `path`. Raises UsageError as `read_yaml`."""
    lines: dict[str, int] = {}
    try:
        node = _compose(text)
        # Before the values are made: that writes merged keys into the node.
        _number(node, "", lines)
        values = _values(node)
        if not isinstance(values, dict):
            raise ValueError(tr("expected `key: value` lines at the top level"))
    except (yaml.YAMLError, ValueError) as error:
        raise _broken(path, error) from None
    return YamlDocument(path, values, lines)


def _broken(path: Path, error: Exception) -> UsageError:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        detail = next(iter(str(error).splitlines()), type(error).__name__)
        message = tr("{path} is not valid YAML ({detail}).", path=path, detail=detail)
        return usage_error("broken_yaml", str(path), message)
    line, column = error.problem_mark.line + 1, error.problem_mark.column + 1
    words = mark("{path}, line {line}, column {column}: not valid YAML ({what}).")
    message = tr(words, path=path, line=line, column=column, what=error.problem)
    return usage_error("broken_yaml", f"{path}:{line}:{column}", message)


def load_yaml(text: str) -> Any:
    """The values of a YAML text, read safely: no objects, and no aliases that hold themselves or stand for
    more than MOST_NODES values. Raises yaml.YAMLError."""
    try:
        return _values(_compose(text))
    except ValueError as error:
        # A date that the calendar does not have.
        raise yaml.YAMLError(str(error)) from None


class _Loader(yaml.SafeLoader):
    """Whole numbers that no setting has come as floats, as from `parse_json`."""

    def construct_whole(self, node: yaml.ScalarNode) -> int | float:
        try:
            return within_bounds(self.construct_yaml_int(node))
        except ValueError:
            # More digits than Python reads at once.
            return float(str(self.construct_scalar(node)).replace("_", ""))


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_whole)


def _compose(text: str) -> yaml.Node | None:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError:
        raise yaml.YAMLError(tr("it is nested too deeply")) from None
    # Aliases as they would be written out: each node is met as often as it stands for a value.
    seen: set[int] = set()
    again = 0
    to_do: list[yaml.Node] = [root] if root is not None else []
    while to_do:
        node = to_do.pop()
        again += id(node) in seen
        if again > MOST_NODES:
            words = mark(
                "its aliases expand to more than {most} values, or an alias refers to a value that contains it"
            )
            raise yaml.composer.ComposerError(None, None, tr(words, most=f"{MOST_NODES:,}"), node.start_mark)
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            to_do += [child for pair in node.value for child in pair]
        elif isinstance(node, yaml.SequenceNode):
            to_do += node.value
    return root


def _values(node: yaml.Node | None) -> Any:
    """What the node stands for, read safely; parsing the text once more would take as long again."""
    return None if node is None else _Loader("").construct_document(node)


def _number(node: yaml.Node | None, prefix: str, lines: dict[str, int]) -> None:
    """Put the line of each key path of a mapping into `lines`. Raises yaml.YAMLError for a key that stands there twice."""
    for key_node, value_node in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key_node, yaml.ScalarNode) and key_node.tag != "tag:yaml.org,2002:merge":
            key = f"{prefix}{key_node.value}"
            if key in lines:
                words = mark("duplicate key `{key}`, first on line {first}; keep only one")
                raise yaml.constructor.ConstructorError(
                    None, None, tr(words, key=key, first=lines[key]), key_node.start_mark
                )
            lines[key] = key_node.start_mark.line + 1
            _number(value_node, f"{key}.", lines)


# What pydantic refuses, in our own words: a sentence for each key, in the language in use.

WANTS = {
    "greater_than_equal": mark("must be at least {ge}."),
    "greater_than": mark("must be greater than {gt}."),
    "less_than_equal": mark("must be at most {le}."),
    "less_than": mark("must be less than {lt}."),
    "finite_number": mark("must be a finite number."),
    "string_too_long": mark("must not exceed {max_length} characters."),
    "string_too_short": mark("must not be empty."),
    "too_short": mark("must have at least {min_length} entry."),
    "int": mark("must be a whole number."),
    "float": mark("must be a number."),
    "bool": mark("must be true or false."),
    "string": mark("must be text."),
    "list": mark("must be a list."),
    "dict": mark("must be a mapping."),
    "model": mark("must be a mapping."),
    "literal_error": mark("must be one of {choices}."),
}
"""What pydantic's errors mean, by the beginning of their types, with the names of its bounds."""


def problems_of(error: ValidationError) -> Iterator[Finding]:
    """All that is wrong with a document, such as a run.yaml that was changed by hand; `where` is the key."""
    seen: set[str] = set()
    for detail in error.errors(include_url=False):
        place = ".".join(str(part) for part in detail["loc"])
        # A wrong key of a mapping is named by pydantic as "chat_columns.x.[key]".
        path = place.removesuffix(".[key]")
        parent = path.rpartition(".")[0]
        if detail["type"] == "extra_forbidden":
            yield unknown_key(path)
            continue
        if path == place and setting_at(path) is None and setting_at(parent) is not None:
            # pydantic appends the branch of a union ("text_column.str"), one error for each.
            path = parent
        if path not in seen:
            missing = detail["type"] == "missing"
            message = tr("{path} is missing.", path=path)
            yield Finding("bad_value", "error", path, message) if missing else refused(path, detail)
        seen.add(path)


def unknown_key(key: str) -> Finding:
    """Of a key that cannot be set, with the nearest ones."""
    message = tr("{key} is not a setting.", key=repr(key)) + did_you_mean(nearest_keys(key))
    return Finding("unknown_key", "error", key, message)


def refused(key: str, detail: Mapping[str, Any]) -> Finding:
    """Of a value that the setting cannot have; what a variable holds may be a secret, and is not repeated."""
    entry, given = setting_at(key), detail["input"]
    starts = (start for start in WANTS if detail["type"].startswith(start))
    if entry is not None and entry.values:
        near = difflib.get_close_matches(str(given), entry.values, n=1, cutoff=0.5)
        wanted = tr("must be one of {choices}.", choices=", ".join(entry.values)) + did_you_mean(near)
    elif start := next(starts, None):
        bounds = detail.get("ctx", {})
        choices = bounds.get("expected", "").replace("'", "").replace(" or ", ", ")
        wanted = tr(WANTS[start], choices=choices, **bounds)
    else:
        # What a validator of ours says is translated; of pydantic's own words the rest are not.
        wanted = tr("{sentence}.", sentence=str(detail["msg"]).removeprefix("Value error, ").rstrip("."))
    shown = repr(given)
    if len(shown) > 60:
        shown = f"{shown[:57]}..."
    if key.startswith(ENVIRONMENT):
        message = tr("{path}: {problem}", path=key, problem=wanted)
    else:
        message = tr("{path}: invalid value {value}; {expectation}", path=key, value=shown, expectation=wanted)
    return Finding("bad_value", "error", key, message)
