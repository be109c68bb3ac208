"""The one key table: it drives dispatch, the key bar and the help of every screen.

Left out on purpose, because tmux, flow control, shells or editors take them: ctrl+s, ctrl+b,
ctrl+a, ctrl+o, ctrl+j, ctrl+h and ctrl+m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding

ScreenName = Literal[
    "app", "plan", "edit", "files", "monitor", "metric", "cards", "gpu", "log", "dialog", "confirm", "list", "picker"
]
Need = Literal["", "stop", "stop_now", "resume", "plan", "command", "note", "replay"]
"""What a run must offer (`Snapshot.actions`, a replay) for a key to work."""

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
    needs: Need = ""

    @property
    def shown_key(self) -> str:
        return self.label or self.key.partition(",")[0].replace("escape", "esc").replace("question_mark", "?").replace(
            "colon", ":"
        )


REMEDY_KEYS = "123456789"
PANEL_NAMES = ("plot", "pace", "device", "RAM and disk", "advice", "log")
"""The panels of the monitor in the order of their digits."""
PANELS_BY_DIGIT = "Show one panel alone: {}; the same key goes back.".format(
    ", ".join(f"{place} {name}" for place, name in enumerate(PANEL_NAMES, start=1))
)

KEYS: tuple[KeyBinding, ...] = (
    KeyBinding("app.help", "f1,question_mark", "help", "help", "Explain what has the focus, and list all keys.", "app"),
    KeyBinding("app.quit", "q,f10", "leave", "quit", "Leave. A run that was started goes on.", "app", rank=0),
    KeyBinding(
        "app.palette", "colon,ctrl+p", "command_palette", "all actions", "Find an action by its name.", "app", rank=9
    ),
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
    KeyBinding(
        "monitor.stop",
        "s",
        "stop",
        "stop",
        "Stop the run with a checkpoint; asks first.",
        "monitor",
        rank=0,
        needs="stop",
    ),
    KeyBinding(
        "monitor.stop_now",
        "S",
        "stop_now",
        "stop now",
        "End the run at once, without a new checkpoint; asks first.",
        "monitor",
        rank=9,
        needs="stop_now",
    ),
    KeyBinding(
        "monitor.resume",
        "r",
        "resume",
        "resume",
        "Go on from the newest complete checkpoint; asks first.",
        "monitor",
        rank=0,
        needs="resume",
    ),
    KeyBinding("monitor.log", "l", "show_log", "log", "Show the whole log.", "monitor"),
    *(
        KeyBinding(
            f"monitor.panel_{place}",
            str(place),
            f"one_panel({place})",
            "panels" if place == 1 else name,
            PANELS_BY_DIGIT if place == 1 else f"Show the {name} panel alone; the same key goes back.",
            "monitor",
            label="1-6" if place == 1 else "",
            rank=1 if place == 1 else 9,
        )
        for place, name in enumerate(PANEL_NAMES, start=1)
    ),
    KeyBinding("monitor.metric", "m", "choose_metric", "metric", "Choose what is plotted.", "monitor"),
    KeyBinding(
        "monitor.next_metric",
        "full_stop",
        "next_metric(1)",
        "next metric",
        "Plot the next metric.",
        "monitor",
        label=".",
        rank=9,
    ),
    KeyBinding(
        "monitor.previous_metric",
        "comma",
        "next_metric(-1)",
        "metric before",
        "Plot the metric before.",
        "monitor",
        label=",",
        rank=9,
    ),
    KeyBinding("monitor.maximise", "x", "maximise", "maximise", "Give the whole screen to a panel.", "monitor", rank=2),
    KeyBinding("monitor.zoom", "z", "zoom", "zoom", "Plot the last steps only, or all of them.", "monitor", rank=2),
    KeyBinding("monitor.scale", "e", "log_scale", "log scale", "Switch the logarithmic scale.", "monitor", rank=3),
    KeyBinding(
        "monitor.plan",
        "p",
        "show_plan",
        "plan",
        "Show the plan that this run was started from.",
        "monitor",
        needs="plan",
    ),
    KeyBinding(
        "monitor.traffic", "t", "show_traffic", "traffic", "Show the traffic of network and disk.", "monitor", rank=3
    ),
    KeyBinding("monitor.fold", "f", "fold", "fold", "Fold the panel to its title, or unfold it.", "monitor", rank=4),
    KeyBinding(
        "monitor.note", "n", "add_note", "note", "Write a note into the run folder.", "monitor", rank=4, needs="note"
    ),
    KeyBinding(
        "monitor.command",
        "c",
        "copy_command",
        "copy command",
        "Copy the exact command that starts this run.",
        "monitor",
        rank=4,
        needs="command",
    ),
    KeyBinding(
        "monitor.pause", "space", "pause", "pause", "Pause the replay, or go on.", "monitor", rank=0, needs="replay"
    ),
    KeyBinding("monitor.open", "enter", "open_panel", "open", "Open what has the focus.", "monitor", rank=9),
    KeyBinding("monitor.back", "escape", "back", "back", "Go back from one panel to all of them.", "monitor", rank=9),
    KeyBinding("monitor.next", "tab", "next_panel(1)", "next panel", "Go to the next panel.", "monitor", rank=5),
    KeyBinding(
        "monitor.before", "shift+tab", "next_panel(-1)", "panel before", "Go to the panel before.", "monitor", rank=9
    ),
    KeyBinding(
        "metric.left",
        "left",
        "move_cursor(-1)",
        "read a step",
        "Read the step before.",
        "metric",
        label="arrows",
        rank=2,
    ),
    KeyBinding("metric.right", "right", "move_cursor(1)", "step after", "Read the step after.", "metric", rank=9),
    KeyBinding(
        "metric.far_left", "pageup", "move_cursor(-10)", "far before", "Ten columns to the left.", "metric", rank=9
    ),
    KeyBinding(
        "metric.far_right", "pagedown", "move_cursor(10)", "far after", "Ten columns to the right.", "metric", rank=9
    ),
    KeyBinding("metric.first", "home", "cursor_to_end(-1)", "first step", "Read the first step.", "metric", rank=9),
    KeyBinding("metric.last", "end", "cursor_to_end(1)", "last step", "Read the last step.", "metric", rank=9),
    KeyBinding(
        "metric.narrow",
        "plus,equals_sign",
        "resize_range(0.5)",
        "narrow",
        "Show half as many steps, about the cursor.",
        "metric",
        label="+",
        rank=9,
    ),
    KeyBinding(
        "metric.widen", "minus", "resize_range(2)", "widen", "Show twice as many steps.", "metric", label="-", rank=9
    ),
    KeyBinding(
        "metric.earlier",
        "less_than_sign,shift+left",
        "move_range(-1)",
        "earlier steps",
        "Move the range of steps to the left.",
        "metric",
        label="<",
        rank=9,
    ),
    KeyBinding(
        "metric.later",
        "greater_than_sign,shift+right",
        "move_range(1)",
        "later steps",
        "Move the range of steps to the right.",
        "metric",
        label=">",
        rank=9,
    ),
    KeyBinding("metric.range", "g", "type_range", "range", "Type the steps to show, as 400-900.", "metric", rank=3),
    KeyBinding("metric.all", "0", "show_all", "all steps", "Show all steps, without a cursor.", "metric", rank=4),
    KeyBinding("log.close", "escape", "close", "close", "Close the search, or the log.", "log", rank=0),
    KeyBinding("log.done", "l,q", "leave", "close", "Close the log.", "log", rank=9),
    KeyBinding("log.search", "slash", "search", "search", "Find a text in the whole log.", "log", label="/"),
    KeyBinding(
        "log.next", "n", "next_match(1)", "next", "Go to the next line with that text.", "log", label="n N", rank=2
    ),
    KeyBinding(
        "log.previous", "N", "next_match(-1)", "match before", "Go to the line before with that text.", "log", rank=9
    ),
    KeyBinding("log.level", "f", "next_level", "filter", "All lines, warnings only, or errors only.", "log"),
    KeyBinding("log.wrap", "w", "wrap", "wrap", "Wrap long lines, or cut them.", "log", rank=3),
    KeyBinding("log.follow", "end,G", "follow", "follow", "Go to the end, and follow.", "log", label="end", rank=2),
    KeyBinding("log.start", "home,g", "to_start", "start", "Go to the first line.", "log", rank=9),
    KeyBinding("log.copy", "c", "copy", "copy", "Copy the lines on the screen.", "log", rank=3),
    KeyBinding("cards.open", "enter", "open_card", "open GPU", "Show all of the chosen GPU.", "cards", rank=2),
    KeyBinding("cards.down", "down", "move_card(1)", "next GPU", "Choose the next GPU.", "cards", rank=9),
    KeyBinding("cards.up", "up", "move_card(-1)", "GPU above", "Choose the GPU above.", "cards", rank=9),
    KeyBinding("gpu.next", "right,tab", "other_card(1)", "next GPU", "Show the next GPU.", "gpu", label="→"),
    KeyBinding(
        "gpu.before", "left,shift+tab", "other_card(-1)", "GPU before", "Show the GPU before.", "gpu", label="←"
    ),
    KeyBinding("dialog.close", "escape", "close", "close", "Close this window; nothing changes.", "dialog", rank=0),
    KeyBinding("dialog.done", "enter,f1,q", "close", "close", "Close this window.", "dialog", rank=9),
    KeyBinding("confirm.press", "enter", "press", "choose", "Do what the button says.", "confirm", rank=0),
    KeyBinding("confirm.close", "escape", "close", "close", "Close this window; nothing changes.", "confirm", rank=0),
    KeyBinding("confirm.left", "left", "app.focus_previous", "button before", "Go to the button before.", "confirm"),
    KeyBinding("confirm.right", "right", "app.focus_next", "next button", "Go to the next button.", "confirm"),
    KeyBinding("picker.open", "enter", "open", "watch", "Watch what is marked.", "picker", rank=0),
    KeyBinding("picker.down", "down", "move(1)", "move", "Go to the next entry.", "picker", label="↑↓"),
    KeyBinding("picker.up", "up", "move(-1)", "entry above", "Go to the entry above.", "picker", rank=9),
    KeyBinding("picker.leave", "escape", "app.leave", "leave", "Leave; nothing changes.", "picker", rank=9),
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
