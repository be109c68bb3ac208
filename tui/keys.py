"""The one key table: it drives dispatch, the key bar and the help of every screen.

Left out on purpose, because tmux, flow control, shells or editors take them: ctrl+s, ctrl+b,
ctrl+a, ctrl+o, ctrl+j, ctrl+h and ctrl+m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding

ScreenName = Literal["app", "plan", "edit", "files", "monitor", "dialog", "confirm", "list"]

STOLEN_KEYS: frozenset[str] = frozenset(f"ctrl+{letter}" for letter in "sbaojhm")


@dataclass(frozen=True, slots=True)
class KeyBinding:
    """One key of one screen. `id` is stable, so that a user's keymap can name it."""

    id: str
    key: str
    """Textual's name of the key; several are parted by commas."""
    action: str
    description: str
    """One or two words for the key bar."""
    tooltip: str
    """One sentence for the help."""
    screen: ScreenName
    label: str = ""
    """How the key bar writes the key; empty writes `key`."""
    rank: int = 1
    """Where the key bar has too little room, higher ranks go first; 0 always stays, 9 is never shown there."""
    priority: bool = False

    @property
    def shown_key(self) -> str:
        return self.label or self.key.partition(",")[0].replace("escape", "esc").replace("question_mark", "?")


REMEDY_KEYS = "123456789"

KEYS: tuple[KeyBinding, ...] = (
    KeyBinding("app.help", "f1,question_mark", "help", "help", "Explain what has the focus, and list all keys.", "app"),
    KeyBinding("app.quit", "q,f10", "leave", "quit", "Leave. A run that was started goes on.", "app", rank=0),
    KeyBinding("app.theme", "f2", "next_theme", "theme", "Next theme: dark, light, high contrast.", "app", rank=9),
    KeyBinding("plan.next", "enter", "next_step", "next", "Go to the next step; start, on the last.", "plan", rank=0),
    KeyBinding("plan.back", "escape", "previous_step", "back", "Go back one step. Nothing is lost.", "plan", rank=0),
    KeyBinding(
        "plan.next_field",
        "down,tab",
        "next_field",
        "move",
        "Go to the next field.",
        "plan",
        label="↑↓",
        rank=4,
    ),
    KeyBinding(
        "plan.previous_field", "up,shift+tab", "previous_field", "field above", "Go to the field above.", "plan", rank=9
    ),
    KeyBinding(
        "plan.change", "space", "change_field", "change", "Edit the value, or open the list of values.", "plan", rank=2
    ),
    KeyBinding("plan.next_value", "right", "next_value(1)", "next value", "Take the next value.", "plan", rank=9),
    KeyBinding(
        "plan.previous_value", "left", "next_value(-1)", "value before", "Take the value before.", "plan", rank=9
    ),
    KeyBinding("plan.find", "slash", "find", "find a value", "Find a field by its name.", "plan", label="/", rank=3),
    *(
        KeyBinding(
            f"plan.remedy_{digit}",
            digit,
            f"apply_remedy({digit})",
            "apply a remedy" if digit == "1" else f"remedy {digit}",
            f"Apply the remedy with the number {digit}.",
            "plan",
            label="1-9" if digit == "1" else "",
            rank=2 if digit == "1" else 9,
        )
        for digit in REMEDY_KEYS
    ),
    KeyBinding("plan.reset", "r", "reset_field", "reset value", "Take back your change of this field.", "plan", rank=3),
    KeyBinding("plan.start", "f5", "start", "start", "Start the run as it is planned now.", "plan"),
    KeyBinding(
        "plan.scroll_down", "pagedown", "scroll_plan(1)", "scroll plan", "Scroll the plan down.", "plan", rank=9
    ),
    KeyBinding("plan.scroll_up", "pageup", "scroll_plan(-1)", "scroll plan up", "Scroll the plan up.", "plan", rank=9),
    KeyBinding("plan.copy", "c", "copy_command", "copy command", "Copy the exact command.", "plan", rank=9),
    KeyBinding(
        "edit.accept", "enter", "accept", "accept", "Keep the value and leave the field.", "edit", rank=0, priority=True
    ),
    KeyBinding(
        "edit.cancel", "escape", "cancel", "cancel", "Leave the field as it was.", "edit", rank=0, priority=True
    ),
    KeyBinding("files.down", "down", "move_file(1)", "next file", "Show the next file.", "files", rank=9),
    KeyBinding("files.up", "up", "move_file(-1)", "file above", "Show the file above.", "files", rank=9),
    KeyBinding("monitor.stop", "s", "stop", "stop", "Stop the run with a checkpoint; asks once.", "monitor", rank=0),
    KeyBinding("monitor.log", "l", "show_log", "log", "Show the whole log.", "monitor"),
    KeyBinding("monitor.metric", "m", "next_metric", "metric", "Plot the next metric.", "monitor"),
    KeyBinding("monitor.zoom", "z", "zoom", "zoom", "Plot the last steps only, or all of them.", "monitor", rank=2),
    KeyBinding("monitor.scale", "e", "log_scale", "log scale", "Switch the logarithmic scale.", "monitor", rank=3),
    KeyBinding("monitor.plan", "p", "show_plan", "plan", "Show the plan that this run was started from.", "monitor"),
    KeyBinding("dialog.close", "escape", "close", "close", "Close this window; nothing changes.", "dialog", rank=0),
    KeyBinding("dialog.done", "enter,f1,q", "close", "close", "Close this window.", "dialog", rank=9),
    KeyBinding("confirm.press", "enter", "press", "choose", "Do what the button says.", "confirm", rank=0),
    KeyBinding("confirm.close", "escape", "close", "close", "Close this window; nothing changes.", "confirm", rank=0),
    KeyBinding("confirm.left", "left", "app.focus_previous", "button before", "Go to the button before.", "confirm"),
    KeyBinding("confirm.right", "right", "app.focus_next", "next button", "Go to the next button.", "confirm"),
    KeyBinding("list.close", "escape", "close", "close", "Close the list; nothing changes.", "list", rank=0),
    KeyBinding("list.down", "down", "move(1)", "next entry", "Go to the next entry.", "list", rank=9),
    KeyBinding("list.up", "up", "move(-1)", "entry above", "Go to the entry above.", "list", rank=9),
)


def keys_of(*screens: ScreenName) -> tuple[KeyBinding, ...]:
    """The rows of the table for these screens, in the order of the table within each screen."""
    return tuple(row for screen in screens for row in KEYS if row.screen == screen)


def bindings(*screens: ScreenName) -> list[Binding]:
    """Textual bindings for a class's BINDINGS."""
    return [
        Binding(
            key=row.key,
            action=row.action,
            description=row.description,
            tooltip=row.tooltip,
            id=row.id,
            key_display=row.shown_key,
            show=row.rank < 9,
            priority=row.priority,
        )
        for row in keys_of(*screens)
    ]
