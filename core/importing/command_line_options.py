"""How a launch command is cut into the launcher's options, the script, and the script's own arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainwiz.core.importing.command_line_tables import (
    ACCELERATE_FLAGS,
    ACCELERATE_PREFIXES,
    ACCELERATE_VALUES,
    DEEPSPEED_FLAGS,
    DEEPSPEED_VALUES,
    SHORT,
    TORCHRUN_FLAGS,
    TORCHRUN_VALUES,
)
from trainwiz.core.importing.shell_words import Word


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a launcher; `value` is None for a flag. `name` has underscores and no dashes."""

    name: str
    value: Word | None
    line: int
    is_known: bool = True


@dataclass(slots=True)
class Taken:
    """A launcher's command, cut up."""

    options: list[Option] = field(default_factory=list)
    loose: list[Word] = field(default_factory=list)
    """Words in the place of options that cannot be known: $DISTRIBUTED_ARGS."""
    script: Word | None = None
    is_module: bool = False
    arguments: list[Word] = field(default_factory=list)

    def option(self, name: str) -> Option | None:
        return next((option for option in reversed(self.options) if option.name == name), None)


def take(program: str, words: Sequence[Word]) -> Taken:
    """Cut the words behind a launcher's name: its options, the script, the rest. The script is the first word that is
    no option and no value of one."""
    flags, values = _tables(program)
    taken = Taken()
    at = 0
    while at < len(words):
        word = words[at]
        if not word.text.startswith("-") or word.text == "-":
            if not _stands_for_options(words, at):
                taken.script, taken.arguments = word, list(words[at + 1 :])
                break
            taken.loose.append(word)
            at += 1
            continue
        written, equals, inline = word.text.partition("=")
        name = _name(program, written, flags | values)
        known = name in flags or name in values or (name.startswith(ACCELERATE_PREFIXES) and program == "accelerate")
        value: Word | None = Word(inline, word.line, word.known) if equals else None
        at += 1
        takes_one = name not in flags if known else at < len(words) and _may_be_value(words[at])
        if value is None and takes_one and at < len(words):
            value = words[at]
            at += 1
        if name == "module":
            taken.is_module = True
        taken.options.append(Option(name, value, word.line, known))
    return taken


def _tables(program: str) -> tuple[frozenset[str], frozenset[str]]:
    if program == "accelerate":
        return ACCELERATE_FLAGS, ACCELERATE_VALUES
    if program == "deepspeed":
        return DEEPSPEED_FLAGS, DEEPSPEED_VALUES
    return TORCHRUN_FLAGS, TORCHRUN_VALUES


def _name(program: str, written: str, known: frozenset[str]) -> str:
    """The option's whole name: short ones written out, beginnings completed as argparse does."""
    if not written.startswith("--"):
        letter = written.lstrip("-")
        return SHORT[program].get(letter, letter)
    name = written.lstrip("-").replace("-", "_")
    if name in known:
        return name
    longer = [one for one in known if one.startswith(name)] if name else []
    return longer[0] if len(longer) == 1 else name


def _may_be_value(word: Word) -> bool:
    return not word.text.startswith("-") and not word.text.endswith(".py")


def _stands_for_options(words: Sequence[Word], at: int) -> bool:
    """A word that cannot be known is options ($DISTRIBUTED_ARGS) where a script follows; else it is the script."""
    word = words[at]
    if word.known or not word.text.startswith(("$", "<")):
        return False
    for following in words[at + 1 :]:
        if following.text.endswith(".py") or following.text in ("-m", "--module"):
            return True
        if following.text.startswith("-"):
            return "ARG" in word.text.upper() or "OPT" in word.text.upper()
    return False
