"""Keys of the whole application, of its windows and of its lists."""

from __future__ import annotations

from trainwiz.core.language import mark
from trainwiz.tui.key_binding import KeyBinding

APP_KEYS: tuple[KeyBinding, ...] = (
    KeyBinding(
        "app.help",
        "f1,question_mark",
        "help",
        mark("help"),
        mark("Explain what has the focus, and list all keys."),
        "app",
    ),
    KeyBinding(
        "app.quit", "q,f10", "leave", mark("quit"), mark("Leave. A run that was started goes on."), "app", rank=0
    ),
    KeyBinding(
        "app.palette",
        "colon,ctrl+p",
        "command_palette",
        mark("all actions"),
        mark("Find an action by its name."),
        "app",
        rank=9,
    ),
    KeyBinding(
        "app.theme", "f2", "next_theme", mark("theme"), mark("Next theme: dark, light, high contrast."), "app", rank=9
    ),
    KeyBinding(
        "dialog.close", "escape", "close", mark("close"), mark("Close this window; nothing changes."), "dialog", rank=0
    ),
    KeyBinding("dialog.done", "enter,f1,q", "close", mark("close"), mark("Close this window."), "dialog", rank=9),
    KeyBinding("confirm.press", "enter", "press", mark("choose"), mark("Do what the button says."), "confirm", rank=0),
    KeyBinding(
        "confirm.close",
        "escape",
        "close",
        mark("close"),
        mark("Close this window; nothing changes."),
        "confirm",
        rank=0,
    ),
    KeyBinding(
        "confirm.left", "left", "app.focus_previous", mark("button before"), mark("Go to the button before."), "confirm"
    ),
    KeyBinding(
        "confirm.right", "right", "app.focus_next", mark("next button"), mark("Go to the next button."), "confirm"
    ),
    KeyBinding("picker.open", "enter", "open", mark("watch"), mark("Watch what is marked."), "picker", rank=0),
    KeyBinding("picker.down", "down", "move(1)", mark("move"), mark("Go to the next entry."), "picker", label="↑↓"),
    KeyBinding("picker.up", "up", "move(-1)", mark("entry above"), mark("Go to the entry above."), "picker", rank=9),
    KeyBinding("picker.leave", "escape", "app.leave", mark("leave"), mark("Leave; nothing changes."), "picker", rank=9),
    KeyBinding(
        "list.close", "escape", "close", mark("close"), mark("Close the list; nothing changes."), "list", rank=0
    ),
    KeyBinding("list.down", "down", "move(1)", mark("next entry"), mark("Go to the next entry."), "list", rank=9),
    KeyBinding("list.up", "up", "move(-1)", mark("entry above"), mark("Go to the entry above."), "list", rank=9),
)
