"""Notes: what people write beside a run, one line each in notes.jsonl. Two who write at once lose nothing."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from trainwiz.core.errors import CannotRunError, os_reason, usage_error
from trainwiz.core.findings import Finding
from trainwiz.core.json_text import parse_json
from trainwiz.core.language import tr
from trainwiz.core.moments import is_moment, moment_words
from trainwiz.core.plain import plain_text
from trainwiz.core.small_file import read_small

NOTES_JSONL = "notes.jsonl"
LONGEST_NOTE = 2_000
"""Characters. A line then stays below the size that one write puts down whole."""


@dataclass(frozen=True, slots=True)
class Note:
    """One note. `text` is one plain line."""

    time_s: float
    """Unix time."""
    text: str
    step: int | None = None
    """Where the run was when it was written."""

    @property
    def words(self) -> str:
        """The note with its moment, for a line on a screen."""
        time_words = moment_words(self.time_s)
        if self.step is None:
            return tr("{time}: {text}", time=time_words, text=self.text)
        return tr("{time}, step {step}: {text}", time=time_words, step=f"{self.step:,}", text=self.text)

    def to_json(self) -> dict[str, Any]:
        return {"time_s": self.time_s, "step": self.step, "text": self.text}


def add_note(folder: Path, text: str, *, step: int | None = None, now_s: float | None = None) -> Note:
    """Append a note to the run folder and return it.

    Raises UsageError for one that is empty or too long, CannotRunError when it cannot be written.
    """
    line = plain_text(text).strip()
    if not line:
        raise usage_error("empty_note", "note", tr("The note is empty: nothing was written."))
    if len(line) > LONGEST_NOTE:
        message = tr(
            "The note has {count} characters; {most} is the most: shorten it.",
            count=f"{len(line):,}",
            most=f"{LONGEST_NOTE:,}",
        )
        raise usage_error("long_note", "note", message)
    note = Note(time.time() if now_s is None else now_s, line, step)
    path = folder / NOTES_JSONL
    try:
        _append(path, json.dumps(note.to_json(), ensure_ascii=False).encode())
    except OSError as error:
        message = tr("The note could not be written to {path}: {reason}.", path=path, reason=os_reason(error))
        raise CannotRunError(Finding("note_not_written", "error", str(path), message)) from None
    return note


def read_notes(folder: Path) -> tuple[Note, ...]:
    """All notes in the order in which they were written. What cannot be read counts as absent."""
    try:
        lines = read_small(folder / NOTES_JSONL).splitlines()
    except OSError:
        return ()
    return tuple(note for line in lines if (note := parse_note(line)) is not None)


def parse_note(line: bytes) -> Note | None:
    """One line of notes.jsonl, or None where it is no note."""
    try:
        document = parse_json(line)
    except ValueError:
        return None
    return note_of(document) if isinstance(document, dict) else None


def note_of(document: Mapping[str, Any]) -> Note | None:
    """The note that a row of notes.jsonl holds, or None."""
    time_s, text, step = document.get("time_s"), document.get("text"), document.get("step")
    if not isinstance(text, str) or not (_is_number(time_s) and is_moment(time_s)):
        return None
    return Note(float(time_s), plain_text(text), step if isinstance(step, int) and not isinstance(step, bool) else None)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _append(path: Path, line: bytes) -> None:
    """One write in append mode: the kernel puts it behind whatever another writer has put there.

    A line that was cut short (full disk) is closed first, so that it takes no other one with it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        broken = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        data = (b"\n" if broken else b"") + line + b"\n"
        written = os.write(descriptor, data)
        if written != len(data):
            raise OSError(28, tr("the disk is full"))
    finally:
        os.close(descriptor)
