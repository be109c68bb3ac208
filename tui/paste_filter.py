"""PasteFilter: what is pasted holds no keys. Textual takes an escape within a paste, and all after it, for typed keys."""

from __future__ import annotations

ESCAPE = "\x1b"
START, END = "\x1b[200~", "\x1b[201~"
"""What a terminal writes around a paste."""


class PasteFilter:
    """Takes the escapes out of pasted text; it comes in pieces of any length."""

    def __init__(self) -> None:
        self._pasting = False
        self._before = ""
        """The end of what was passed on, which may be the beginning of START."""
        self._held = ""
        """Of a paste: what may be the beginning of END."""

    def passed(self, text: str) -> str:
        """The text without the escapes of a paste."""
        parts: list[str] = []
        while text:
            part, text = self._pasted(text) if self._pasting else self._typed(text)
            parts.append(part)
        return "".join(parts)

    def _typed(self, text: str) -> tuple[str, str]:
        """(what is passed on, what is left): up to the start of a paste."""
        joined = self._before + text
        at = joined.find(START)
        if at < 0:
            self._before = joined[1 - len(START) :]
            return text, ""
        here = at + len(START) - len(self._before)
        self._pasting, self._before = True, ""
        return text[:here], text[here:]

    def _pasted(self, text: str) -> tuple[str, str]:
        """The same, up to the end of the paste."""
        inside, end, rest = (self._held + text).partition(END)
        self._held = ""
        if not end:
            lengths = (length for length in range(len(END) - 1, 0, -1) if inside.endswith(END[:length]))
            length = next(lengths, 0)
            inside, self._held = inside[: len(inside) - length], inside[len(inside) - length :]
        self._pasting = not end
        return inside.replace(ESCAPE, "") + end, rest
