"""JSON as people write it: with comments and commas at the end, each key with its line.

The JSON of DeepSpeed is read by json.load there, but files of the wild carry `//`, `/* */` and `#`.
"""

from __future__ import annotations

import json
import re
from typing import Any

from trainwiz.core.json_text import parse_json
from trainwiz.core.language import tr

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
