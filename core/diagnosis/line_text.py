"""A line of a log without what loggers, launchers and terminals put before it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

LONGEST = 4_000
"""Characters of a line that are looked at."""
TELLING_KEYS = (
    "message", "msg", "text", "log", "event", "error", "exception", "exc_info", "traceback", "stack_trace", "output",
)  # fmt: skip
"""Of a line of JSON: the keys under which loggers keep what people read."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\].*?(?:\x07|\x1b\\)|[ -/]*[0-~])")
_RANK = re.compile(r"\s*\[(?:rank|default|Rank )(\d+)\]:?\s?|(?=\d{1,4}: )(\d{1,4}): ")
_BEFORE = re.compile(
    r"\s*(?:"
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?"  # 2024-06-18 03:34:24,390
    r"|\d\d:\d\d:\d\d(?:[.,]\d+)?(?=\s)"
    r"|\[?[IWEF]\d{3,4} \d\d:\d\d:\d\d[.\d]*(?:\s+\d+)? [\w./-]+\.(?:py|cpp|cc|hpp):\d+\]"  # glog of torch
    r"|\[[\w./-]+\.(?:py|cpp|cc):\d+(?::\w+)?\]"
    r"|\[(?:INFO|WARN|WARNING|ERROR|CRITICAL|FATAL|DEBUG)(?:\|[^\]]*)?\](?:\s+\d{4}-\d\d-\d\d [\d:,]+ >>)?"
    r"|(?:INFO|WARN|WARNING|ERROR|CRITICAL|FATAL|DEBUG)(?=[\s:|-])"
    r"|\(\w[\w ]{0,40} pid=\d+(?:, ip=[\d.]+)?\)"  # Ray
    r"|(?:stdout|stderr) F(?=\s)"  # containers
    r")(?:\s*[-|:]+)?\s?"
)
_LEVEL = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b|^\[?[EF]\d{3,4} \d\d:")
_ERROR = re.compile(
    # An exception as it ends a traceback, "error: ..." of a program, a number of the system, C++.
    r"^\s{0,2}(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|NotFound|Timeout)(?:$|: |\()"
    r"|^(?:[\w./ -]{1,60}: )?(?:fatal )?error: |\[errno \d+\]|\(errno: \d|^\s*what\(\): ",
    re.IGNORECASE,
)
_WARNING = re.compile(r"\b\w*Warning\b|\bwarnings\.warn\b|^warning:|\bWARN(?:ING)?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LineText:
    """`text` as it counts; `is_error`: an exception, or a line that its logger calls an error."""

    text: str
    rank: int | None = None
    is_error: bool = False


def lines_in(raw: str) -> list[LineText]:
    """What one physical line holds: one line, or those of a message in JSON. Versions of a progress bar count apart."""
    parts = raw.split("\r") if "\r" in raw else [raw]
    found = [line for part in parts[-64:] if part.strip() for line in _of_part(part[:LONGEST])]
    return found or [LineText("")]


def _of_part(part: str) -> list[LineText]:
    if "\x1b" in part:
        part = _ESCAPES.sub("", part)
    if part.lstrip().startswith("{") and part.rstrip().endswith("}"):
        message = _message_of(part)
        if message is not None:
            text, rank, level = message
            return [line_text(one, rank, level) for one in text.splitlines() if one.strip()]
    return [line_text(part)]


def line_text(part: str, rank: int | None = None, is_error: bool = False) -> LineText:
    """The line without its prefixes. Indents stay: those of a traceback mean something."""
    text = part.rstrip()
    is_error = is_error or bool(_LEVEL.search(text[:120]))
    for _ in range(8):
        found = _RANK.match(text)
        if found:
            rank = int(found[1] or found[2])
        else:
            found = _BEFORE.match(text)
        if not found or not found.end():
            break
        text = text[found.end() :]
    return LineText(text, rank, (is_error or bool(_ERROR.search(text))) and not _WARNING.search(text))


def _message_of(part: str) -> tuple[str, int | None, bool] | None:
    """(what people read, rank, whether it is an error) of a line of JSON; None for metrics and what is no JSON."""
    try:
        document = json.loads(part)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    texts = [value for key in TELLING_KEYS if isinstance(value := document.get(key), str) and value]
    if not texts:
        return None
    rank = next((value for key in ("rank", "local_rank") if isinstance(value := document.get(key), int)), None)
    level = str(document.get("level") or document.get("levelname") or document.get("severity") or "")
    return "\n".join(texts), rank, level.lower() in ("error", "critical", "fatal")
