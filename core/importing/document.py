"""JSON and YAML documents with the lines of their keys."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from trainwiz.core.config.yaml_text import load_yaml
from trainwiz.core.importing.report import Collector, refusal
from trainwiz.core.language import tr
from trainwiz.core.text import parse_json, plain_text

# JSON as people write it: with comments and commas at the end, each key with its line.
#
# The JSON of DeepSpeed is read by json.load there, but files of the wild carry `//`, `/* */` and `#`.

TOKEN = re.compile(
    r'(?P<text>"(?:[^"\\\n]|\\.)*"?)'
    r"|(?P<comment>//[^\n]*|\#[^\n]*|/\*(?:.*?\*/|.*))"
    r"|(?P<comma>,)"
    r"|(?P<open>[\[{])|(?P<close>[\]}])"
    r"|(?P<colon>:)"
    r"|(?P<space>\s+)"
    r'|(?P<other>[^"/#,\[\]{}:\s]+|.)',
    re.DOTALL,
)

DEEPEST = 100
"""Levels of sections; no settings file has as many, and the path of a key is as long as they are deep."""

# An end that is missing is the end of the text: to look for it again from each place would take for ever.

Place = tuple[str, int]
"""Dotted path of a key, and its line from 1."""


def read_json(text: str) -> tuple[Any, dict[str, int], list[tuple[str, int, int]]]:
    """(values, key path -> line, keys that stand twice with both lines).

    Raises json.JSONDecodeError with a line of the text as it was given, and ValueError for what is nested too deeply.
    """
    plain, places = _plain(text)
    values = parse_json(plain)
    lines: dict[str, int] = {}
    twice: list[tuple[str, int, int]] = []
    for path, line in places:
        if path in lines:
            twice.append((path, lines[path], line))
        lines[path] = line
    return values, lines, twice


def _plain(text: str) -> tuple[str, list[Place]]:
    """The text as strict JSON of the same length (comments and idle commas are spaces), and the keys with lines."""
    parts: list[str] = []
    places: list[Place] = []
    path: list[str | None] = []
    pending: int | None = None  # part of a comma that may turn out to be idle
    last_text: tuple[str, int] | None = None
    name, line = "", 1
    for match in TOKEN.finditer(text):
        kind, token = str(match.lastgroup), match.group()
        if kind == "comment":
            parts.append(re.sub(r"[^\n]", " ", token))
        else:
            parts.append(token)
        if kind == "close" and pending is not None:
            parts[pending] = " "
        if kind not in ("comment", "space"):
            pending = len(parts) - 1 if kind == "comma" else None
        if kind == "text":
            last_text = (token, line)
        elif kind == "colon" and last_text is not None:
            name = _decoded(last_text[0])
            places.append((".".join([*(part for part in path if part), name]), last_text[1]))
        elif kind == "open":
            path.append(name or None)
            if len(path) > DEEPEST:
                raise ValueError(tr("it is nested too deeply"))
            name = ""
        elif kind == "close" and path:
            path.pop()
            name = ""
        elif kind == "comma":
            name = ""
        line += token.count("\n")
    return "".join(parts), places


def _decoded(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token.strip('"')


# A settings file of another program as values with lines: YAML, or JSON with its comments.

LONGEST_REASON = 160
MOST_YAML_CHARACTERS = 2**17
"""Far above every file of settings, and parsed in seconds."""


@dataclass(frozen=True, slots=True)
class Document:
    """A mapping. `lines` maps dotted key paths to lines; `twice` holds keys that stand twice, with both lines."""

    values: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    twice: tuple[tuple[str, int, int], ...] = ()

    def line(self, *names: str) -> int | None:
        """The line of the key below these names."""
        return self.lines.get(".".join(names))


def read_document(text: str, file: str) -> Document:
    """The mapping in `text`. Raises NotImportable naming the line of what is broken, or that it is no mapping."""
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise refusal(file, tr("{file} is empty.", file=file))
    return _json(text, file) if looks_like_json(text) else _yaml(text, file)


def looks_like_json(text: str) -> bool:
    """The first thing that is no comment is a brace."""
    for line in text.lstrip().splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith(("//", "#", "/*", "*")):
            return stripped[0] in "{["
    return False


def _json(text: str, file: str) -> Document:
    try:
        values, lines, twice = read_json(text)
    except json.JSONDecodeError as error:
        if not text[error.pos :].strip() or error.msg.startswith("Unterminated string"):
            message = tr(
                "{file} ends before its JSON does (line {line}); get the whole file.", file=file, line=error.lineno
            )
        else:
            message = tr(
                "{file}, line {line}, column {column}: this is not valid JSON ({reason}).",
                file=file,
                line=error.lineno,
                column=error.colno,
                reason=error.msg,
            )
        raise refusal(f"{file}:{error.lineno}", message, "broken_file") from None
    except ValueError as error:
        message = tr("{file} is not valid JSON ({reason}).", file=file, reason=plain_text(error, LONGEST_REASON))
        raise refusal(file, message, "broken_file") from None
    return Document(_mapping(values, file), lines, tuple(twice))


def _yaml(text: str, file: str) -> Document:
    if len(text) > MOST_YAML_CHARACTERS:
        raise refusal(file, tr("{file} is too long for a file of settings.", file=file))
    try:
        values = load_yaml(text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        message = tr(
            "{file}, line {line}: this is not valid YAML ({reason}).",
            file=file,
            line=line,
            reason=plain_text(error.problem or error.context or "", LONGEST_REASON),
        )
        raise refusal(f"{file}:{line}", message, "broken_file") from None
    except (yaml.YAMLError, ValueError) as error:
        message = tr("{file} is not valid YAML ({reason}).", file=file, reason=plain_text(error, LONGEST_REASON))
        raise refusal(file, message, "broken_file") from None
    lines: dict[str, int] = {}
    twice: list[tuple[str, int, int]] = []
    if isinstance(node, yaml.MappingNode):
        _collect(node, "", lines, twice)
    return Document(_mapping(values, file), lines, tuple(twice))


def _collect(node: yaml.MappingNode, prefix: str, lines: dict[str, int], twice: list[tuple[str, int, int]]) -> None:
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            continue
        key, line = f"{prefix}{key_node.value}", key_node.start_mark.line + 1
        # An alias brings the same nodes, with the same lines, again.
        if lines.get(key, line) != line:
            twice.append((key, lines[key], line))
        lines[key] = line
        if isinstance(value_node, yaml.MappingNode):
            _collect(value_node, f"{key}.", lines, twice)


def _mapping(values: Any, file: str) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise refusal(file, tr("{file} holds no settings: `key: value` pairs are expected.", file=file))
    return {str(key): value for key, value in values.items()}


def say_twice(collector: Collector, document: Document) -> None:
    """A finding for each key that stands twice; the last one counts, as for the programs that read these files."""
    for key, first, second in document.twice:
        message = tr(
            "{file}: `{key}` stands on line {first} and again on line {second}; the last one is taken.",
            file=collector.file,
            key=plain_text(key, LONGEST_REASON),
            first=first,
            second=second,
        )
        collector.find("contradiction", "warning", message, second)
