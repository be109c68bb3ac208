"""What can be watched as a table: for `trainwiz monitor` where there is more than one thing, in pipes and in the picker."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainwiz.core.language import mark, tr
from trainwiz.core.plain import plain_text
from trainwiz.tui.figures import count, duration
from trainwiz.tui.output import paint, say, say_json
from trainwiz.tui.table_text import aligned

if TYPE_CHECKING:
    from trainwiz.core.telemetry.discovery import Found

MARKS: dict[str, tuple[str, str]] = {
    "finished": ("✓", "good"),
    "stopped": ("!", "warning"),
    "stopping": ("●", "warning"),
    "failed": ("✗", "error"),
    "lost": ("✗", "error"),
    "prepared": ("·", "quiet"),
    "quiet": ("·", "quiet"),
}
ACTIVE_MARK = ("●", "note")
HEADINGS = (mark("name"), mark("status"), mark("step"), mark("loss"), mark("what"), mark("began"))
RIGHT = (2, 3)
WIDEST_WHAT = 60
SOURCES = {"trainer": "Trainer", "tensorboard": "TensorBoard", "process": mark("process")}


def say_targets(found: Sequence[Found], *, as_json: bool, now_s: float | None = None) -> None:
    """The list on stdout: JSON {targets: [...]}, else one line each with a heading."""
    if as_json:
        say_json({"targets": [one.to_json() for one in found]})
        return
    rows = [tuple(map(tr, HEADINGS)), *(row_of(one, time.time() if now_s is None else now_s) for one in found)]
    for number, row in enumerate(aligned(rows, RIGHT)):
        sign, style = MARKS.get(found[number - 1].status, ACTIVE_MARK) if number else (" ", "quiet")
        status = f"{sign} {row[1]}"
        row[1] = paint(status, style, sys.stdout) if number else status
        say("  ".join(row).rstrip())


def row_of(found: Found, now_s: float) -> tuple[str, str, str, str, str, str]:
    """One row as plain text, in the order of HEADINGS."""
    return (
        plain_text(name_to_give(found)),
        tr(found.status),
        steps(found),
        "-" if found.loss is None else f"{found.loss:.4g}",
        plain_text(what(found), WIDEST_WHAT) or "-",
        began(found, now_s),
    )


def name_to_give(found: Found) -> str:
    """What `trainwiz monitor` takes for it: a run below runs/ by its name, a process by its number, else the path."""
    target = found.target
    if target.kind == "process":
        return str(target.pid)
    if target.kind == "run" and target.path.parent.name == "runs" and not target.path.is_absolute():
        return target.path.name
    return str(target.path)


def what(found: Found) -> str:
    """What it is, the kind of a foreign one first, then the cards that it uses."""
    kind = tr(SOURCES.get(found.target.kind, ""))
    cards = f"GPU {', '.join(map(str, found.gpus))}" if found.gpus else ""
    return " · ".join(part for part in (kind, found.what, cards) if part)


def steps(found: Found) -> str:
    if found.step is None:
        return "-"
    return (
        tr("{amount} of {whole}", amount=count(found.step), whole=count(found.max_steps))
        if found.max_steps
        else count(found.step)
    )


def began(found: Found, now_s: float) -> str:
    """How long ago it began, in the unit that fits."""
    if found.started_s is None:
        return "-"
    return tr("{time} ago", time=duration(max(0.0, now_s - found.started_s)))
