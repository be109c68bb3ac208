"""A shell script as commands of words, with the variables that the script itself sets put in. No shell is asked.

What only a shell or the machine could know (`$RANK`, `$(nproc)`, a template's <MODEL>) stays as it is written, in words
that say that they are not known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwiz.core.importing.shell_words_lexer import ASSIGNMENT, Lexer
from trainwiz.core.importing.shell_words_parts import Part, RawCommand, RawWord

LONGEST_WORD = 50_000
"""Characters of one word with its variables: a few lines of A="$A$A" would fill the memory."""
MOST_WORDS = 5_000

BRACED = re.compile(r"(?P<name>[A-Za-z_]\w*|\d|@)(?P<array>\[[@*]\])?(?::?[-=](?P<default>.*))?", re.DOTALL)
OPENS, CLOSES = frozenset({"if", "for", "while", "until", "case"}), frozenset({"fi", "done", "esac"})
KEYWORDS = OPENS | CLOSES | {"then", "else", "elif", "do", "{", "}", "!", "in", "function"}
SETTERS = frozenset({"export", "declare", "local", "readonly", "typeset", "set", "setenv"})
PROMPTS = frozenset({"$", "%", "#"})


@dataclass(frozen=True, slots=True)
class Word:
    """One word; where `known` is False, `text` holds pieces as they are written."""

    text: str
    line: int
    known: bool = True
    pieces: tuple[tuple[str, bool], ...] = ()
    """(text, whether it is known) of what the word was put together from, where not all of it is known."""

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True)
class Command:
    """One command: its words, and the environment that the script gives it."""

    line: int
    words: list[Word]
    environment: Mapping[str, Word] = field(default_factory=dict)


@dataclass(slots=True)
class Script:
    """All commands of a text. `unclosed` is the line of a quote that nothing closes, or of a backslash at the end."""

    commands: list[Command]
    unclosed: int | None = None


def read_script(text: str, line: int = 1, given: Mapping[str, Word] | None = None) -> Script:
    """The commands of a text in their order; its first line is number `line`. `given`: what its shell finds set."""
    lexer = Lexer(text, line)
    raw = lexer.commands()
    shell = _Variables(given or {})
    commands = [command for one in raw if (command := shell.command(one)) is not None]
    return Script(commands, lexer.unclosed)


class _Variables:
    """What the script has set so far."""

    def __init__(self, given: Mapping[str, Word]) -> None:
        self.values: dict[str, list[Word]] = {name: [word] for name, word in given.items()}
        self.exported: dict[str, Word] = {}
        self.depth = 0

    def command(self, raw: RawCommand) -> Command | None:
        """The command with its variables put in; None for one that only sets variables."""
        words = self._without_keywords(raw.words)
        prefix: dict[str, Word] = {}
        while words and (assigned := _assignment(words[0])) is not None:
            name, adds, value = assigned
            prefix[name] = self._assigned(name, adds, value, keep=len(words) == 1)
            words = words[1:]
        if not words:
            return None
        if words[0].plain() in SETTERS:
            self._set(words[1:])
            return None
        expanded = [word for one in words[:MOST_WORDS] for word in self.expand(one)]
        return Command(raw.line, expanded[:MOST_WORDS], {**self.exported, **prefix}) if expanded else None

    def _without_keywords(self, words: list[RawWord]) -> list[RawWord]:
        while words and (words[0].plain() in KEYWORDS or (words[0].plain() in PROMPTS and len(words) > 1)):
            keyword = words[0].plain()
            self.depth += (keyword in OPENS) - (keyword in CLOSES)
            if keyword == "for" and len(words) > 1:
                self.values[words[1].plain()] = [Word(f"${words[1].plain()}", words[1].line, False)]
                return []
            if keyword in ("case", "function"):
                return []
            words = words[1:]
        return words

    def _assigned(self, name: str, adds: bool, value: RawWord, keep: bool) -> Word:
        words = self.expand(value, split=False) if value.array is None else []
        if value.array is not None:
            words = [word for one in value.array for word in self.expand(one)]
        if adds:
            words = [*self.values.get(name, []), *words]
        if not keep:
            return _joined(words, value.line)
        known = self.values.get(name)
        if self.depth > 0 and known is not None and [str(one) for one in known] != [str(one) for one in words]:
            # Which branch is taken, only a run would tell.
            words = [Word(f"${name}", value.line, False)]
        self.values[name] = words[:MOST_WORDS]
        return _joined(words, value.line)

    def _set(self, words: list[RawWord]) -> None:
        for word in words:
            assigned = _assignment(word)
            if assigned is not None:
                name, adds, value = assigned
                self.exported[name] = self._assigned(name, adds, value, keep=True)
            elif word.plain() in self.values:
                self.exported[word.plain()] = _joined(self.values[word.plain()], word.line)

    def expand(self, raw: RawWord, split: bool = True) -> list[Word]:
        """The words that one becomes: an unquoted variable with spaces in it becomes several, an empty one none."""
        words: list[Word] = []
        current: list[Word] = []
        length = 0
        started = False
        for part in raw.parts:
            pieces = self._pieces(part, raw.line, split)
            if pieces is None:
                started = started or part.quoted
                continue
            for place, piece in enumerate(pieces):
                if place:
                    words.append(_joined(current, raw.line, ""))
                    current, length = [], 0
                current.append(piece)
                length += len(piece.text)
                started = True
            if length > LONGEST_WORD:
                return [*words, Word(f"{current[0].text[:80]}…", raw.line, False)]
        return [*words, _joined(current, raw.line, "")] if started else words

    def _pieces(self, part: Part, line: int, split: bool) -> list[Word] | None:
        """What one part adds; None for nothing at all (an unquoted variable that is empty)."""
        if part.kind == "text":
            return [Word(part.text, line)]
        if part.kind in ("opaque", "arithmetic"):
            return [Word(part.text, line, False)]
        found = self._value(part.text, line)
        if part.quoted or not split:
            whole_array = part.text.endswith("[@]}")
            return (found if whole_array and split else [_joined(found, line)]) or None
        return [piece for one in found for piece in _split(one)] or None

    def _value(self, written: str, line: int) -> list[Word]:
        inner = written[2:-1] if written.startswith("${") else written[1:]
        match = BRACED.fullmatch(inner)
        if match is None:
            return [Word(written, line, False)]
        known = self.values.get(match["name"])
        if known is not None:
            return known
        if match["default"] is not None:
            default = Lexer(match["default"]).commands()
            return [word for one in default for raw in one.words for word in self.expand(raw)]
        return [Word(written, line, False)]


def _split(word: Word) -> list[Word]:
    """The words that an unquoted variable becomes: split at the spaces of what is known."""
    found: list[list[Word]] = [[]]
    for text, known in word.pieces or ((word.text, word.known),):
        for place, run in enumerate(re.split(r"\s+", text) if known else [text]):
            if place:
                found.append([])
            if run:
                found[-1].append(Word(run, word.line, known))
    return [_joined(pieces, word.line, "") for pieces in found if pieces]


def _joined(words: list[Word], line: int, between: str = " ") -> Word:
    """One word of several, which remembers which of its pieces are known."""
    text = between.join(word.text for word in words)[: LONGEST_WORD + 1]
    if all(word.known for word in words):
        return Word(text, line)
    pieces: list[tuple[str, bool]] = []
    for word in words:
        pieces += [(between, True)] if pieces and between else []
        pieces += word.pieces or [(word.text, word.known)]
    return Word(text, line, False, tuple(pieces[:MOST_WORDS]))


def _assignment(word: RawWord) -> tuple[str, bool, RawWord] | None:
    """(name, whether it is added, value) of NAME=VALUE."""
    text = ""
    for place, part in enumerate(word.parts):
        if part.kind != "text" or part.quoted:
            return None
        text += part.text
        match = ASSIGNMENT.match(text)
        if match is not None:
            rest = Part("text", text[match.end() :])
            value = RawWord(word.line, [rest, *word.parts[place + 1 :]], word.array)
            return match["name"], bool(match["add"]), value
    return None
