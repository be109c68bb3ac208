"""The commands of a shell script as words, with the variables that the script itself sets put in. No shell is asked.

What only a shell or the machine could know (`$RANK`, `$(nproc)`, a template's <MODEL>) stays as it is written, in words
that say that they are not known. (`shlex` loses on which line a word stands, and which `$` stood in quotes.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

LONGEST_WORD = 50_000
"""Characters of one word with its variables: a few lines of A="$A$A" would fill the memory."""
MOST_WORDS = 5_000

_SHELL_INNER = r"\$\(\((?:(?!\)\)).)*\)\)|\$\((?>[^()]|\([^()]*\))*+\)|`[^`]*`"
_VARIABLE = r"\$\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|\$(?:[A-Za-z_]\w*|[0-9@*#?$!-])"
PIECE = re.compile(
    rf"""
    (?P<joined>\\\n) | (?P<escaped>\\(?:.|\Z))
  | \$?(?P<single>'[^']*(?:'|\Z))
  | (?P<double>"(?>\\.|{_SHELL_INNER}|[^"\\])*+(?:"|\Z))
  | (?P<comment>(?<![^\s;&|(])\#[^\n]*)
  | (?P<array>(?<![^\s;&|(])[A-Za-z_]\w*\+?=)\((?P<items>(?>"(?:\\.|[^"\\])*"|'[^']*'|[^()"'])*+)\)
  | (?P<opaque>{_SHELL_INNER}|<[A-Za-z_][\w./-]*(?:\ [\w./-]+)*>|\{{[^{{}}\s]*(?:,|\.\.)[^{{}}\s]*\}})
  | (?P<here>\d*<<-?[ \t]*(?P<quote>['"\\]?)(?P<mark>[A-Za-z_]\w*)['"]?[^\n]*\n(?:.*?\n)?\t*(?P=mark)(?=\n|\Z))
  | (?P<redirect>(?:(?<!\S)\d+|&)?(?:>>|>\||>&|<>|<&|<<<|>|<)[ \t]*&?[^\s;|&()<>]*)
  | (?P<variable>{_VARIABLE})
    """,
    re.VERBOSE | re.DOTALL,
)
IN_QUOTES = re.compile(
    rf"(?P<joined>\\\n)|\\(?P<escaped>[$`\"\\])|(?P<opaque>{_SHELL_INNER})|(?P<variable>{_VARIABLE})|.", re.DOTALL
)
TOKEN = re.compile(r"[;&|()\n]+|[^\s;&|()]+")
BRACED = re.compile(r"(?P<name>[A-Za-z_]\w*|\d|@)(?P<array>\[[@*]\])?(?::?[-=](?P<default>.*))?", re.DOTALL)
ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<add>\+?)=(?P<value>.*)", re.DOTALL)

# Letters of Unicode's private area stand for what is quoted, not known, or to be put in: the rest is plain splitting.
SHIFT = 0xE100
OPEN, CLOSE, EMPTY, IN_TEXT, IN_WORD, JOINED, BETWEEN = (chr(0xE000 + place) for place in range(7))
_SHIFTED = {letter: letter + SHIFT for letter in range(128)}
_PLAIN = {letter + SHIFT: letter for letter in range(128)} | dict.fromkeys(map(ord, (OPEN, CLOSE, EMPTY, JOINED)), None)
_PLAIN[ord(BETWEEN)] = ord(" ")
_SPACES = "".join(chr(ord(letter) + SHIFT) for letter in " \t\n")
_VARIABLES = re.compile(f"([{IN_TEXT}{IN_WORD}])([^{CLOSE}]*){CLOSE}")
_ITEMS = re.compile(f"(?:{OPEN}[^{CLOSE}]*{CLOSE}|[^{BETWEEN}])+")
_SPLIT = re.compile(f"(?:{OPEN}[^{CLOSE}]*{CLOSE}|[^{BETWEEN}{_SPACES}])+")

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


def read_script(text: str, line: int = 1, given: Mapping[str, str] | None = None) -> Script:
    """The commands of a text in their order; its first line is number `line`. `given`: what its shell finds set."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    shell = _Shell({name: _shift(value) for name, value in (given or {}).items()})
    commands: list[Command] = []
    for tokens in _commands(_marked(text), line):
        command = shell.command(tokens)
        if command is not None:
            commands.append(command)
    unclosed = next((found.start() for found in PIECE.finditer(text) if _is_unclosed(found)), None)
    return Script(commands, None if unclosed is None else line + text.count("\n", 0, unclosed))


def _is_unclosed(found: re.Match[str]) -> bool:
    piece = found["single"] or found["double"]
    if piece is not None:
        return len(piece) < 2 or piece[-1] != piece[0]
    return found["escaped"] == "\\"


def _shift(text: str) -> str:
    return text.translate(_SHIFTED)


def _opaque(text: str) -> str:
    return f"{OPEN}{_shift(text)}{CLOSE}"


def _marked(text: str) -> str:
    """The text with all that quotes protect in private letters, so that words are what stands between spaces."""
    return PIECE.sub(_piece, text)


def _piece(found: re.Match[str]) -> str:
    kind = next(kind for kind, piece in found.groupdict().items() if piece is not None)
    whole = found[0]
    if kind in ("joined", "here"):
        return JOINED * whole.count("\n")
    if kind in ("comment", "redirect"):
        return ""
    if kind == "single":
        return EMPTY + _shift(found["single"][1:].removesuffix("'"))
    if kind == "double":
        return EMPTY + IN_QUOTES.sub(_quoted, whole[1:].removesuffix('"'))
    if kind == "array":
        items = [token for tokens in _commands(_marked(found["items"]), 1) for token, _ in tokens]
        return found["array"] + BETWEEN.join(items) + JOINED * found["items"].count("\n")
    if kind == "escaped":
        return _shift(whole[1:])
    return f"{IN_WORD}{_shift(whole)}{CLOSE}" if kind == "variable" else _opaque(whole)


def _quoted(found: re.Match[str]) -> str:
    if found["joined"]:
        return JOINED
    if found["variable"]:
        return f"{IN_TEXT}{_shift(found[0])}{CLOSE}"
    return _opaque(found[0]) if found["opaque"] else _shift(found["escaped"] or found[0])


def _commands(marked: str, line: int) -> Iterator[list[tuple[str, int]]]:
    """The tokens between two separators, each with its line."""
    current: list[tuple[str, int]] = []
    newlines = re.compile(f"[\n{JOINED}{chr(10 + SHIFT)}]")
    at = 0
    for found in TOKEN.finditer(marked):
        line += len(newlines.findall(marked, at, found.start()))
        at = found.start()
        token = found[0].replace(JOINED, "")
        if found[0][0] in ";&|()\n":
            if current:
                yield current
            current = []
        elif token:
            # Newlines in front of the first letter belong to what was before.
            current.append((token, line + len(found[0]) - len(found[0].lstrip(JOINED))))
    if current:
        yield current


class _Shell:
    """What the script has set so far; values are marked texts."""

    def __init__(self, given: dict[str, str]) -> None:
        self.values = given
        self.exported: dict[str, tuple[str, int]] = {}
        self.depth = 0

    def command(self, tokens: list[tuple[str, int]]) -> Command | None:
        """The command with its variables put in; None for one that only sets variables."""
        tokens = self._without_keywords(tokens)
        prefix: dict[str, tuple[str, int]] = {}
        while tokens and (found := ASSIGNMENT.fullmatch(tokens[0][0])):
            prefix[found["name"]] = (self._assign(found, keep=len(tokens) == 1), tokens[0][1])
            tokens = tokens[1:]
        if not tokens:
            return None
        if tokens[0][0] in SETTERS:
            for token, line in tokens[1:]:
                found = ASSIGNMENT.fullmatch(token)
                if found or token in self.values:
                    name = found["name"] if found else token
                    value = self._assign(found, keep=True) if found else self.values[name]
                    self.exported[name] = (value, line)
            return None
        words = [_word(text, line) for token, line in tokens[:MOST_WORDS] for text in self.expand(token)][:MOST_WORDS]
        environment = {name: _word(value, line) for name, (value, line) in {**self.exported, **prefix}.items()}
        return Command(tokens[0][1], words, environment) if words else None

    def _without_keywords(self, tokens: list[tuple[str, int]]) -> list[tuple[str, int]]:
        while tokens and (tokens[0][0] in KEYWORDS or (tokens[0][0] in PROMPTS and len(tokens) > 1)):
            keyword = tokens[0][0]
            self.depth += (keyword in OPENS) - (keyword in CLOSES)
            if keyword == "for" and len(tokens) > 1:
                self.values[tokens[1][0]] = _opaque(f"${tokens[1][0]}")
            if keyword in ("for", "case", "function"):
                return []
            tokens = tokens[1:]
        return tokens

    def _assign(self, found: re.Match[str], keep: bool) -> str:
        name = found["name"]
        value = BETWEEN.join(_ITEMS.findall(_VARIABLES.sub(self._put_in, found["value"]))).replace(EMPTY, "")
        if found["add"]:
            value = (
                self.values.get(name, "")
                + (BETWEEN if BETWEEN in value or BETWEEN in self.values.get(name, "") else "")
                + value
            )
        if len(value) > LONGEST_WORD:
            value = _opaque(f"${name}")
        if keep:
            # Which branch is taken, only a run would tell.
            differs = self.depth > 0 and self.values.get(name, value) != value
            self.values[name] = _opaque(f"${name}") if differs else value
        return value

    def expand(self, token: str) -> list[str]:
        """The words that one becomes: an unquoted variable with spaces in it becomes several, an empty one none."""
        words: list[str] = []
        current, at = "", 0
        for found in _VARIABLES.finditer(token):
            current += token[at : found.start()]
            at = found.end()
            value = self._value(found[2].translate(_PLAIN))
            whole = found[2].translate(_PLAIN).endswith("[@]}")
            if found[1] == IN_TEXT and not whole:
                pieces = [value.replace(BETWEEN, _shift(" "))]
            else:
                pieces = (_ITEMS if found[1] == IN_TEXT else _SPLIT).findall(value)
            if len(value) > LONGEST_WORD or len(words) > MOST_WORDS:
                return [*words, _opaque("…")]
            current += pieces[0] if pieces else ""
            for piece in pieces[1:]:
                words.append(current)
                current = piece
        current += token[at:]
        return [*words, current] if current else words

    def _put_in(self, found: re.Match[str]) -> str:
        """Inside an assignment nothing is split, but for the items of an array."""
        return self._value(found[2].translate(_PLAIN))

    def _value(self, written: str) -> str:
        inner = written[2:-1] if written.startswith("${") else written[1:]
        found = BRACED.fullmatch(inner)
        if found is None:
            return _opaque(written)
        known = self.values.get(found["name"])
        if known is not None or found["default"] is None:
            return _opaque(written) if known is None else known
        return IN_QUOTES.sub(_quoted, found["default"].strip("\"'")).replace(IN_TEXT, OPEN)


def _word(marked: str, line: int) -> Word:
    return Word(marked.translate(_PLAIN), line, OPEN not in marked)
