"""What the command prints, what it says while one waits, and every failure as one sentence and an exit code."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any, TextIO

from trainwiz.core.errors import EXIT_STOPPED, EXIT_USAGE, Finding, TrainwizError, os_reason, usage_error
from trainwiz.core.language import mark, tr
from trainwiz.core.text import finite, is_text, plain_text
from trainwiz.tui.options import OF_COMMANDS, named_by
from trainwiz.tui.text import aligned, cells, command_apart, pad, wrap

# What the command prints: plain text or JSON, never markup, never a control character of somebody else.

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


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    wanted = Colours.wanted and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[{COLOURS[style]}m{text}\x1b[0m" if wanted and is_terminal(stream or sys.stdout) else text


def width_of(stream: TextIO) -> int | None:
    """Columns to wrap at; None when the text goes to a pipe or a file and is left unwrapped."""
    return min(shutil.get_terminal_size().columns, MAX_WIDTH) if is_terminal(stream) else None


def wrapped(text: str, indent: str, stream: TextIO) -> list[str]:
    width = width_of(stream)
    if width is None or width <= len(indent) + 20:
        return [text]
    return wrap(text, width - cells(indent), fold=False) or [""]


def say(text: str = "", stream: TextIO | None = None) -> None:
    """One line, flushed, so that a pipe sees it when it happens."""
    target = stream or sys.stdout
    target.write(text + "\n")
    target.flush()


Row = tuple[str, str]
"""A label, in the reader's language and empty on lines that go on with the one above; and its text."""


def under(label: str, *texts: str | None) -> Iterator[Row]:
    """The first of the texts beside the label, the others below it; empty ones are left out."""
    for number, text in enumerate(filter(None, texts)):
        yield "" if number else label, text


def say_rows(rows: Iterable[Row], width: int = LABEL_WIDTH) -> None:
    """Each text beside its label; on a terminal it is wrapped under itself, but for a command at its end."""
    for label, text in rows:
        head, indent = pad(label, width), " " * width
        parts = wrapped(text, indent, sys.stdout)
        if len(parts) > 1:
            sentence, command = command_apart(text)
            parts = [*(wrapped(sentence, indent, sys.stdout) if sentence else ()), *filter(None, [command])]
        for part in parts:
            say((head + part).rstrip())
            head = indent


def fitted(rows: Sequence[Sequence[str]], right: Collection[int] = (), dropped: Sequence[int] = ()) -> list[list[str]]:
    """The rows in columns, as `aligned`; where a terminal is too narrow for all, the columns in `dropped` go in turn."""
    columns, waiting, width = list(range(len(rows[0]))), list(dropped), width_of(sys.stdout)
    while True:
        places = [place for place, column in enumerate(columns) if column in right]
        lines = aligned([[row[column] for column in columns] for row in rows], places)
        if width is None or not waiting or cells("  ".join(lines[0])) <= width:
            return lines
        columns.remove(waiting.pop(0))


def agreed(question: str, otherwise: str) -> bool:
    """Asks before something that cannot be undone. Raises UsageError with the sentence `otherwise` where nobody answers."""
    if not is_terminal(sys.stdin):
        raise usage_error("needs_answer", "--yes", otherwise)
    try:
        return input(question).strip().lower() in ("y", "yes", "是")
    except (EOFError, KeyboardInterrupt):
        say()
        return False


def labelled(label: str, text: str) -> str:
    """ "Plan      ...": a row that is never wrapped."""
    return pad(label, LABEL_WIDTH) + text


def say_json(document: Mapping[str, Any], *, compact: bool = False) -> None:
    """One JSON document on stdout; `compact` puts it on one line, for JSON-lines output.

    Infinite and not-a-number values become null: they are not JSON.
    """
    say(json_text(document, indent=None if compact else 1))


def json_text(document: Any, *, indent: int | None = None) -> str:
    text = json.dumps(finite(document), ensure_ascii=False, indent=indent, default=str)
    return text if is_text(text) else json.dumps(finite(document), indent=indent, default=str)


def finding_lines(finding: Finding, stream: TextIO) -> list[str]:
    # What is wrong in a file names the file, and its keys stay.
    names = OF_COMMANDS if finding.where in OF_COMMANDS else {}

    def hanging(head: str, indent: str, text: str) -> list[str]:
        first, *rest = wrapped(plain_text(named_by(text, names)), indent, stream)
        return [f"{head} {first}", *(indent + line for line in rest)]

    lines = hanging(paint(MARKS[finding.severity], finding.severity, stream), "  ", finding.message)
    for number, remedy in enumerate(finding.remedies, start=1):
        lines += hanging(f"  {number}", "    ", remedy.text)
        if remedy.command:
            lines.append(f"    {paint(plain_text(remedy.command), 'strong', stream)}")
    return lines


def say_findings(findings: Iterable[Finding], stream: TextIO | None = None) -> None:
    target = stream or sys.stdout
    for finding in findings:
        for line in finding_lines(finding, target):
            say(line, target)


# A wait above a second says on the terminal what it is and how long it lasts; what signals do meanwhile.


class Waiting:
    """Context manager; shows "what  0:00:03" on stderr while it is a terminal, and wipes it at the end."""

    def __init__(self, what: str) -> None:
        # Loaded here: most commands never wait.
        from rich.console import Console
        from rich.progress import Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        self._line = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not is_terminal(sys.stderr),
        )
        self._task = self._line.add_task(plain_text(what), total=None)

    def __enter__(self) -> Waiting:
        self._line.start()
        return self

    def say(self, what: str) -> None:
        self._line.update(self._task, description=plain_text(what))

    def __exit__(self, *error: object) -> None:
        self._line.stop()


@contextmanager
def handling(hear: Callable[[int, FrameType | None], Any], *signals: int) -> Iterator[None]:
    """Calls `hear` for these signals."""
    # nohup sets SIGHUP to be ignored, and that is what the user wants then.
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    wanted = [number for number in signals if number != signal.SIGHUP or not nohup]
    before = {number: signal.signal(number, hear) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupted_by_signals() -> AbstractContextManager[None]:
    """SIGTERM and SIGHUP end the command as Ctrl-C does, so that what it started is cleared up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    return handling(interrupt, signal.SIGTERM, signal.SIGHUP)


# Every failure of the command becomes one sentence and an exit code.

EXIT_DEFECT = 1
WRONG_PATH = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
)
"""Failures of a path that the user gave, not of the machine."""
EXIT_CLOSED_PIPE = 141
"""What a shell shows for a program that SIGPIPE ended."""


def report_failure(error: BaseException, *, arguments: Sequence[str], debug: bool) -> int:
    """Say what happened on stderr (or as JSON on stdout) and return the exit code. Never raises."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else EXIT_DEFECT
    with suppress(BrokenPipeError):
        if not isinstance(error, BrokenPipeError):
            if debug:
                traceback.print_exception(error)
            return tell(error, as_json="--json" in arguments)
    silence_stdout()
    return EXIT_CLOSED_PIPE


def tell(error: BaseException, *, as_json: bool) -> int:
    if isinstance(error, KeyboardInterrupt):
        say(tr("Stopped before anything was started."), sys.stderr)
        return EXIT_STOPPED
    if isinstance(error, TrainwizError):
        findings, code = error.findings, error.exit_code
    elif isinstance(error, OSError) and error.filename is not None:
        shown, reason = plain_text(error.filename, 60), os_reason(error) or type(error).__name__
        message = tr("{path}: {reason}. Check the path.", path=shown, reason=reason)
        findings = (Finding("unreachable_file", "error", shown, message),)
        code = EXIT_USAGE if error.errno in WRONG_PATH else EXIT_DEFECT
    else:
        # A failure nobody foresaw: its type, its words, and how to see more.
        said = mark("{name}: {words}. Run the command again with --debug for the traceback.")
        message = tr(said, name=type(error).__name__, words=plain_text(str(error)) or tr("no message"))
        findings, code = (Finding("defect", "error", "trainwiz", message),), EXIT_DEFECT
    if as_json:
        say_json({"findings": [finding.to_json() for finding in findings], "exit_code": code}, compact=True)
        return code
    say_findings(findings, sys.stderr)
    return code


def silence_stdout() -> None:
    """Send what is still buffered to nowhere, so that the interpreter does not complain at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
