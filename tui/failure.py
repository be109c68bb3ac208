"""Every failure of the command becomes one sentence and an exit code."""

from __future__ import annotations

import difflib
import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from trainwiz.core.plain import plain_text
from trainwiz.tui.output import finding_lines, say, say_json

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
    from trainwiz.core.errors import TrainwizError
    from trainwiz.core.findings import Finding

    if isinstance(error, KeyboardInterrupt):
        say("Stopped before anything was started.", sys.stderr)
        return EXIT_STOPPED
    if isinstance(error, TrainwizError):
        findings, code = error.findings, error.exit_code
    elif isinstance(error, OSError) and error.filename is not None:
        findings = (Finding("unreachable_file", "error", plain_text(error.filename, 60), file_sentence(error)),)
        code = EXIT_USAGE if error.errno in WRONG_PATH else EXIT_DEFECT
    elif is_usage_error(error):
        findings, code = (Finding("usage", "error", "command line", usage_sentence(error, arguments)),), EXIT_USAGE
    else:
        findings, code = (Finding("defect", "error", "trainwiz", defect_sentence(error)),), EXIT_DEFECT
    if as_json:
        say_json({"findings": [finding.to_json() for finding in findings], "exit_code": code}, compact=True)
        return code
    for finding in findings:
        first, *rest = finding_lines(finding, sys.stderr)
        say(first, sys.stderr)
        for line in rest:
            say(line, sys.stderr)
    return code


def silence_stdout() -> None:
    """Send what is still buffered to nowhere, so that the interpreter does not complain at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return


def defect_sentence(error: BaseException) -> str:
    """A failure nobody foresaw: its type, its words, and how to see more."""
    words = plain_text(str(error)) or "no message"
    return f"{type(error).__name__}: {words}. Run the same command with --debug to see where it happened."


def file_sentence(error: OSError) -> str:
    """What the file system says of a path that nobody checked before."""
    return f"{plain_text(error.filename, 60)}: {error.strerror or type(error).__name__}. Check the path."


def is_usage_error(error: BaseException) -> bool:
    """Typer's own exceptions; some versions carry their own copy of click, so the names decide."""
    return any(base.__name__ == "UsageError" for base in type(error).__mro__)


def usage_sentence(error: BaseException, arguments: Sequence[str]) -> str:
    """The mistake in one sentence, with the nearest option or command that exists."""
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "trainwiz"
    option = getattr(error, "option_name", None)
    message = plain_text(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
    if type(error).__name__ == "NoSuchOption" and option:
        names = [name for parameter in context.command.params for name in parameter.opts] if context else []
        hint = nearest(option, names) or f"; `{path} --help` lists them."
        return f"There is no option {plain_text(option)} in `{path}`{hint}"
    if message.startswith("No such command"):
        wanted = str(getattr(error, "command_name", None) or message.split("'")[1])
        names = context.command.list_commands(context) if context is not None else []
        return f"There is no command {plain_text(wanted)!r} in `{path}`{near_command(wanted, names, path)}"
    if message.startswith("Missing command"):
        names = context.command.list_commands(context) if context is not None else []
        return f"`{path}` needs a command: {', '.join(names)}."
    return f"{message}; `{path} --help` shows how."


def near_command(wanted: str, names: Sequence[str], path: str) -> str:
    """The nearest command; or, for the name of a profile, how to use it."""
    close = nearest(wanted, names)
    if close:
        return close
    profiles = difflib.get_close_matches(wanted, profile_names(), n=1, cutoff=0.7) if path == "trainwiz" else []
    if profiles:
        return f"; for the profile write: trainwiz --profile {profiles[0]} --yes"
    return f"; there are {', '.join(names)}."


def profile_names() -> list[str]:
    """Names of all profiles; none when the profiles themselves are what is broken."""
    try:
        from trainwiz.core.profile import list_profiles

        return [profile.name for profile in list_profiles()]
    except Exception:  # noqa: BLE001 -- only a hint hangs on it, and another failure is being told
        return []


def nearest(wanted: str, names: Sequence[str]) -> str:
    """ "; did you mean --epochs?" or nothing."""
    close = difflib.get_close_matches(wanted, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
