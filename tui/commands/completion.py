"""`trainwiz completion SHELL`: the script for a shell, and the answers to it: commands, options, and what they take."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module

from trainwiz.core.errors import EXIT_FINISHED
from trainwiz.core.language import tr
from trainwiz.core.text import plain_text
from trainwiz.tui.cli import COMPLETE
from trainwiz.tui.options import OPTIONS, Option
from trainwiz.tui.output import say
from trainwiz.tui.subcommands import BY_WORDS, GROUPS, below

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


def run_completion(shell: str) -> None:
    from trainwiz.tui.choices import checked

    say(SCRIPTS[checked("SHELL", shell, tuple(SCRIPTS))].format(complete=COMPLETE))


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
            else:
                value, separator = (value.replace(":", "\\:"), ":") if shell == "zsh" else (value, "\t")
                say(separator.join(filter(None, (value, plain_text(about, 80)))))
    return EXIT_FINISHED


def _unquoted(word: str) -> str:
    """A word as it is typed may end within quotes or behind a backslash."""
    for end in ("", "'", '"'):
        with contextlib.suppress(ValueError):
            return " ".join(shlex.split(word + end))
    return word


def candidates(words: Sequence[str]) -> Iterator[Candidate]:
    *done, typed = words or [""]
    return (found for found in _offered(done, typed) if found[0].lower().startswith(typed.lower()))


def _offered(done: Sequence[str], typed: str) -> Iterable[Candidate]:
    """What may stand after the words that are done: the value of an option, an option, a command, an argument."""
    path, waiting, place = "", "", 0
    for word in done:
        if waiting:
            waiting = ""
        elif word.startswith("-"):
            option = _options(path).get(word)
            waiting = word if option is not None and not option.is_flag else ""
        elif (inner := f"{path} {word}".strip()) in BY_WORDS or inner in GROUPS:
            path, place = inner, 0
        else:
            place += 1
    if waiting:
        return [*((value, "") for value in _options(path)[waiting].values), *_listed(waiting)]
    if typed.startswith("-"):
        return ((flag, tr(one.help)) for flag, one in _options(path).items())
    if path not in BY_WORDS:
        return ((name, tr(says)) for name, says in below(path).items())
    arguments = BY_WORDS[path].arguments
    if not arguments:
        return ()
    name = arguments[min(place, len(arguments) - 1)].metavar
    return _listed(f"{path} {name}", name)


def _options(path: str) -> dict[str, Option]:
    """As they are written -> what it is, of a command or (empty) of trainwiz itself."""
    command = BY_WORDS.get(path)
    own: Sequence[Option] = () if path else OPTIONS
    if command is not None:
        own = (*command.options, *command.choices)
    found: dict[str, Option] = {}
    for one in own:
        found[one.flag] = one
        if one.kind == "switch":
            found[f"--no-{one.flag.removeprefix('--')}"] = one
    return found


def _listed(*names: str) -> Iterable[Candidate]:
    """What an option or an argument takes, by the first of its names that is known, where that can be listed."""
    where = next((OFFERS[name] for name in names if name in OFFERS), None)
    if where is None:
        return ()
    module, _, attribute = where.partition(":")
    found = getattr(import_module(f"trainwiz.{module}"), attribute)
    return (one if isinstance(one, tuple) else (one, "") for one in (found() if callable(found) else found))


def runs() -> Iterable[str]:
    from trainwiz.core.run.folder import DEFAULT_ROOT
    from trainwiz.core.run.listing import run_folders

    return sorted((run.path.name for run in run_folders(DEFAULT_ROOT)), reverse=True)


def keys() -> Iterable[Candidate]:
    from trainwiz.core.config.keys import is_settable
    from trainwiz.core.config.settings import all_settings

    return ((f"{one.key}=", tr(one.says)) for one in all_settings() if is_settable(one.key))


_HERE = "tui.commands.completion"
_FROM = {
    "core.profile.store:profile_files": ("--profile", "--extends", "A", "B", "NAME"),
    "core.catalog.gpus:load_gpus": ("--gpu",),
    "core.catalog.models:load_models": ("--model",),
    "core.data.formats:SAMPLES": ("--dataset", "DATA"),
    "tui.commands.agent_docs:SCHEMAS": ("schema WHAT",),
    f"{_HERE}:keys": ("--set",),
    f"{_HERE}:runs": ("RUN", "RUN...", "RUN RUN...", "PATH", "WHAT"),
    f"{_HERE}:SCRIPTS": ("SHELL",),
}
OFFERS = {name: where for where, names in _FROM.items() for name in names}
"""Option, or the word of the help for an argument, also after its command -> module and name of what it takes."""
