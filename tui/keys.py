"""The one key table: it drives dispatch, the key bar and the help of every screen."""

from __future__ import annotations

from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget
from trainwiz.tui.key_binding import APP_KEYS, MONITOR_KEYS, PANEL_KEYS, PANEL_NAMES, KeyBinding, Need, ScreenName
from trainwiz.tui.plan_keys import BROWSE_KEYS, IMPORT_KEYS, PLAN_KEYS, REMEDY_KEYS

__all__ = [
    "KEYS",
    "PANEL_NAMES",
    "REMEDY_KEYS",
    "STOLEN_KEYS",
    "KeyBinding",
    "Need",
    "ScreenName",
    "bindings",
    "keys_of",
]

STOLEN_KEYS: frozenset[str] = frozenset(f"ctrl+{letter}" for letter in "sbaojhm")
"""Left out on purpose, because tmux, flow control, shells or editors take them."""

KEYS: tuple[KeyBinding, ...] = (*APP_KEYS, *BROWSE_KEYS, *PLAN_KEYS, *IMPORT_KEYS, *MONITOR_KEYS, *PANEL_KEYS)


def keys_of(*screens: ScreenName) -> tuple[KeyBinding, ...]:
    """The rows of the table for these screens, in the order of the table within each screen."""
    return tuple(row for screen in screens for row in KEYS if row.screen == screen)


def bindings(*screens: ScreenName) -> list[Binding]:
    """Textual bindings for a class's BINDINGS; made at import, so they are in English: screens draw the rows."""
    return [
        Binding(
            key=row.key,
            action=row.action,
            description=row.words,
            tooltip=row.sentence,
            id=row.id,
            key_display=row.shown_key,
            show=row.rank < 9,
            priority=row.priority,
        )
        for row in keys_of(*screens)
    ]


def owner_of(row: KeyBinding, screen: Screen[object], focused: Widget | None) -> DOMNode:
    """What has the action, where a click or the palette asks for it: looked for from the focus outwards, as for a key."""
    name = f"action_{row.action.partition('(')[0]}"
    inner = [] if focused is None else focused.ancestors_with_self
    return next((node for node in (*inner, screen) if hasattr(node, name)), screen.app)
