"""YAML files with the place of each key, so that a wrong value can be named with its line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from trainwiz.core.errors import UsageError, os_reason, usage_error
from trainwiz.core.findings import Finding
from trainwiz.core.json_text import within_bounds
from trainwiz.core.language import tr
from trainwiz.core.small_file import read_small

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
            "unreadable_file", str(path), tr("{path} cannot be read: {reason}.", path=path, reason=os_reason(error))
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
            "{path}, line {line}, column {column}: this is not valid YAML ({what}).",
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
            problem = tr("its aliases stand for more than {most} values", most=f"{MOST_NODES:,}")
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
            None, None, tr("an alias stands inside the value that it names"), node.start_mark
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
                "{path}, line {line}: `{key}` stands here a second time (first on line {first}); keep one.",
                path=path,
                line=line,
                key=key,
                first=lines[key],
            )
            twice.append(Finding("broken_yaml", "error", f"{path}:{line}", message))
        lines[key] = line
        if isinstance(value_node, yaml.MappingNode):
            _collect(value_node, f"{key}.", lines, twice, path)
