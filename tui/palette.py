"""The command palette: the rows of the key table that work now, found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from trainwiz.core.language import tr
from trainwiz.tui.dispatch import owner_of
from trainwiz.tui.keys import KeyBinding, keys_of

TOOLTIP_WEIGHT = 0.9
"""A word of the explanation counts a little less than one of the name."""


class KeyProvider(Provider):
    """Every key of the screen as an action; a screen says in `key_rows` which ones work."""

    async def discover(self) -> Hits:
        for row, words, run in self._actions():
            yield DiscoveryHit(Content(words), run, text=words, help=row.sentence)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        found = False
        for row, words, run in self._actions():
            score = max(matcher.match(words), TOOLTIP_WEIGHT * matcher.match(row.sentence))
            if score > 0:
                found = True
                yield Hit(score, matcher.highlight(words), run, text=words, help=row.sentence)

        if not found:
            # Textual's own words for it have no translation.
            nothing = tr("No action has that in its name.")
            yield Hit(1.0, Content(nothing), lambda: None, text=nothing)

    def _actions(self) -> Iterator[tuple[KeyBinding, str, Callable[[], object]]]:
        for row in self._rows():
            if row.id != "app.palette":
                run = partial(self.app.run_action, row.action, owner_of(row, self.screen, self.focused))
                yield row, f"{row.words} ({row.shown_key})", run

    def _rows(self) -> list[KeyBinding]:
        key_rows: Callable[[], list[KeyBinding]] | None = getattr(self.screen, "key_rows", None)
        return [*keys_of("app")] if key_rows is None else key_rows()
