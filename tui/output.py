"""What the command prints: plain text or JSON, never markup, never a control character of somebody else."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from trainwiz.core.json_text import finite, is_text
from trainwiz.core.plain import plain_text
from trainwiz.tui.cells import cells, pad
from trainwiz.tui.options import OF_COMMANDS, named_by
from trainwiz.tui.wrapping import command_apart, wrap

if TYPE_CHECKING:
    from trainwiz.core.findings import Finding

MARKS: dict[str, str] = {"error": "✗", "warning": "!", "note": "·"}
COLOURS: dict[str, str] = {"error": "31", "warning": "33", "note": "36", "good": "32", "quiet": "2", "strong": "1"}

MAX_WIDTH = 120
LABEL_WIDTH = 10


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:
        return False


class Colours:
    """Whether colours are wanted at all; `--plain` switches them off."""

    wanted = True


def paint(text: str, style: str, stream: TextIO) -> str:
    """`text` in a colour, where `stream` is a terminal that wants colours."""
    wanted = Colours.wanted and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[{COLOURS[style]}m{text}\x1b[0m" if wanted and is_terminal(stream) else text


def width_of(stream: TextIO) -> int | None:
    """Columns to wrap at; None when the text goes to a pipe or a file and is left unwrapped."""
    return min(shutil.get_terminal_size().columns, MAX_WIDTH) if is_terminal(stream) else None


def wrapped(text: str, indent: str, stream: TextIO) -> list[str]:
    """`text` as lines that start with `indent` (the first one does not)."""
    width = width_of(stream)
    if width is None or width <= len(indent) + 20:
        return [text]
    return wrap(text, width - cells(indent), fold=False) or [""]


def say(text: str = "", stream: TextIO | None = None) -> None:
    """One line, flushed, so that a pipe sees it when it happens."""
    target = stream or sys.stdout
    target.write(text + "\n")
    target.flush()


def say_labelled(line: str) -> None:
    """A line that begins with a label; on a terminal it is wrapped under its text, but for a command at its end."""
    end = next((end for end in range(len(line)) if cells(line[:end]) >= LABEL_WIDTH), len(line))
    label, text = line[:end], line[end:]
    parts = wrapped(text, " " * LABEL_WIDTH, sys.stdout)
    if len(parts) > 1:
        sentence, command = command_apart(text)
        parts = [
            *(wrapped(sentence, " " * LABEL_WIDTH, sys.stdout) if sentence else ()),
            *([command] if command else ()),
        ]
    first, *rest = parts
    for part in (label + first, *(" " * LABEL_WIDTH + more for more in rest)):
        say(part)


def labelled(label: str, text: str) -> str:
    """ "Plan      ...": a label, which is in the reader's language by now, in a column of its own."""
    return pad(label, LABEL_WIDTH) + text


def say_json(document: Mapping[str, Any], *, compact: bool = False) -> None:
    """One JSON document on stdout; `compact` puts it on one line, for JSON-lines output.

    Infinite and not-a-number values become null: they are not JSON.
    """
    indent = None if compact else 1
    text = json.dumps(finite(document), ensure_ascii=False, indent=indent, default=str)
    say(text if is_text(text) else json.dumps(finite(document), indent=indent, default=str))


def finding_lines(finding: Finding, stream: TextIO) -> list[str]:
    """A finding as lines: mark and message, then each remedy with its number and its command."""
    mark = paint(MARKS[finding.severity], finding.severity, stream)
    # What is wrong in a file names the file, and its keys stay.
    names = OF_COMMANDS if finding.where in OF_COMMANDS else {}
    first, *rest = wrapped(plain_text(named_by(finding.message, names)), "  ", stream)
    lines = [f"{mark} {first}", *(f"  {line}" for line in rest)]
    for number, remedy in enumerate(finding.remedies, start=1):
        first, *rest = wrapped(plain_text(named_by(remedy.text, names)), "    ", stream)
        lines += [f"  {number} {first}", *(f"    {line}" for line in rest)]
        if remedy.command:
            lines.append(f"    {paint(plain_text(remedy.command), 'strong', stream)}")
    return lines


def say_findings(findings: Iterable[Finding], stream: TextIO | None = None) -> None:
    target = stream or sys.stdout
    for finding in findings:
        for line in finding_lines(finding, target):
            say(line, target)
