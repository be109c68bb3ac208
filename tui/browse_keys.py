"""Keys of the file picker, while its text has the focus, and of the table of the first rows."""

from __future__ import annotations

from trainwiz.core.language import mark
from trainwiz.tui.key_binding import KeyBinding

BROWSE_KEYS: tuple[KeyBinding, ...] = (
    KeyBinding(
        "browse.close", "escape", "close", mark("close"), mark("Close the list; nothing changes."), "browse", rank=0
    ),
    KeyBinding("browse.down", "down", "move(1)", mark("next entry"), mark("Go to the next entry."), "browse", rank=9),
    KeyBinding("browse.up", "up", "move(-1)", mark("entry above"), mark("Go to the entry above."), "browse", rank=9),
    KeyBinding("browse.page_down", "pagedown", "page(1)", mark("page down"), mark("Go a page down."), "browse", rank=9),
    KeyBinding("browse.page_up", "pageup", "page(-1)", mark("page up"), mark("Go a page up."), "browse", rank=9),
    KeyBinding("browse.enter", "tab", "complete", mark("enter folder"), mark("Go into the folder."), "browse", rank=2),
    KeyBinding(
        "browse.above", "shift+tab", "above", mark("folder above"), mark("Go to the folder above."), "browse", rank=3
    ),
    KeyBinding(
        "columns.after",
        "right",
        "move_column(1)",
        mark("next column"),
        mark("Go to the next column."),
        "columns",
        rank=2,
    ),
    KeyBinding(
        "columns.before",
        "left",
        "move_column(-1)",
        mark("column before"),
        mark("Go to the column before."),
        "columns",
        rank=9,
    ),
    KeyBinding("columns.text", "space", "take_text", mark("as text"), mark("Learn from this column."), "columns"),
    KeyBinding(
        "columns.target",
        "t",
        "take_target",
        mark("as target"),
        mark("Answer with this column; in plain text learning, the same key goes back."),
        "columns",
    ),
)
