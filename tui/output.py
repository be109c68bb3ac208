"""What the command prints, and every failure as one sentence and an exit code."""

from __future__ import annotations

import difflib
import errno
import json
import os
import shutil
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from trainwiz.core.language import mark, tr
from trainwiz.core.text import finite, is_text, plain_text
from trainwiz.tui.options import OF_COMMANDS, named_by
from trainwiz.tui.text import cells, command_apart, pad, wrap

if TYPE_CHECKING:
    from trainwiz.core.errors import Finding


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
    parts = wrapped(text, label, sys.stdout)
    if len(parts) > 1:
        sentence, command = command_apart(text)
        parts = [*(wrapped(sentence, label, sys.stdout) if sentence else ()), *filter(None, [command])]
    for part in parts:
        say(label + part)
        label = " " * LABEL_WIDTH


def labelled(label: str, text: str) -> str:
    """ "Plan      ...": a label, which is in the reader's language by now, in a column of its own."""
    return pad(label, LABEL_WIDTH) + text


def say_json(document: Mapping[str, Any], *, compact: bool = False) -> None:
    """One JSON document on stdout; `compact` puts it on one line, for JSON-lines output.

    Infinite and not-a-number values become null: they are not JSON.
    """
    say(json_text(document, indent=None if compact else 1))


def json_text(document: Any, *, indent: int | None = None) -> str:
    """A document as JSON that any terminal and file takes."""
    text = json.dumps(finite(document), ensure_ascii=False, indent=indent, default=str)
    return text if is_text(text) else json.dumps(finite(document), indent=indent, default=str)


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


# Every failure of the command becomes one sentence and an exit code.

EXIT_DEFECT = 1
EXIT_USAGE = 2
EXIT_STOPPED = 130
WRONG_PATH = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
)
"""Failures of a path that the user gave, not of the machine."""
EXIT_CLOSED_PIPE = 141
"""What a shell shows for a program that SIGPIPE ended."""


def report_failure(error: BaseException, *, arguments: Sequence[str], debug: bool) -> int:
    """Say what happened on stderr (or as JSON on stdout) and return the exit code. Never raises."""
    as_json = "--json" in arguments
    # Typer answers a closed pipe with SystemExit(1).
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
        silence_stdout()
        return EXIT_CLOSED_PIPE
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else EXIT_DEFECT
    if debug:
        traceback.print_exception(error)
    try:
        return tell(error, arguments=arguments, as_json=as_json)
    except BrokenPipeError:
        silence_stdout()
        return EXIT_CLOSED_PIPE


def tell(error: BaseException, *, arguments: Sequence[str], as_json: bool) -> int:
    from trainwiz.core.errors import Finding, TrainwizError, os_reason

    if isinstance(error, KeyboardInterrupt):
        say(tr("Stopped before anything was started."), sys.stderr)
        return EXIT_STOPPED
    if isinstance(error, TrainwizError):
        findings, code = error.findings, error.exit_code
    elif isinstance(error, FileNotFoundError) and is_nowhere():
        message = tr("The working folder no longer exists. Change to another one and run the command again.")
        findings, code = (Finding("unreachable_file", "error", "working folder", message),), EXIT_USAGE
    elif isinstance(error, OSError) and error.filename is not None:
        shown, reason = plain_text(error.filename, 60), os_reason(error) or type(error).__name__
        message = tr("{path}: {reason}. Check the path.", path=shown, reason=reason)
        findings = (Finding("unreachable_file", "error", shown, message),)
        code = EXIT_USAGE if error.errno in WRONG_PATH else EXIT_DEFECT
    elif any(base.__name__ == "UsageError" for base in type(error).__mro__):
        # Typer's own exceptions; some versions carry their own copy of click, so the names decide.
        findings, code = (Finding("usage", "error", "command line", usage_sentence(error, arguments)),), EXIT_USAGE
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


def is_nowhere() -> bool:
    """The working folder was deleted."""
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return True
    return False


def silence_stdout() -> None:
    """Send what is still buffered to nowhere, so that the interpreter does not complain at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return


def usage_sentence(error: BaseException, arguments: Sequence[str]) -> str:
    """The mistake in one sentence, with the nearest option or command that exists."""
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "trainwiz"
    message = plain_text(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
    if type(error).__name__ == "NoSuchOption" and getattr(error, "option_name", None):
        return no_such_option(error, context, path)
    if message.startswith("No such command"):
        wanted = str(getattr(error, "command_name", None) or message.split("'")[1])
        names = context.command.list_commands(context) if context is not None else []
        return no_such_command(wanted, names, path)
    if message.startswith("Missing command"):
        names = context.command.list_commands(context) if context is not None else []
        return tr("`{path}` needs a command: {names}.", path=path, names=", ".join(names))
    return tr("{message}; see `{path} --help`.", message=click_sentence(error, message), path=path)


def no_such_option(error: Any, context: Any, path: str) -> str:
    names = [name for parameter in context.command.params for name in parameter.opts] if context else []
    option, close = plain_text(error.option_name), nearest(error.option_name, names)
    if close:
        return tr("`{path}` has no option {option}; did you mean {near}?", option=option, path=path, near=close)
    return tr("`{path}` has no option {option}; see `{path} --help`.", option=option, path=path)


def no_such_command(wanted: str, names: Sequence[str], path: str) -> str:
    """With the nearest command; or, for the name of a profile, how to use it."""
    shown, close = repr(plain_text(wanted)), nearest(wanted, names)
    if close:
        return tr("`{path}` has no command {text}; did you mean {near}?", text=shown, path=path, near=close)
    profiles = difflib.get_close_matches(wanted, profile_names(), n=1, cutoff=0.7) if path == "trainwiz" else []
    if profiles:
        return tr(
            "`{path}` has no command {text}. To use the profile: trainwiz --profile {profile} --yes",
            text=shown,
            path=path,
            profile=profiles[0],
        )
    return tr("`{path}` has no command {text}. Available: {names}.", text=shown, path=path, names=", ".join(names))


def click_sentence(error: Any, message: str) -> str:
    """What click found wrong, in the reader's language; its own words (`message`) where it is none of the known."""
    kind, parameter = type(error).__name__, getattr(error, "param", None)
    option = getattr(error, "option_name", None)
    if kind == "MissingParameter" and parameter is not None:
        return tr("{name} is missing", name=parameter_name(parameter))
    if kind == "BadOptionUsage" and option and message.endswith("requires an argument"):
        return tr("{option} needs a value", option=plain_text(option))
    if message.startswith("Got unexpected extra argument"):
        extra = message[message.rindex("(") + 1 :].rstrip(")")
        return tr("unexpected argument {arguments}", arguments=repr(plain_text(extra, 60)))
    if kind == "BadParameter" and parameter is not None:
        return wrong_value(parameter_name(parameter), plain_text(error.message, 120))
    return message


def parameter_name(parameter: Any) -> str:
    """An option as it is written, an argument as the help calls it."""
    return plain_text(
        parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar or parameter.name
    )


def wrong_value(name: str, reason: str) -> str:
    """What pydantic, which reads typer's numbers, says of a value; its own words where they are none of the known."""
    limit = reason.rpartition(" ")[2]
    if reason.startswith("Input should be a valid"):
        return tr("{name} must be a number", name=name)
    if reason.startswith("Input should be greater than or equal to"):
        return tr("{name} must be at least {least}", name=name, least=limit)
    if reason.startswith("Input should be less than or equal to"):
        return tr("{name} must be at most {most}", name=name, most=limit)
    return tr("invalid value for {name}: {reason}", name=name, reason=reason)


def profile_names() -> list[str]:
    """Names of all profiles; none when the profiles themselves are what is broken."""
    try:
        from trainwiz.core.profile import list_profiles

        return [profile.name for profile in list_profiles()]
    except Exception:  # noqa: BLE001 -- only a hint hangs on it, and another failure is being told
        return []


def nearest(wanted: str, names: Sequence[str]) -> str:
    return next(iter(difflib.get_close_matches(wanted, names, n=1, cutoff=0.6)), "")
