"""Shell scripts word by word, never run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# The words of a shell script before anything in them is expanded.

PartKind = Literal["text", "variable", "arithmetic", "opaque"]
"""opaque: only a shell, or the one who fills in a template, could know it."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word. Quoted pieces are not split at spaces."""

    kind: PartKind
    text: str
    quoted: bool = False


@dataclass(slots=True)
class RawWord:
    """A word before expansion; `array` holds the words of NAME=(...)."""

    line: int
    parts: list[Part] = field(default_factory=list)
    array: list[RawWord] | None = None

    def plain(self) -> str:
        """The text, with what is to be expanded as it is written."""
        return "".join(part.text for part in self.parts)


@dataclass(slots=True)
class RawCommand:
    """The words between two separators, without redirections."""

    line: int
    words: list[RawWord] = field(default_factory=list)


# The text of a shell script -> commands of words, nothing of it expanded yet. No shell is asked.
#
# Source: POSIX.1-2024, Shell Command Language, 2.2 (quoting), 2.3 (tokens), 2.6 (expansions), 2.7 (redirections), and
# what bash adds: arrays, `|&`, `&>`, `<<<`, brace expansion.

VARIABLE = re.compile(r"\$(?:(?P<name>[A-Za-z_]\w*|[0-9@*#?$!-])|\{(?P<braced>[^{}]*(?:\{[^{}]*\}[^{}]*)*)\})")
PLACEHOLDER = re.compile(r"<[A-Za-z_][\w./-]*(?: [\w./-]+)*>")
"""<MODEL> in documentation; a redirection has no ">" right behind a word."""
BRACES = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
REDIRECT = re.compile(r"(?:\d*|&)(?:>>|>\||>&|<>|<&|<<<|>|<)|&>>?")
HERE_DOCUMENT = re.compile(r"\d*<<(?P<dash>-?)[ \t]*(?P<quote>['\"\\]?)(?P<mark>[A-Za-z_]\w*)['\"]?")
SEPARATORS = ("&&", "||", "|&", ";;", "|", "&", ";", "\n", "(", ")")
ORDINARY = re.compile(r"[^\s'\"\\$`<>&|;(){}=]+")
ORDINARY_IN_QUOTES = re.compile(r"[^\"\\$`]+")
ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<add>\+?)=")


class Lexer:
    """Goes through the text once. Broken quotes end with the text: half a command is better than none."""

    def __init__(self, text: str, line: int = 1) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        self.at = 0
        self.line = line
        self.unclosed: int | None = None
        """The line of a quote that nothing closes, or of a backslash behind which the text ends."""
        self._here: list[tuple[str, bool]] = []

    def commands(self) -> list[RawCommand]:
        found: list[RawCommand] = []
        current = RawCommand(self.line)
        while self.at < len(self.text):
            separator = self._separator()
            if separator is not None:
                if current.words:
                    found.append(current)
                current = RawCommand(self.line)
            elif self._skipped():
                continue
            else:
                line, word = self.line, self._word()
                if not current.words:
                    current.line = line
                if word.parts or word.array is not None:
                    current.words.append(word)
        return [*found, current] if current.words else found

    def _take(self, count: int) -> str:
        taken = self.text[self.at : self.at + count]
        self.at += count
        self.line += taken.count("\n")
        return taken

    def _starts(self, *texts: str) -> str | None:
        return next((text for text in texts if self.text.startswith(text, self.at)), None)

    def _separator(self) -> str | None:
        if self._redirected():
            return None
        separator = self._starts(*SEPARATORS)
        if separator is not None:
            self._take(len(separator))
            if separator == "\n":
                self._skip_here_documents()
        return separator

    def _redirected(self) -> bool:
        return PLACEHOLDER.match(self.text, self.at) is None and (
            HERE_DOCUMENT.match(self.text, self.at) is not None or REDIRECT.match(self.text, self.at) is not None
        )

    def _skipped(self) -> bool:
        """Spaces, joined lines, comments and redirections: nothing that becomes a word."""
        if self._starts(" ", "\t"):
            self._take(1)
        elif self._starts("\\\n"):
            self._take(2)
        elif self._starts("#"):
            end = self.text.find("\n", self.at)
            self._take((end if end >= 0 else len(self.text)) - self.at)
        elif self._redirected():
            self._skip_redirection()
        else:
            return False
        return True

    def _skip_redirection(self) -> None:
        here = HERE_DOCUMENT.match(self.text, self.at)
        if here is not None:
            self._here.append((here["mark"], bool(here["dash"])))
            self._take(len(here.group()))
            return
        found = REDIRECT.match(self.text, self.at)
        assert found is not None
        self._take(len(found.group()))
        while self._starts(" ", "\t"):
            self._take(1)
        if self.at < len(self.text) and self._starts(*SEPARATORS) is None:
            self._word()

    def _skip_here_documents(self) -> None:
        for mark, dash in self._here:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                line = self._take((end + 1 if end >= 0 else len(self.text)) - self.at).rstrip("\n")
                if (line.lstrip("\t") if dash else line) == mark:
                    break
        self._here = []

    def _word(self, in_array: bool = False) -> RawWord:
        word = RawWord(self.line)
        while self.at < len(self.text) and not self._ends_word():
            if self._starts("\\\n"):
                self._take(2)
                continue
            self._part(word)
            # An array holds no arrays.
            if not in_array and self._starts("(") and ASSIGNMENT.fullmatch(word.plain()):
                word.array = self._array()
                break
        return word

    def _ends_word(self) -> bool:
        if PLACEHOLDER.match(self.text, self.at):
            return False
        return self._starts(" ", "\t", *SEPARATORS, "<", ">") is not None

    def _part(self, word: RawWord) -> None:
        letter = self.text[self.at]
        if letter == "'":
            word.parts.append(Part("text", self._quoted(1), True))
        elif letter == '"':
            self._double(word)
        elif self._starts("$'"):
            word.parts.append(Part("text", self._quoted(2), True))
        elif letter == "\\" and self.at + 1 >= len(self.text):
            self.unclosed = self.line
            self._take(1)
        elif letter == "\\":
            self._take(1)
            word.parts.append(Part("text", self._take(1), True))
        elif letter in "$`":
            word.parts.append(self._expansion(False))
        elif (placeholder := PLACEHOLDER.match(self.text, self.at)) or (
            placeholder := BRACES.match(self.text, self.at)
        ):
            word.parts.append(Part("opaque", self._take(len(placeholder.group()))))
        else:
            run = ORDINARY.match(self.text, self.at)
            word.parts.append(Part("text", self._take(len(run.group()) if run else 1)))

    def _quoted(self, opening: int) -> str:
        start = self.line
        self._take(opening)
        end = self.text.find("'", self.at)
        if end < 0:
            self.unclosed, end = start, len(self.text)
        inner = self._take(end - self.at)
        self._take(1)
        return inner

    def _double(self, word: RawWord) -> None:
        start = self.line
        self._take(1)
        # An empty quote is a word too.
        word.parts.append(Part("text", "", True))
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == '"':
                self._take(1)
                return
            if letter == "\\" and self._starts("\\\n"):
                self._take(2)
            elif letter == "\\" and self.text[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\"):
                self._take(1)
                word.parts.append(Part("text", self._take(1), True))
            elif letter in "$`":
                word.parts.append(self._expansion(True))
            else:
                run = ORDINARY_IN_QUOTES.match(self.text, self.at)
                word.parts.append(Part("text", self._take(len(run.group()) if run else 1), True))
        self.unclosed = start

    def _expansion(self, quoted: bool) -> Part:
        """`$NAME`, `${...}`, `$((...))`, `$(...)` or backticks, which start here."""
        if self._starts("$(("):
            return Part("arithmetic", self._balanced("$((", "))"), quoted)
        if self._starts("$("):
            return Part("opaque", self._balanced("$(", ")"), quoted)
        if self._starts("`"):
            end = self.text.find("`", self.at + 1)
            return Part("opaque", self._take((end + 1 if end >= 0 else len(self.text)) - self.at), quoted)
        variable = VARIABLE.match(self.text, self.at)
        if variable is None:
            return Part("text", self._take(1), quoted)
        return Part("variable", self._take(len(variable.group())), quoted)

    def _balanced(self, opening: str, closing: str) -> str:
        start, depth = self.at, 0
        place = self.at + len(opening) - len(closing)
        while place < len(self.text):
            depth += {"(": 1, ")": -1}.get(self.text[place], 0)
            place += 1
            if depth == 0 and self.text.startswith(closing, place - len(closing)):
                break
        return self._take(place - start)

    def _array(self) -> list[RawWord]:
        self._take(1)
        words: list[RawWord] = []
        while self.at < len(self.text):
            if self._starts(")"):
                self._take(1)
                break
            if self._starts("\n") or self._starts(*SEPARATORS) is not None:
                self._take(1)
            elif not self._skipped():
                words.append(self._word(in_array=True))
        return words


# A shell script as commands of words, with the variables that the script itself sets put in. No shell is asked.
#
# What only a shell or the machine could know (`$RANK`, `$(nproc)`, a template's <MODEL>) stays as it is written, in words
# that say that they are not known.

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
