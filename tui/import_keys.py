"""Keys of the window in which foreign settings are read."""

from __future__ import annotations

from trainwiz.core.language import mark
from trainwiz.tui.key_binding import KeyBinding

IMPORT_KEYS: tuple[KeyBinding, ...] = (
    KeyBinding(
        "import.press",
        "enter",
        "press",
        mark("go on"),
        mark("Go on to the button when something was read, or do what the button says."),
        "import",
        rank=0,
    ),
    KeyBinding(
        "import.next",
        "tab",
        "app.focus_next",
        mark("move"),
        mark("Go to the next field or button; shift+tab goes back."),
        "import",
        rank=2,
    ),
    KeyBinding(
        "import.page_down",
        "pagedown",
        "scroll_report(1)",
        mark("report"),
        mark("Scroll the report down."),
        "import",
        label="pgdn",
        rank=3,
        priority=True,
    ),
    KeyBinding(
        "import.page_up",
        "pageup",
        "scroll_report(-1)",
        mark("report up"),
        mark("Scroll the report up."),
        "import",
        rank=9,
        priority=True,
    ),
    KeyBinding(
        "import.browse",
        "f3",
        "browse",
        mark("browse files"),
        mark("Choose a file; its path is put above the text."),
        "import",
        rank=1,
    ),
    KeyBinding(
        "import.help",
        "f1",
        "help",
        mark("help"),
        mark("Say what can be read here, and list the keys."),
        "import",
        rank=2,
    ),
    KeyBinding(
        "import.close",
        "escape",
        "close",
        mark("close"),
        mark("Close this window; nothing is written and no value changes."),
        "import",
        rank=0,
        priority=True,
    ),
)
