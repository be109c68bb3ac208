"""YAML files with the place of each key, and what pydantic refuses in our own words."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from trainwiz.core.config.keys import did_you_mean, nearest_keys, setting_at
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
        probe = key
        while probe:
            if probe in self.lines:
                return f"{self.path}:{self.lines[probe]}"
            probe = probe.rpartition(".")[0]
        return str(self.path)


def read_yaml(path: Path) -> YamlDocument:
    """Read one mapping. Raises UsageError naming file, line and column of what is wrong."""
    try:
        text = read_small(path).decode("utf-8")
    except OSError as error:
        raise usage_error(
            "unreadable_file", str(path), tr("Cannot read {path}: {reason}.", path=path, reason=os_reason(error))
        ) from None
    except UnicodeDecodeError as error:
        message = tr("{path} is not UTF-8 text (byte {start}). Save it as UTF-8.", path=path, start=error.start)
        raise usage_error("broken_yaml", str(path), message) from None
    return parse_yaml(text, path)


def parse_yaml(text: str, path: Path) -> YamlDocument:
    """Parse the text of `path`. Raises UsageError as `read_yaml`."""
    lines: dict[str, int] = {}
    twice: list[Finding] = []
    try:
        node = _compose(text)
        if isinstance(node, yaml.MappingNode):
            # Before the values are made: that writes merged keys into the node.
            _collect(node, "", lines, twice, path)
        values = _values(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what = " ".join(part for part in (error.context, error.problem) if part)
        message = tr(
            "{path}, line {line}, column {column}: not valid YAML ({what}).",
            path=path,
            line=line,
            column=column,
            what=what,
        )
        raise usage_error("broken_yaml", f"{path}:{line}:{column}", message) from None
    except (yaml.YAMLError, ValueError) as error:
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise usage_error(
            "broken_yaml", str(path), tr("{path} is not valid YAML ({detail}).", path=path, detail=detail)
        ) from None
    if values is None:
        raise usage_error(
            "broken_yaml", str(path), tr("{path} is empty; it needs keys such as `description:`.", path=path)
        )
    if not isinstance(values, dict) or not isinstance(node, yaml.MappingNode):
        raise usage_error(
            "broken_yaml", f"{path}:1", tr("{path}, line 1: expected `key: value` lines at the top level.", path=path)
        )
    if twice:
        raise UsageError(twice)
    return YamlDocument(path, values, lines)


def load_yaml(text: str) -> Any:
    """The values of a YAML text, read safely: no objects, and no aliases that hold themselves or stand for
    more than MOST_NODES values. Raises yaml.YAMLError."""
    node = _compose(text)
    try:
        return _values(node)
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
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError:
        raise yaml.YAMLError(tr("it is nested too deeply")) from None
    if node is not None:
        sizes: dict[int, int] = {}
        if _written_out(node, sizes) - len(sizes) > MOST_NODES:
            problem = tr("its aliases expand to more than {most} values", most=f"{MOST_NODES:,}")
            raise yaml.composer.ComposerError(None, None, problem, node.start_mark)
    return node


def _values(node: yaml.Node | None) -> Any:
    """What the node stands for, read safely; parsing the text once more would take as long again."""
    if node is None:
        return None
    loader = _Loader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _written_out(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Number of values below and with `node` once every alias is replaced by what it stands for.

    `sizes` holds what is known by id(node); 0 marks a node that is still being counted.
    """
    known = sizes.get(id(node))
    if known == 0:
        raise yaml.composer.ComposerError(
            None, None, tr("an alias refers to a value that contains it"), node.start_mark
        )
    if known is not None:
        return known
    sizes[id(node)] = 0
    children: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        children = [child for pair in node.value for child in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    size = sizes[id(node)] = 1 + sum(_written_out(child, sizes) for child in children)
    return size


def _collect(node: yaml.MappingNode, prefix: str, lines: dict[str, int], twice: list[Finding], path: Path) -> None:
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = f"{prefix}{key_node.value}"
        line = key_node.start_mark.line + 1
        if key in lines:
            message = tr(
                "{path}, line {line}: duplicate key `{key}` (first on line {first}). Keep only one.",
                path=path,
                line=line,
                key=key,
                first=lines[key],
            )
            twice.append(Finding("broken_yaml", "error", f"{path}:{line}", message))
        lines[key] = line
        if isinstance(value_node, yaml.MappingNode):
            _collect(value_node, f"{key}.", lines, twice, path)


# What pydantic refuses, in our own words: a sentence for each key, in the language in use.

BOUNDS = {
    "greater_than_equal": mark("must be at least {ge}."),
    "greater_than": mark("must be greater than {gt}."),
    "less_than_equal": mark("must be at most {le}."),
    "less_than": mark("must be less than {lt}."),
    "finite_number": mark("must be a finite number."),
    "string_too_long": mark("must not exceed {max_length} characters."),
    "string_too_short": mark("must not be empty."),
    "too_short": mark("must have at least {min_length} entry."),
    "too_long": mark("must not have more than {max_length} entries."),
    "no_place": mark("this entry does not exist."),
}
"""What pydantic's errors mean, by their type, with the names of its bounds."""
WANTS = {
    "int": mark("must be a whole number."),
    "float": mark("must be a number."),
    "bool": mark("must be true or false."),
    "string": mark("must be text."),
    "list": mark("must be a list."),
    "dict": mark("must be a mapping."),
    "mapping": mark("must be a mapping."),
    "model": mark("must be a mapping."),
    "none": mark("must be empty."),
}
"""Likewise by the beginning of the type: int_type, int_parsing, int_from_float."""


def problems_of(error: ValidationError) -> list[tuple[str, str]]:
    """(key, sentence) of all that is wrong with a whole document, such as a run.yaml that was changed by hand."""
    found: dict[str, str] = {}
    for detail in error.errors(include_url=False):
        path = field_path(detail)
        found.setdefault(path, problem_of(path, detail.get("input"), detail))
    return list(found.items())


def problem_of(path: str, value: Any, detail: Mapping[str, Any]) -> str:
    """The sentence for one error, without the value, which may be a secret."""
    if detail["type"] == "extra_forbidden":
        return unknown_key_message(path)
    if detail["type"] == "missing":
        return tr("{path} is missing.", path=path)
    return tr("{path}: {problem}", path=path or tr("the document"), problem=expectation(path, value, detail))


def unknown_key_message(key: str) -> str:
    """One sentence for a key that cannot be set, with the nearest ones."""
    return tr("{key} is not a setting.", key=repr(key)) + did_you_mean(nearest_keys(key))


def field_path(detail: Mapping[str, Any]) -> str:
    """The key path of an error; pydantic appends the branch of a union ("text_column.str"), one error for each."""
    path = ".".join(str(part) for part in detail["loc"])
    parent = path.rpartition(".")[0]
    return parent if detail["type"] != "extra_forbidden" and setting_at(path) is None and setting_at(parent) else path


def expectation(key: str, value: Any, error: Mapping[str, Any]) -> str:
    """What the field wants, in words, with its full stop."""
    kind, context = str(error["type"]), error.get("ctx") or {}
    entry = setting_at(key)
    choices = entry.values if entry is not None else ()
    if choices:
        near = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.5)
        listed = ", ".join(choices)
        if near:
            return tr("must be one of {choices}. Did you mean {near}?", choices=listed, near=near[0])
        return tr("must be one of {choices}.", choices=listed)
    if kind in BOUNDS:
        return tr(BOUNDS[kind], **context) if context else tr(BOUNDS[kind])
    for start, sentence in WANTS.items():
        if kind.startswith(start):
            return tr(sentence)
    detail = str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    # What a validator of ours says is translated; of pydantic's own words the rest are not.
    return tr("{sentence}.", sentence=detail)
