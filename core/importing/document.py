"""JSON and YAML documents as settings with their lines."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from trainwiz.core.config.yaml_text import load_yaml
from trainwiz.core.importing.report import Imported, Setting, refusal
from trainwiz.core.language import mark, tr
from trainwiz.core.text import parse_json, plain_text

QUOTED = r'"(?:[^"\\\n]|\\.)*"?'
COMMENT = re.compile(rf"{QUOTED}|//[^\n]*|\#[^\n]*|/\*(?:.*?\*/|.*)", re.DOTALL)
"""DeepSpeed reads its JSON with json.load, but files of the wild carry `//`, `/* */` and `#`."""
IDLE_COMMA = re.compile(rf"{QUOTED}|,(?=\s*[\]}}])", re.DOTALL)
BRACKET = re.compile(rf"{QUOTED}|[\[\]{{}}]", re.DOTALL)
DEEPEST = 100
"""Levels of sections; no settings file has as many, and the path of a key is as long as they are deep."""
LONGEST_REASON = 160
MOST_YAML_CHARACTERS = 2**17
"""Far above every file of settings, and parsed in seconds."""
TWICE = mark("{file}: `{key}` stands on line {first} and again on line {second}; the last one is taken.")


@dataclass(frozen=True, slots=True)
class Document:
    """A mapping. `lines` maps dotted key paths to lines; `twice` holds keys that stand twice, with both lines."""

    values: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    twice: tuple[tuple[str, int, int], ...] = ()

    def flat(self, is_section: Callable[[str], bool]) -> Iterator[Setting]:
        """All settings, those of sections with the section's name in front: "zero_optimization.stage"."""
        yield from self._flat(self.values, "", is_section)

    def _flat(self, values: Mapping[Any, Any], above: str, is_section: Callable[[str], bool]) -> Iterator[Setting]:
        for key, value in values.items():
            name = f"{above}{key}"
            if isinstance(value, Mapping) and is_section(name):
                yield from self._flat(value, f"{name}.", is_section)
            else:
                yield Setting(name, value, self.lines.get(name))

    def say_twice(self, imported: Imported) -> None:
        """A finding for each key that stands twice; the last one counts, as for the programs that read these files."""
        for key, first, second in self.twice:
            imported.say(
                second, "contradiction", TWICE, key=plain_text(key, LONGEST_REASON), first=first, second=second
            )


def read_document(text: str, file: str) -> Document:
    """The mapping in `text`. Raises NotImportable naming the line of what is broken, or that it is no mapping."""
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise refusal(file, tr("{file} is empty.", file=file))
    values, node = _json(text, file) if looks_like_json(text) else _yaml(text, file)
    if not isinstance(values, Mapping):
        raise refusal(file, tr("{file} holds no settings: `key: value` pairs are expected.", file=file))
    lines: dict[str, int] = {}
    twice: list[tuple[str, int, int]] = []
    if isinstance(node, yaml.MappingNode):
        _collect(node, "", lines, twice)
    return Document({str(key): value for key, value in values.items()}, lines, tuple(twice))


def looks_like_json(text: str) -> bool:
    """The first thing that is no comment is a brace."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith(("//", "#", "/*", "*"))), "")
    return first[:1] in ("{", "[")


def _json(text: str, file: str) -> tuple[Any, yaml.Node | None]:
    """Values, and the same as a node of YAML, of which JSON is a part, for the lines."""
    plain = IDLE_COMMA.sub(lambda found: " " if found[0] == "," else found[0], COMMENT.sub(_blank, text))
    steps = (1 if found[0] in "[{" else -1 for found in BRACKET.finditer(plain) if found[0] in "[]{}")
    try:
        if max(itertools.accumulate(steps), default=0) > DEEPEST:
            raise ValueError(tr("it is nested too deeply"))
        values = parse_json(plain)
    except json.JSONDecodeError as error:
        line = error.lineno
        if not text[error.pos :].strip() or error.msg.startswith("Unterminated string"):
            message = tr("{file} ends before its JSON does (line {line}); get the whole file.", file=file, line=line)
        else:
            message = tr(
                "{file}, line {line}, column {column}: this is not valid JSON ({reason}).",
                file=file,
                line=line,
                column=error.colno,
                reason=error.msg,
            )
        raise refusal(f"{file}:{line}", message, "broken_file") from None
    except ValueError as error:
        message = tr("{file} is not valid JSON ({reason}).", file=file, reason=plain_text(error, LONGEST_REASON))
        raise refusal(file, message, "broken_file") from None
    try:
        short = len(plain) <= MOST_YAML_CHARACTERS
        return values, yaml.compose(plain.replace("\t", " "), Loader=yaml.SafeLoader) if short else None
    except (yaml.YAMLError, ValueError):
        return values, None


def _blank(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])


def _yaml(text: str, file: str) -> tuple[Any, yaml.Node | None]:
    if len(text) > MOST_YAML_CHARACTERS:
        raise refusal(file, tr("{file} is too long for a file of settings.", file=file))
    try:
        return load_yaml(text), yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        line = place.line + 1 if place else 1
        reason = plain_text(error.problem or error.context or "", LONGEST_REASON)
        message = tr("{file}, line {line}: this is not valid YAML ({reason}).", file=file, line=line, reason=reason)
        raise refusal(f"{file}:{line}", message, "broken_file") from None
    except (yaml.YAMLError, ValueError) as error:
        message = tr("{file} is not valid YAML ({reason}).", file=file, reason=plain_text(error, LONGEST_REASON))
        raise refusal(file, message, "broken_file") from None


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
