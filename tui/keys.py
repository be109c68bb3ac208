"""The one key table: it drives dispatch, the key bar and the help of every screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal, cast

from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget
from trainwiz.core.language import mark, tr

ScreenName = Literal[
    "app", "plan", "edit", "monitor", "metric", "cards", "answers", "log", "dialog", "document",
    "confirm", "list", "browse", "picker", "import",
]  # fmt: skip
Need = Literal["", "stop", "stop_now", "resume", "plan", "command", "replay"]
"""What a run must offer (`Snapshot.actions`, a replay) for a key to work."""


@dataclass(frozen=True, slots=True)
class KeyBinding:
    """One key of one screen. `id` is stable, so that a user's keymap can name it."""

    id: str
    key: str
    """Textual's name of the key; several are parted by commas."""
    action: str
    description: str
    """One or two words for the key bar, in English; `words` is what is shown."""
    tooltip: str
    """One sentence for the help, in English; `sentence` is what is shown."""
    label: str = ""
    """How the key bar writes the key; empty writes `key`."""
    rank: int = 1
    """Where the key bar has too little room, higher ranks go first; 0 always stays, 9 is never shown there."""
    priority: bool = False
    needs: Need = ""

    @property
    def screen(self) -> ScreenName:
        """Its id begins with it."""
        return cast("ScreenName", self.id.partition(".")[0])

    @property
    def shown_key(self) -> str:
        if self.label:
            return tr(self.label)
        return self.key.partition(",")[0].replace("escape", "esc").replace("question_mark", "?").replace("colon", ":")

    @property
    def words(self) -> str:
        return tr(self.description)

    @property
    def sentence(self) -> str:
        return tr(self.tooltip)


key = KeyBinding
hidden = partial(KeyBinding, rank=9)
"""A key that only the help and the palette tell of."""


def digits(
    name: str, action: str, words: Sequence[str], sentence: str, of_one: str = "", rank: int = 1
) -> list[KeyBinding]:
    """A key for each of `words`; the first stands for all of them in the key bar and in the help, the others say `of_one`
    in the palette."""
    return [
        KeyBinding(f"{name}_1", "1", f"{action}(1)", words[0], sentence, label=f"1-{len(words)}", rank=rank),
        *(
            hidden(f"{name}_{number}", f"{number}", f"{action}({number})", text, of_one or sentence)
            for number, text in enumerate(words[1:], start=2)
        ),
    ]


# Keys of the whole application, of its windows and of its lists.

APP_KEYS: tuple[KeyBinding, ...] = (
    key("app.help", "f1,question_mark", "help", "help", "Explain the focused item, and list all keys."),
    key("app.quit", "q,f10", "leave", "quit", "Quit. A started run continues.", rank=0),
    hidden("app.palette", "colon,ctrl+p", "command_palette", "all actions", "Find an action by name."),
    hidden("app.theme", "f2", "next_theme", "theme", "Switch to the next theme: dark, light, high contrast."),
    key("dialog.close", "escape", "close", "close", "Close this window without changes.", rank=0),
    hidden("dialog.done", "enter,f1,q", "close", "close", "Close this window."),
    key("confirm.press", "enter", "press", "press", "Press the focused button.", rank=0),
    key("confirm.close", "escape", "close", "close", "Close this window without changes.", rank=0),
    key("confirm.left", "left", "app.focus_previous", "previous button", "Go to the previous button."),
    key("confirm.right", "right", "app.focus_next", "next button", "Go to the next button."),
    key("picker.open", "enter", "open", "watch", "Watch the selected run.", rank=0),
    key("picker.down", "down", "move(1)", "move", "Go to the next entry.", label="↑↓"),
    hidden("picker.up", "up", "move(-1)", "previous entry", "Go to the previous entry."),
    hidden("picker.leave", "escape", "app.leave", "exit", "Exit without changes."),
    key("list.close", "escape", "close", "close", "Close the list without changes.", rank=0),
    hidden("list.down", "down", "move(1)", "next entry", "Go to the next entry."),
    hidden("list.up", "up", "move(-1)", "previous entry", "Go to the previous entry."),
)

# Keys of the panels of the monitor and of the windows over it.

PANEL_KEYS: tuple[KeyBinding, ...] = (
    key(
        "metric.earlier",
        "left",
        "move_range(-1)",
        "earlier steps",
        "Move the range of steps to the left.",
        label="←→",
        rank=4,
    ),
    hidden("metric.later", "right", "move_range(1)", "later steps", "Move the range of steps to the right."),
    key(
        "metric.narrow",
        "plus,equals_sign",
        "resize_range(0.5)",
        "zoom",
        "Show half as many steps.",
        label="+ -",
        rank=4,
    ),
    hidden("metric.widen", "minus", "resize_range(2)", "more steps", "Show twice as many steps.", label="-"),
    hidden("cards.down", "down", "move_card(1)", "next GPU", "Select the next GPU."),
    hidden("cards.up", "up", "move_card(-1)", "GPU above", "Select the GPU above."),
    key("answers.earlier", "left", "move_step(-1)", "earlier answer", "Show the previous answer.", label="←→"),
    hidden("answers.later", "right", "move_step(1)", "later answer", "Show the next answer."),
    key("answers.next", "down", "move_prompt(1)", "next prompt", "Show the next prompt.", label="↑↓"),
    hidden("answers.before", "up", "move_prompt(-1)", "previous prompt", "Show the previous prompt."),
    key("log.search", "slash", "search", "search", "Search the log.", label="/"),
    key("log.next", "n", "next_match(1)", "next match", "Go to the next match.", label="n N", rank=2),
    hidden("log.previous", "N", "next_match(-1)", "previous match", "Go to the previous match."),
    key("log.level", "f", "next_level", "filter", "Show all lines, only warnings, or only errors."),
    key("log.follow", "end,G", "follow", "follow", "Go to the end and follow new lines.", label="end", rank=2),
    hidden("log.start", "home,g", "to_start", "first line", "Go to the first line."),
    hidden("log.down", "down", "move_lines(1)", "line down", "Scroll one line down."),
    hidden("log.up", "up", "move_lines(-1)", "line up", "Scroll one line up."),
    hidden("log.page_down", "pagedown", "move_pages(1)", "page down", "Scroll one page down."),
    hidden("log.page_up", "pageup", "move_pages(-1)", "page up", "Scroll one page up."),
    hidden("document.close", "p", "close", "close", "Close the plan."),
)

# Keys of the monitor.

PANEL_NAMES = (
    mark("plot"), mark("speed"), mark("device"), mark("RAM and disk"), mark("advice"), mark("log"), mark("answers"),
)  # fmt: skip
"""The panels of the monitor in the order of their digits."""


MONITOR_KEYS: tuple[KeyBinding, ...] = (
    key(
        "monitor.stop",
        "s",
        "stop",
        "stop",
        "Save a checkpoint and stop the run; asks for confirmation.",
        rank=0,
        needs="stop",
    ),
    key(
        "monitor.resume",
        "r",
        "resume",
        "resume",
        "Resume from the newest complete checkpoint; asks for confirmation.",
        rank=0,
        needs="resume",
    ),
    key("monitor.log", "l", "show_log", "log", "Show the log on the whole screen, to search and filter it."),
    *digits(
        "monitor.panel",
        "one_panel",
        (mark("panels"), *PANEL_NAMES[1:]),
        mark(
            "Show a single panel: 1 plot, 2 speed, 3 device, 4 RAM and disk, 5 advice, 6 log, 7 answers; press again to "
            "go back."
        ),
        mark("Show only this panel; press again to go back."),
    ),
    key("monitor.metric", "m", "choose_metric", "metric", "Select the metric to plot."),
    hidden("monitor.next_metric", "full_stop", "next_metric(1)", "next metric", "Plot the next metric.", label="."),
    hidden(
        "monitor.previous_metric", "comma", "next_metric(-1)", "previous metric", "Plot the previous metric.", label=","
    ),
    key("monitor.zoom", "z", "zoom", "zoom", "Plot only the last steps, or all steps.", rank=2),
    key("monitor.scale", "e", "log_scale", "log scale", "Toggle the logarithmic scale.", rank=3),
    key("monitor.plan", "p", "show_plan", "plan", "Show the plan this run was started from.", needs="plan"),
    key(
        "monitor.command",
        "c",
        "copy_command",
        "copy command",
        "Copy one of the commands of this run.",
        rank=4,
        needs="command",
    ),
    key("monitor.pause", "space", "pause", "pause", "Pause or continue the replay.", rank=0, needs="replay"),
    hidden("monitor.open", "enter", "open_panel", "open", "Open the focused item."),
    hidden("monitor.back", "escape", "back", "back", "Go back to all panels."),
    key("monitor.next", "tab", "next_panel(1)", "next panel", "Go to the next panel.", rank=5),
    hidden("monitor.before", "shift+tab", "next_panel(-1)", "previous panel", "Go to the previous panel."),
)


# Keys of the wizard.

PLAN_KEYS: tuple[KeyBinding, ...] = (
    key("plan.next", "enter", "next_step", "next", "Go to the next step; on the last step, start the run.", rank=0),
    key("plan.back", "escape", "previous_step", "back", "Go back one step. Nothing is lost.", rank=0),
    key("plan.next_field", "down,tab", "app.focus_next", "move", "Go to the next field.", label="↑↓", rank=4),
    hidden("plan.previous_field", "up,shift+tab", "app.focus_previous", "previous field", "Go to the previous field."),
    key("plan.change", "space", "change_field", "change", "Edit the value, or open the list of values.", rank=0),
    hidden("plan.next_value", "right", "next_value(1)", "next value", "Switch to the next value."),
    hidden("plan.previous_value", "left", "next_value(-1)", "previous value", "Switch to the previous value."),
    key("plan.find", "slash", "find", "find field", "Find a field by name.", label="/", rank=3),
    *digits("plan.remedy", "apply_remedy", [mark("apply a fix")] * 9, mark("Apply the fix with this number."), rank=2),
    key(
        "plan.import",
        "i",
        "act('profile')",
        "import",
        "Import settings from an existing file, script or launch command.",
        rank=2,
    ),
    key("plan.reset", "r", "reset_field", "reset field", "Undo your change to this field.", rank=3),
    key(
        "plan.details",
        "v",
        "toggle_details",
        "details",
        "Show all figures of the plan and this machine, or only the main ones.",
        rank=3,
    ),
    key("plan.start", "f5", "start", "start", "Start the run with the current plan."),
    hidden("plan.scroll_down", "pagedown", "scroll_plan(1)", "scroll plan", "Scroll the plan down."),
    hidden("plan.scroll_up", "pageup", "scroll_plan(-1)", "scroll plan up", "Scroll the plan up."),
    hidden("plan.copy", "c", "copy_command", "copy command", "Copy the exact command."),
    key("edit.accept", "enter", "accept", "accept", "Accept the value and leave the field.", rank=0, priority=True),
    key("edit.cancel", "escape", "cancel", "cancel", "Leave the field unchanged.", rank=0, priority=True),
)


# Keys of the window in which foreign settings are read.

IMPORT_KEYS: tuple[KeyBinding, ...] = (
    key(
        "import.press",
        "enter",
        "press",
        "press",
        "Press the focused button.",
        rank=0,
    ),
    key("import.next", "tab", "app.focus_next", "move", "Go to the next field or button; shift+tab goes back.", rank=2),
    key(
        "import.page_down",
        "pagedown",
        "scroll_report(1)",
        "scroll report",
        "Scroll the report down.",
        label="pgdn",
        rank=3,
        priority=True,
    ),
    hidden("import.page_up", "pageup", "scroll_report(-1)", "scroll report up", "Scroll the report up.", priority=True),
    key(
        "import.browse", "f3", "browse", "browse files", "Choose a file; its path is filled in above the text.", rank=1
    ),
    key("import.help", "f1", "app.help", "help", "List all keys.", rank=2),
    key(
        "import.close",
        "escape",
        "close",
        "close",
        "Close this window; nothing is written and no value changes.",
        rank=0,
        priority=True,
    ),
)


# Keys of the file picker.

BROWSE_KEYS: tuple[KeyBinding, ...] = (
    key("browse.close", "escape,q", "close", "close", "Close the list without changes.", rank=0),
    key("browse.above", "backspace", "above", "parent folder", "Go to the parent folder.", rank=3),
    key("browse.take", "u", "take_folder", "use folder", "Use the folder under the cursor.", rank=2),
)


# All of them.

KEYS: tuple[KeyBinding, ...] = (*APP_KEYS, *BROWSE_KEYS, *PLAN_KEYS, *IMPORT_KEYS, *MONITOR_KEYS, *PANEL_KEYS)


@cache
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
            priority=row.priority,
        )
        for row in keys_of(*screens)
    ]


def owner_of(row: KeyBinding, screen: Screen[object], focused: Widget | None) -> DOMNode:
    """What has the action, where a click or the palette asks for it: looked for from the focus outwards, as for a key."""
    name = f"action_{row.action.partition('(')[0]}"
    inner = [] if focused is None else focused.ancestors_with_self
    return next((node for node in (*inner, screen) if hasattr(node, name)), screen.app)
