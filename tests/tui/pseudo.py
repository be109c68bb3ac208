"""A language that nobody speaks: every translated text comes in Cyrillic letters, so that a Latin word was not translated."""

from __future__ import annotations

import gettext
import re
from collections.abc import Iterable

from textual.app import App

_OTHER = dict(zip(map(ord, "abcdefghijklmnopqrstuvwxyz"), "абцдефгхийклмнопярстувжшыз", strict=True))
_OTHER |= {ord(chr(letter).upper()): other.upper() for letter, other in tuple(_OTHER.items())}
_BRACES = re.compile(r"(\{[^{}]*\})")
_WORD = re.compile(r"(?<![\w./\\-])[A-Za-z]{3,}(?![\w./\\=-])")


class Pseudo(gettext.NullTranslations):
    """Translates everything: {names} stay, letters become others of the same width."""

    def gettext(self, message: str) -> str:
        parts = _BRACES.split(message)
        return "".join(part if part.startswith("{") else part.translate(_OTHER) for part in parts)

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return self.gettext(msgid1 if n == 1 else msgid2)


def screen_lines(app: App[object]) -> list[str]:
    """What stands on the screen, as text."""
    return [strip.text for strip in app.screen._compositor.render_strips()]


def words_in(texts: Iterable[object]) -> set[str]:
    """All words of some data, which a screen may show as they are."""
    return {word.lower() for text in texts for word in re.findall(r"[A-Za-z]{3,}", str(text))}


def is_known(found: re.Match[str], known: set[str]) -> bool:
    word, behind = found.group().lower(), found.string[found.end() :].lstrip(" ")
    return word in known or (behind[:1] in ("", *"│┃|…╭╮╯╰") and any(one.startswith(word) for one in known))


def english_left(lines: Iterable[str], known: set[str]) -> list[str]:
    """Words of three letters and more in Latin script that are not `known`, each with its line.

    What a border or the end of the line cut off is known when a known word begins so.
    """
    found = []
    for line in lines:
        words = [found.group() for found in _WORD.finditer(line) if not is_known(found, known)]
        if words:
            found.append(f"{', '.join(words)}: {line.strip()}")
    return found
