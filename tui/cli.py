"""The `trainwiz` command: arguments in, exit code out. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence

from trainwiz.core.language import LANGUAGES

# `--lang`, taken from the command line before any command reads it.

FLAG = "--lang"
COMPLETE = "_TRAINWIZ_COMPLETE"
"""Set by a shell that wants to know how the words of a command line could go on; its value is the shell."""


def take_lang(arguments: list[str]) -> tuple[str | None, list[str]]:
    """(the language, the arguments without it); the last of several counts, as for any option."""
    chosen: str | None = None
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            return chosen, [*rest, word, *words]
        flag, equals, value = word.partition("=")
        if flag != FLAG:
            rest.append(word)
            continue
        chosen = value if equals else next(words, "")
        if chosen not in LANGUAGES:
            from trainwiz.tui.choices import checked

            checked(FLAG, chosen, LANGUAGES)
    return chosen, rest


# The words of a command line before they are parsed: options with or without a value, and whole commands of others.

SPEED = re.compile(r"-?[0-9.]+(e[0-9]+)?x?", re.IGNORECASE)

LAUNCHER = re.compile(
    r"[A-Za-z_]\w*=.*|(?:.*/)?(?:accelerate|accelerate-launch|torchrun|deepspeed|python[\d.]*"
    r"|llamafactory-cli|axolotl|trl|swift|srun|mpirun|mpiexec|nohup|env)"
)
"""A word that starts a training, stands before what does, or sets a variable for it."""


def resume_without_value(args: Sequence[str]) -> list[str]:
    return _with_value(args, "--resume", "auto", lambda following: not following.startswith("--"))


def replay_without_speed(args: Sequence[str]) -> list[str]:
    """`--replay` before anything that is no number means `--replay 60`."""
    from trainwiz.core.defaults import REPLAY_SPEED

    return _with_value(args, "--replay", f"{REPLAY_SPEED:g}", lambda following: bool(SPEED.fullmatch(following)))


def _with_value(args: Sequence[str], flag: str, value: str, is_value: Callable[[str], bool]) -> list[str]:
    """The arguments, with `value` after each `flag` that none follows."""
    result: list[str] = []
    for argument, following in zip(args, [*args[1:], "--"], strict=False):
        result += [argument, value] if argument == flag and not is_value(following) else [argument]
    return result


def command_as_one(args: Sequence[str]) -> list[str]:
    """From the first word on that starts a program, all is one launch command: what a shell has taken apart."""
    for position, argument in enumerate(args):
        if LAUNCHER.fullmatch(argument) and " " not in argument and len(args) > position + 1:
            return [*args[:position], "--", shlex.join(args[position:])]
    return list(args)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (0, 1, 2, 3, 130; 141 for a closed pipe). No exception leaves it."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if os.environ.get(COMPLETE):
        from trainwiz.tui.commands.completion import answer_shell

        return answer_shell(given, os.environ[COMPLETE])
    try:
        code = run_command(speak([argument for argument in given if argument != "--debug"]))
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 -- the one place that turns every failure into a sentence
        from trainwiz.tui.output import report_failure

        return report_failure(error, arguments=given, debug=debug)
    return code


def speak(arguments: list[str]) -> list[str]:
    """Choose the language, which `--lang` may do anywhere on the command line; returns the other arguments."""
    from trainwiz.core.language import chosen_language, use_language

    option = None
    if any(argument.partition("=")[0] == "--lang" for argument in arguments):
        option, arguments = take_lang(arguments)
    use_language(chosen_language(option, os.environ))
    return arguments


def run_command(arguments: Sequence[str]) -> int:
    """Dispatch; the help alone needs no typer, and neither does the first frame of the wizard or the monitor."""
    if list(arguments) == ["--help"]:
        from trainwiz.tui.subcommands import root_help

        print(root_help())
        return 0
    if not arguments and sys.stdin.isatty() and sys.stdout.isatty():
        from trainwiz.core.config.request import PlanRequest
        from trainwiz.tui.commands.wizard import run_wizard

        return run_wizard(PlanRequest())
    if is_plain_monitor(arguments):
        from trainwiz.tui.commands.monitor import run_monitor

        text = arguments[1] if len(arguments) > 1 else None
        return run_monitor(text, once=False, as_json=False, plain=False, readonly=False)
    from trainwiz.tui.command import app
    from typer.main import get_command

    result = get_command(app).main(args=list(arguments), prog_name="trainwiz", standalone_mode=False)
    return result if isinstance(result, int) else 0


def is_plain_monitor(arguments: Sequence[str]) -> bool:
    """`monitor` or `monitor WHAT`, without an option: typer and what it loads take a quarter of the way to a picture."""
    return bool(arguments) and arguments[0] == "monitor" and len(arguments) <= 2 and not arguments[-1].startswith("-")


if __name__ == "__main__":
    raise SystemExit(main())
