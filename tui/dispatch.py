"""Who does what a row of the key table says, when it is not a key that asks: a click, the palette."""

from __future__ import annotations

from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget
from trainwiz.tui.keys import KeyBinding


def owner_of(row: KeyBinding, screen: Screen[object], focused: Widget | None) -> DOMNode:
    """What has the action: looked for from the focus outwards, as for a key; else the app."""
    name = f"action_{row.action.partition('(')[0]}"
    inner = [] if focused is None else focused.ancestors_with_self
    return next((node for node in (*inner, screen) if hasattr(node, name)), screen.app)
