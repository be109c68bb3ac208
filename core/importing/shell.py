"""The commands of a shell script as words. No shell is asked.

What only a shell or the machine could know (`$RANK`, `$(nproc)`, a template's <MODEL>) stays as it is written, in words
that say that they are not known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_SUBSHELL = r"\$\((?>[^()]|\((?>[^()]|\([^()]*\))*+\))*+\)|`[^`]*`|\$[0-9@*\#?!-]"
_VARIABLE = r"\$[A-Za-z_]\w*|\$\{[^{}]*\}"
PIECE = re.compile(
    rf"""(?P<joined>\\\n)|(?P<comment>(?<![^\s;&|(])\#[^\n]*)|(?P<variable>{_VARIABLE})
  | (?P<opaque>{_SUBSHELL}|<[A-Za-z_][\w./-]*(?:\ [\w./-]+)*>|\{{(?=[^{{}}\s]*+\}})[^{{}}\s]*(?:,|\.\.)[^{{}}\s]*\}})
  | (?P<redirect>(?:(?<!\S)\d+|&)?(?:>>|>&|<&|>|<)[ \t]*&?[^\s<>;|&()]*)
  | "(?P<double>(?:{_SUBSHELL}|[^"\\]|\\.)*+)(?P<ends>"?)|'(?P<single>[^']*)(?P<closes>'?)|\\(?P<escaped>.)""",
    re.VERBOSE | re.DOTALL,
)
"""All of a script that is more than plain words, spaces and ends of commands."""
IN_DOUBLE = re.compile(rf'(?P<joined>\\\n)|(?P<variable>{_VARIABLE})|(?P<opaque>{_SUBSHELL})|\\(?P<escaped>[$`"\\])')
FILLED = re.compile(r"(?P<sign>[$\ue002])(?:(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[^{}]*)\})")
BRACED = re.compile(r"(?P<name>[A-Za-z_]\w*)(?::?[-=](?P<default>[^$`]*))?")
ASSIGNED = re.compile(r"(?P<name>\+{0,2}[A-Za-z_][\w.]*)=(?P<value>.*)", re.DOTALL)
"""Hydra's way: learning_rate=1e-4."""
WORD = re.compile(r"[^ \t\n\ue000;|()&]+|[;|()&\n]")
CUT_OFF_LINE = re.compile(r"\\\s*\Z")
OPENS, CLOSES = frozenset({"if", "for", "while", "until", "case"}), frozenset({"fi", "done", "esac"})
KEYWORDS = OPENS | CLOSES | {"then", "else", "elif", "do", "{", "}", "!", "in", "function", "$", "%", "#"}
"""With the prompts that people copy."""
SETTERS = frozenset({"export", "declare", "local", "readonly", "typeset", "set", "setenv"})
MOST_PUT_IN = 200_000
"""Characters of all that variables bring: a few lines of A="$A$A" would fill the memory."""

# Private-use characters for: a continued line, an unknown value, a variable in quotes, an opening quote, a line continued
# inside a quote; then what a quote protects, and the inside of $(nproc --all), which must not be split into words.
JOINED, NOT_KNOWN, IN_QUOTES, QUOTE, JOINED_IN_QUOTES = "\ue000\ue001\ue002\ue003\ue004"
SPECIAL = " \t\n;|()&$<>#"
PROTECTED = {ord(letter): 0xE100 + ord(letter) for letter in SPECIAL}
OPAQUE = {ord(letter): 0xE200 + ord(letter) for letter in SPECIAL}
UNPROTECTED = {hidden: letter for letter, hidden in PROTECTED.items()} | {ord(QUOTE): None, ord(JOINED_IN_QUOTES): None}
PLAIN = UNPROTECTED | {hidden: letter for letter, hidden in OPAQUE.items()} | {
    ord(JOINED): None, ord(NOT_KNOWN): None, ord(IN_QUOTES): "$"
}  # fmt: skip
LINE_ENDS = re.compile(f"[\n{JOINED}{JOINED_IN_QUOTES}{chr(0xE10A)}{chr(0xE20A)}]")


@dataclass(frozen=True, slots=True)
class Word:
    """One word; where `known` is False, `text` holds pieces as they are written."""

    text: str
    line: int
    known: bool = True


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its words, and the environment that the script gives it."""

    words: list[Word]
    environment: Mapping[str, Word] = field(default_factory=dict)


class Script:
    """The commands of a text in their order; `cut_off` is the line of a quote that nothing closes, or of a backslash
    at the end."""

    def __init__(self, text: str, line: int = 1, given: Mapping[str, str] | None = None) -> None:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        whole = CUT_OFF_LINE.sub("", text)
        self.cut_off = line + whole.count("\n") if whole != text else None
        self.commands: list[Command] = []
        self.values: dict[str, str] = dict(given or {})
        self.exported: dict[str, Word] = {}
        self.depth = self.put_in = at = 0
        self.line = line
        flat = PIECE.sub(self._flat, whole)
        words: list[tuple[str, int]] = []
        for found in WORD.finditer(flat):
            line, at = line + len(LINE_ENDS.findall(flat, at, found.start())), found.start()
            if found[0] in SPECIAL:
                self._end_command(words)
                words = []
            else:
                words += [(word, line) for word in self._filled(found[0])]
        self._end_command(words)

    def _flat(self, found: re.Match[str]) -> str:
        """A piece such that only its ends are still spaces and ends of commands."""
        kind, text = found.lastgroup or "", found[0]
        if kind in ("ends", "closes") and not found[kind]:
            self.cut_off = self.line + found.string.count("\n", 0, found.start())
        if kind == "ends":
            return QUOTE + IN_DOUBLE.sub(self._in_double, found["double"]).translate(PROTECTED)
        if kind == "closes":
            return QUOTE + found["single"].translate(PROTECTED)
        flat = {"joined": JOINED, "comment": "", "redirect": " ", "variable": text.replace(" ", chr(0xE120))}
        return flat[kind] if kind in flat else self._in_double(found).translate(PROTECTED)

    @staticmethod
    def _in_double(found: re.Match[str]) -> str:
        kind, text = found.lastgroup, found[0]
        if kind == "opaque":
            return NOT_KNOWN + text.translate(OPAQUE)
        return (
            JOINED_IN_QUOTES if kind == "joined" else IN_QUOTES + text[1:] if kind == "variable" else found["escaped"]
        )

    def _filled(self, text: str) -> list[str]:
        """The words that one becomes with the values of its variables, which outside of quotes are split."""
        filled = FILLED.sub(self._value, text)
        return [filled] if filled == text or ASSIGNED.match(text) else filled.split()

    def _value(self, found: re.Match[str]) -> str:
        braced = BRACED.fullmatch(found["name"] or found["braced"].translate(UNPROTECTED))
        value = None if braced is None else self.values.get(braced["name"], braced["default"])
        self.put_in += len(value or "")
        if value is None or self.put_in > MOST_PUT_IN:
            return NOT_KNOWN + found[0].translate(OPAQUE)
        return value if found["sign"] == "$" else value.translate(PROTECTED)

    def _end_command(self, words: list[tuple[str, int]]) -> None:
        while words and words[0][0] in KEYWORDS:
            keyword = words[0][0]
            self.depth += (keyword in OPENS) - (keyword in CLOSES)
            words = [] if keyword in ("for", "case", "function") else words[1:]
        prefix: dict[str, Word] = {}
        while words and (found := ASSIGNED.fullmatch(words[0][0])):
            prefix[found["name"]] = self._assign(found, words[0][1], keep=len(words) == 1)
            words = words[1:]
        if words and words[0][0] in SETTERS:
            for text, at in words[1:]:
                if (found := ASSIGNED.fullmatch(text)) is not None:
                    self.exported[found["name"]] = self._assign(found, at, keep=True)
                elif text in self.values:
                    self.exported[text] = _word(self.values[text], at)
        elif words:
            self.commands.append(Command([_word(text, at) for text, at in words], {**self.exported, **prefix}))

    def _assign(self, found: re.Match[str], line: int, keep: bool) -> Word:
        name, value = found["name"], found["value"].translate(UNPROTECTED)
        if keep:
            # Which branch is taken, only a run would tell.
            differs = self.depth > 0 and self.values.get(name, value) != value
            self.values[name] = f"{NOT_KNOWN}${name}" if differs else value
        return _word(value, line)


def _word(text: str, line: int) -> Word:
    return Word(text.translate(PLAIN), line, NOT_KNOWN not in text)
