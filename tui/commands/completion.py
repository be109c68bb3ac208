"""`trainwiz completion SHELL`: the script for a shell, and the answers to it: commands, options, and what they take."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trainwiz.core.errors import EXIT_FINISHED, UsageError
from trainwiz.core.language import tr
from trainwiz.core.text import plain_text
from trainwiz.tui.cli import COMPLETE
from trainwiz.tui.options import BY_NAME, COMMANDS, OPTIONS
from trainwiz.tui.output import say

# The scripts. Each asks `trainwiz` itself with the words so far; where it knows nothing, the shell offers files.

BASH = """_trainwiz() {{
    local found
    COMPREPLY=()
    while IFS= read -r found; do COMPREPLY+=("$found"); done \\
        < <({complete}=bash "$1" "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null)
    [[ ${{#COMPREPLY[@]}} == 1 && ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace 2>/dev/null
    return 0
}}
complete -o default -F _trainwiz trainwiz"""

ZSH = """#compdef trainwiz
_trainwiz() {{
    local -a found
    found=("${{(@f)$({complete}=zsh ${{words[1]}} "${{(@)words[2,CURRENT]}}" 2>/dev/null)}}")
    if [[ -n "${{found[*]}}" ]]; then _describe -V trainwiz found; else _files; fi
}}
if [[ "${{funcstack[1]}}" == _trainwiz ]]; then _trainwiz "$@"; else compdef _trainwiz trainwiz; fi"""

FISH = """function __trainwiz
    set -l words (commandline -opc) (commandline -ct)
    set -l found (env {complete}=fish $words[1] $words[2..-1] 2>/dev/null)
    if set -q found[1]
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c trainwiz -f -k -a '(__trainwiz)'"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def run_completion(shell: str) -> int:
    """Print the script. Raises UsageError for another shell."""
    from trainwiz.tui.choices import one_of, wrong

    try:
        say(SCRIPTS[one_of(shell, tuple(SCRIPTS))].format(complete=COMPLETE))
    except ValueError as error:
        raise UsageError(wrong("SHELL", str(error))) from None
    return EXIT_FINISHED


# The answers.

Candidate = tuple[str, str]
"""A word, and what it is in a few words."""


def answer_shell(words: Sequence[str], shell: str) -> int:
    """Print how the last word could go on, one candidate a line. Whatever fails: nothing, so that the shell goes on."""
    with contextlib.suppress(Exception):
        for value, about in candidates([_unquoted(word) for word in words]):
            if plain_text(value) != value:
                continue
            if shell == "bash":
                # Behind an open quote the shell takes a value as it is.
                say(value if words[-1][:1] in ("'", '"') else re.sub(r"([^\w@%+=:,./-])", r"\\\1", value))
            elif shell == "zsh":
                say(value.replace(":", "\\:") + (f":{plain_text(about, 80)}" if about else ""))
            else:
                say(value + (f"\t{plain_text(about, 80)}" if about else ""))
    return EXIT_FINISHED


def _unquoted(word: str) -> str:
    """A word as it is typed may end within quotes or behind a backslash."""
    for end in ("", "'", '"'):
        with contextlib.suppress(ValueError):
            return " ".join(shlex.split(word + end))
    return word


def candidates(words: Sequence[str]) -> Iterator[Candidate]:
    """What the last of the words could become."""
    *done, typed = words or [""]
    if done[-1:] == ["="] or typed == "=":
        # bash takes "--gpu=RTX" apart.
        done, typed = (done[:-1], typed) if done[-1:] == ["="] else (done, "")
    if not done and not typed.startswith("-"):
        # What is typed most: it needs no typer.
        yield from _beginning(((name, tr(text)) for name, text in COMMANDS.items()), typed)
        return
    command, option, place = _where(done)
    flag, equals, begun = typed.partition("=")
    if option is None and equals and flag.startswith("--"):
        option = _options(command).get(flag)
        yield from ((f"{flag}={value}", about) for value, about in _beginning(_values(option), begun))
    elif option is not None:
        yield from _beginning(_values(option), typed)
    elif typed.startswith("-"):
        helps = {one.flag: tr(one.help) for one in OPTIONS}
        yield from _beginning(
            ((name, helps.get(name) or tr(one.help or "")) for name, one in _options(command).items()), typed
        )
    else:
        below = getattr(command, "commands", {})
        yield from _beginning(
            ((name, tr(str(one.help or "").partition("\n")[0])) for name, one in below.items()), typed
        )
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        if arguments:
            yield from _beginning(_values(arguments[min(place, len(arguments) - 1)], command.name), typed)


def _beginning(found: Iterator[Candidate], typed: str) -> Iterator[Candidate]:
    return (candidate for candidate in found if candidate[0].lower().startswith(typed.lower()))


def _where(done: Sequence[str]) -> tuple[Any, Any, int]:
    """(the command that the words have come to, the option that waits for its value, arguments so far)."""
    from trainwiz.tui.command import app
    from typer.main import get_command

    command, option, place = get_command(app), None, 0
    for word in done:
        if option is not None:
            option = None
        elif word.startswith("-"):
            named = _options(command).get(word)
            option = None if named is None or named.is_flag else named
        elif word in getattr(command, "commands", {}):
            command, place = command.commands[word], 0  # type: ignore[attr-defined]
        else:
            place += 1
    return command, option, place


def _options(command: Any) -> dict[str, Any]:
    options = [one for one in command.params if one.param_type_name == "option"]
    return {name: one for one in options for name in (*one.opts, *one.secondary_opts)}


def _values(parameter: Any, command: str = "") -> Iterator[Candidate]:
    """What an option or an argument takes, where that can be listed."""
    if parameter is None:
        return
    name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar
    option = BY_NAME.get(parameter.name)
    if option is not None and option.values and name.startswith("--"):
        yield from ((value, "") for value in option.values)
    find = OFFERS.get(f"{command} {name}") or OFFERS.get(name)
    if find is not None:
        yield from find()


def _profiles() -> Iterator[Candidate]:
    from trainwiz.core.profile.store import profile_files

    yield from ((name, "") for name in profile_files())


def _runs() -> Iterator[Candidate]:
    from trainwiz.core.run.folder import DEFAULT_ROOT
    from trainwiz.core.run.listing import run_folders

    yield from ((name, "") for name in sorted((run.path.name for run in run_folders(DEFAULT_ROOT)), reverse=True))


def _cards() -> Iterator[Candidate]:
    from trainwiz.core.catalog.gpus import load_gpus

    yield from ((name, "") for name in load_gpus())


def _models() -> Iterator[Candidate]:
    from trainwiz.core.catalog.models import load_models

    yield from ((name, "") for name in load_models())


def _samples() -> Iterator[Candidate]:
    from trainwiz.core.data.formats import SAMPLES

    yield from ((name, "") for name in SAMPLES)


def _keys() -> Iterator[Candidate]:
    from trainwiz.core.config.keys import is_settable
    from trainwiz.core.config.settings import all_settings

    yield from ((f"{one.key}=", tr(one.says)) for one in all_settings() if is_settable(one.key))


def _schemas() -> Iterator[Candidate]:
    from trainwiz.tui.commands.agent_docs import SCHEMAS

    yield from ((name, "") for name in SCHEMAS)


def _shells() -> Iterator[Candidate]:
    yield from ((name, "") for name in SCRIPTS)


OFFERS: dict[str, Callable[[], Iterator[Candidate]]] = {
    "--profile": _profiles, "--extends": _profiles, "A": _profiles, "B": _profiles, "NAME": _profiles,
    "--gpu": _cards, "--model": _models, "--dataset": _samples, "DATA": _samples, "--set": _keys,
    "RUN": _runs, "RUN...": _runs, "RUN RUN...": _runs, "PATH": _runs, "WHAT": _runs,
    "schema WHAT": _schemas, "SHELL": _shells,
}  # fmt: skip
"""Option, or the word of the help for an argument, also after its command -> what it takes."""
