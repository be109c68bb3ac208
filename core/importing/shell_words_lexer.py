"""The text of a shell script -> commands of words, nothing of it expanded yet. No shell is asked.

Source: POSIX.1-2024, Shell Command Language, 2.2 (quoting), 2.3 (tokens), 2.6 (expansions), 2.7 (redirections), and
what bash adds: arrays, `|&`, `&>`, `<<<`, brace expansion.
"""

from __future__ import annotations

import re

from trainwiz.core.importing.shell_words_parts import Part, RawCommand, RawWord

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
