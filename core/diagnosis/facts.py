"""LogFacts: what one pass over a log leaves behind, of bounded size whatever the log."""

from __future__ import annotations

from dataclasses import dataclass

from trainwiz.core.diagnosis.causes import Cause, Confidence


@dataclass(frozen=True, slots=True)
class Line:
    """One line as it was found: plain text without its prefixes."""

    number: int
    """From 1, counted by line feeds as an editor does."""
    text: str
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that speaks for a cause."""

    cause: Cause
    confidence: Confidence
    line: Line
    consequence: bool = False
    """It may come of the failure of another process: a lost connection, a wait without an end."""
    during: str | None = None
    chain: int = 0
    """Hits of one chain are of one traceback and those that followed from handling it."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """All that `diagnose` needs of a log."""

    source: str = "log"
    """Name of the file, for proofs."""
    lines: int = 0
    hits: tuple[Hit, ...] = ()
    """In their order; `python_error` is an exception that speaks for no other cause. What the training survived is not among them."""
    signals: tuple[tuple[str, Line], ...] = ()
    """(name of the signal, line) of processes that were ended by one, in order."""
    root_rank: int | None = None
    """The rank that torchrun's table calls the first failure."""
    root_line: Line | None = None
    finished: Line | None = None
    """The line that says that the training finished, where nothing was trained after it."""
    not_finite: Line | None = None
    """The last line of metrics, where its loss is no number."""
    step: int | None = None
    """Last step that the log names."""
    tail: tuple[Line, ...] = ()
    """The last lines that are not empty."""
