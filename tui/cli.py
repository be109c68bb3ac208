"""The `trainwiz` command: arguments in, exit code out. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from trainwiz.core.errors import EXIT_FINISHED, UsageError, after, usage_error
from trainwiz.core.language import LANGUAGES, chosen_language, tr, use_language
from trainwiz.core.text import plain_text
from trainwiz.tui.options import OPTIONS, Option, off
from trainwiz.tui.subcommands import BY_WORDS, Subcommand, below, help_of

COMPLETE = "_TRAINWIZ_COMPLETE"
"""Set by a shell that wants to know how the words of a command line could go on; its value is the shell."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (0, 1, 2, 3, 130; 141 for a closed pipe). No exception leaves it."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if os.environ.get(COMPLETE):
        from trainwiz.tui.commands.completion import answer_shell

        return answer_shell(given, os.environ[COMPLETE])
    try:
        code = run(speak([word for word in given if word != "--debug"]))
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001 -- the one place that turns every failure into a sentence
        from trainwiz.tui.output import report_failure

        return report_failure(error, arguments=given, debug="--debug" in given)
    return code


def speak(arguments: Sequence[str]) -> list[str]:
    """Choose the language, which `--lang` may do anywhere before a `--`; returns the other arguments. The last of several
    counts, as for any option."""
    chosen: str | None = None
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag == "--lang":
            chosen = value if equals else next(words, "")
        else:
            rest += [word, *words] if word == "--" else [word]
    if chosen is not None and chosen not in LANGUAGES:
        from trainwiz.tui.choices import checked

        checked("--lang", chosen, LANGUAGES)
    use_language(chosen_language(chosen, os.environ))
    return rest


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments ask for; returns the exit code."""
    if not arguments and sys.stdin.isatty() and sys.stdout.isatty():
        from trainwiz.core.config.request import PlanRequest
        from trainwiz.tui.commands.wizard import run_wizard

        return run_wizard(PlanRequest())
    words, given = parsed(arguments)
    if "help" in given:
        print(help_of(words))
        return 0
    if "version" in given:
        from trainwiz.core import product_version

        print(f"trainwiz {product_version()}")
        return 0
    if not words:
        from trainwiz.tui.choices import start

        return start(given)
    command = BY_WORDS[words]
    module, _, function = command.calls.partition(":")
    call = getattr(import_module(f"trainwiz.tui.commands.{module}"), function)
    own = {one.name: given.get(one.name, one.absent) for one in command.own}
    choices = {option.name: given[option.name] for option in command.choices if option.name in given}
    # A command that returns nothing has finished.
    return int((call(choices, **own) if command.choices else call(**own)) or EXIT_FINISHED)


# The words of a command line: options with or without a value, then arguments.

LAUNCHER = re.compile(
    r"[A-Za-z_]\w*=.*|(?:.*/)?(?:accelerate|accelerate-launch|torchrun|deepspeed|python[\d.]*"
    r"|llamafactory-cli|axolotl|trl|swift|srun|mpirun|mpiexec|nohup|env)"
)
"""A word that starts a training, stands before what does, or sets a variable for it."""


def command_as_one(words: Sequence[str]) -> list[str]:
    """From the first word on that starts a program, all is one launch command: what a shell has taken apart."""
    for position, word in enumerate(words):
        if LAUNCHER.fullmatch(word) and " " not in word and len(words) > position + 1:
            return [*words[:position], "--", shlex.join(words[position:])]
    return list(words)


def parsed(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """(the words of the command, empty for trainwiz itself; what it is given, by name). Values of choices stay text, so
    that all wrong ones can be reported together. Raises UsageError for what no command takes."""
    name, path, words = "", "trainwiz", list(arguments)
    while name not in BY_WORDS:
        given, words = read(path, words, [HELP] if name else (*OPTIONS, VERSION, HELP), to_command=True)
        if "help" in given or not (name or words):
            return name, given
        names = list(below(name))
        if not words:
            raise wrong_word(tr("`{path}` needs a command: {names}.", path=path, names=", ".join(names)))
        word, *words = words
        if word not in names:
            raise wrong_word(no_such_command(word, names, path))
        flag = next((option.flag for option in OPTIONS if option.name in given), None)
        if flag is not None:
            message = tr("Put {flag} after the command: trainwiz {command} {flag} ...", flag=flag, command=word)
            raise usage_error("usage", flag, message)
        name, path = f"{name} {word}".strip(), f"{path} {word}"
    return name, values_of(BY_WORDS[name], path, command_as_one(words) if name == "import" else words)


def values_of(command: Subcommand, path: str, words: Sequence[str]) -> dict[str, Any]:
    given, rest = read(path, words, (*command.options, *command.choices, HELP))
    if "help" in given:
        return given
    for argument in command.arguments:
        if rest:
            given[argument.name], rest = (rest, []) if argument.is_list else (rest[0], rest[1:])
    if rest:
        raise see_help(path, tr("unexpected argument {arguments}", arguments=plain_text(" ".join(rest))))
    for one in command.own:
        if one.is_required and one.name not in given:
            raise see_help(path, tr("{name} is missing", name=one.flag if one.is_option else one.metavar))
    numbers = [one for one in command.own if one.kind in ("integer", "number") and one.name in given]
    if numbers:
        from trainwiz.tui.choices import read_values

        values, findings = read_values(numbers, given)
        if findings:
            raise UsageError(findings)
        given |= values
    return given


HELP, VERSION = Option("--help", ""), Option("--version", "")


def read(
    path: str, words: Sequence[str], parameters: Iterable[Option], *, to_command: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """(what the options among the words give, by name; the other words); with `to_command` only up to the first of those."""
    options = {
        flag: one
        for one in parameters
        for flag in (one.flag, off(one.flag))
        if flag == one.flag or one.kind == "switch"
    }
    given: dict[str, Any] = {}
    rest: list[str] = []
    left = deque(words)
    while left and not (rest and to_command):
        word = left.popleft()
        flag, equals, value = word.partition("=")
        if word == "--":
            break
        if word == "-" or not word.startswith("-"):
            rest.append(word)
            continue
        if flag not in options:
            follows = value if equals else left[0] if left and left[0][:1] != "-" else "yes"
            raise wrong_word(no_such_option(plain_text(flag), follows, options, path))
        option = options[flag]
        if option.is_flag and equals:
            raise see_help(path, tr("unexpected argument {arguments}", arguments=plain_text(word)))
        if option.is_flag:
            given[option.name] = flag == option.flag
        elif equals or (left and left[0] not in options and re.match(option.follows, left[0])):
            taken = value if equals else left.popleft()
            given[option.name] = [*given.get(option.name, ()), taken] if option.is_list else taken
        elif option.bare:
            given[option.name] = option.bare
        else:
            raise see_help(path, tr("{name} needs a value", name=flag))
    return given, [*rest, *left]


# What no command takes, with the nearest that there is.


def wrong_word(message: str) -> UsageError:
    return usage_error("usage", "command line", message)


def see_help(path: str, message: str) -> UsageError:
    return wrong_word(tr("{message}; see `{path} --help`.", message=message, path=path))


def no_such_option(flag: str, value: str, options: Mapping[str, Option], path: str) -> str:
    bare = flag.lstrip("-").replace("_", "-").lower()
    near = f"--{bare}" if f"--{bare}" in options else elsewhere(bare.replace("-", "_"), value, options)
    if near is None:
        close = difflib.get_close_matches(bare, [known.removeprefix("--") for known in options], n=1)
        near = "".join(f"--{one}" for one in close)
    if near:
        return tr("`{path}` has no option {option}; did you mean {near}?", option=flag, path=path, near=near)
    return tr("`{path}` has no option {option}; see `{path} --help`.", option=flag, path=path)


def elsewhere(name: str, value: str, options: Mapping[str, Option]) -> str | None:
    """What is typed here for an argument of the Trainer or of a program around it, empty where there is nothing; None for
    any other word."""
    from trainwiz.core.importing.trainer import is_known, meaning

    if not is_known(name) or "--set" not in options:
        return None
    key, given = meaning(name, value)
    flags = {option.key: option.flag for option in options.values()} | {"data.sources.0.name": "--dataset"}
    if key in flags:
        return f"{flags[key]} {given}".strip()
    return f"--set {key}={given or 'VALUE'}" if key else ""


def no_such_command(wanted: str, names: Sequence[str], path: str) -> str:
    shown = repr(plain_text(wanted))
    close = [words for words in BY_WORDS if words.endswith(f" {wanted}")] if path == "trainwiz" else []
    if close := close or difflib.get_close_matches(wanted, names, n=1):
        near = tr(" or ").join(close)
        return tr("`{path}` has no command {text}; did you mean {near}?", text=shown, path=path, near=near)
    message = tr("`{path}` has no command {text}. Available: {names}.", text=shown, path=path, names=", ".join(names))
    return message + (after(tr("To train: trainwiz --profile NAME --yes")) if path == "trainwiz" else "")


if __name__ == "__main__":
    raise SystemExit(main())
