"""The one key table: it drives dispatch, the key bar and the help of every screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget
from trainwiz.core.language import mark, tr

ScreenName = Literal[
    "app", "plan", "edit", "files", "monitor", "metric", "cards", "answers", "gpu", "log", "command", "dialog", "document",
    "confirm", "list", "browse", "columns", "picker", "import",
]  # fmt: skip
Need = Literal["", "stop", "stop_now", "resume", "plan", "command", "model", "replay"]
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
    screen: ScreenName
    label: str = ""
    """How the key bar writes the key; empty writes `key`."""
    rank: int = 1
    """Where the key bar has too little room, higher ranks go first; 0 always stays, 9 is never shown there."""
    priority: bool = False
    needs: Need = ""
    fills: tuple[tuple[str, str], ...] = ()
    """What stands for the {names} of the description and the tooltip; translated as they are."""

    @property
    def shown_key(self) -> str:
        if self.label:
            return tr(self.label)
        return self.key.partition(",")[0].replace("escape", "esc").replace("question_mark", "?").replace("colon", ":")

    @property
    def words(self) -> str:
        return self._said(self.description)

    @property
    def sentence(self) -> str:
        return self._said(self.tooltip)

    def _said(self, text: str) -> str:
        return tr(text, **{name: tr(value) for name, value in self.fills})


def key(id: str, keys: str, action: str, description: str, tooltip: str, **more: Any) -> KeyBinding:
    """A key of the screen that its id begins with."""
    return KeyBinding(id, keys, action, description, tooltip, cast("ScreenName", id.partition(".")[0]), **more)


def hidden(id: str, keys: str, action: str, description: str, tooltip: str, **more: Any) -> KeyBinding:
    """A key that only the help and the palette tell of."""
    return key(id, keys, action, description, tooltip, rank=9, **more)


# Keys of the whole application, of its windows and of its lists.

APP_KEYS: tuple[KeyBinding, ...] = (
    key("app.help", "f1,question_mark", "help", mark("help"), mark("Explain the focused item, and list all keys.")),
    key("app.quit", "q,f10", "leave", mark("quit"), mark("Quit. A started run continues."), rank=0),
    hidden("app.palette", "colon,ctrl+p", "command_palette", mark("all actions"), mark("Find an action by name.")),
    hidden(
        "app.theme", "f2", "next_theme", mark("theme"), mark("Switch to the next theme: dark, light, high contrast.")
    ),
    key("dialog.close", "escape", "close", mark("close"), mark("Close this window without changes."), rank=0),
    hidden("dialog.done", "enter,f1,q", "close", mark("close"), mark("Close this window.")),
    key("confirm.press", "enter", "press", mark("press"), mark("Press the focused button."), rank=0),
    key("confirm.close", "escape", "close", mark("close"), mark("Close this window without changes."), rank=0),
    key("confirm.left", "left", "app.focus_previous", mark("previous button"), mark("Go to the previous button.")),
    key("confirm.right", "right", "app.focus_next", mark("next button"), mark("Go to the next button.")),
    key("picker.open", "enter", "open", mark("watch"), mark("Watch the selected run."), rank=0),
    key("picker.down", "down", "move(1)", mark("move"), mark("Go to the next entry."), label="↑↓"),
    hidden("picker.up", "up", "move(-1)", mark("previous entry"), mark("Go to the previous entry.")),
    hidden("picker.leave", "escape", "app.leave", mark("exit"), mark("Exit without changes.")),
    key("list.close", "escape", "close", mark("close"), mark("Close the list without changes."), rank=0),
    hidden("list.down", "down", "move(1)", mark("next entry"), mark("Go to the next entry.")),
    hidden("list.up", "up", "move(-1)", mark("previous entry"), mark("Go to the previous entry.")),
)

# Keys of the panels of the monitor and of the windows over it.

PANEL_KEYS: tuple[KeyBinding, ...] = (
    key(
        "metric.left",
        "left",
        "move_cursor(-1)",
        mark("read values"),
        mark("Show the value at the previous step."),
        label=mark("arrows"),
        rank=2,
    ),
    hidden("metric.right", "right", "move_cursor(1)", mark("next step"), mark("Show the value at the next step.")),
    hidden(
        "metric.far_left",
        "pageup",
        "move_cursor(-10)",
        mark("10 columns left"),
        mark("Move the cursor ten columns to the left."),
    ),
    hidden(
        "metric.far_right",
        "pagedown",
        "move_cursor(10)",
        mark("10 columns right"),
        mark("Move the cursor ten columns to the right."),
    ),
    hidden("metric.first", "home", "cursor_to_end(-1)", mark("first step"), mark("Show the value at the first step.")),
    hidden("metric.last", "end", "cursor_to_end(1)", mark("last step"), mark("Show the value at the last step.")),
    hidden(
        "metric.narrow",
        "plus,equals_sign",
        "resize_range(0.5)",
        mark("fewer steps"),
        mark("Show half as many steps, around the cursor."),
        label="+",
    ),
    hidden(
        "metric.widen", "minus", "resize_range(2)", mark("more steps"), mark("Show twice as many steps."), label="-"
    ),
    hidden(
        "metric.earlier",
        "less_than_sign,shift+left",
        "move_range(-1)",
        mark("earlier steps"),
        mark("Move the range of steps to the left."),
        label="<",
    ),
    hidden(
        "metric.later",
        "greater_than_sign,shift+right",
        "move_range(1)",
        mark("later steps"),
        mark("Move the range of steps to the right."),
        label=">",
    ),
    key("metric.range", "g", "type_range", mark("range"), mark("Type the steps to show, such as 400-900."), rank=3),
    key("metric.all", "0", "show_all", mark("all steps"), mark("Show all steps and hide the cursor."), rank=4),
    key("cards.open", "enter", "open_card", mark("open GPU"), mark("Show the details of the selected GPU."), rank=2),
    hidden("cards.down", "down", "move_card(1)", mark("next GPU"), mark("Select the next GPU.")),
    hidden("cards.up", "up", "move_card(-1)", mark("GPU above"), mark("Select the GPU above.")),
    key(
        "answers.earlier",
        "left",
        "move_step(-1)",
        mark("earlier answer"),
        mark("Show the previous answer."),
        label="←→",
    ),
    hidden("answers.later", "right", "move_step(1)", mark("later answer"), mark("Show the next answer.")),
    key("answers.next", "down", "move_prompt(1)", mark("next prompt"), mark("Show the next prompt."), label="↑↓"),
    hidden("answers.before", "up", "move_prompt(-1)", mark("previous prompt"), mark("Show the previous prompt.")),
    key("gpu.next", "right,tab", "other_card(1)", mark("next GPU"), mark("Show the next GPU."), label="→"),
    key(
        "gpu.before",
        "left,shift+tab",
        "other_card(-1)",
        mark("previous GPU"),
        mark("Show the previous GPU."),
        label="←",
    ),
    key("log.close", "escape", "close", mark("close"), mark("Close the search, or the log."), rank=0),
    hidden("log.done", "l,q", "leave", mark("close"), mark("Close the log.")),
    key("log.search", "slash", "search", mark("search"), mark("Search the whole log."), label="/"),
    key(
        "log.next",
        "n",
        "next_match(1)",
        mark("next match"),
        mark("Go to the next match."),
        label="n N",
        rank=2,
    ),
    hidden("log.previous", "N", "next_match(-1)", mark("previous match"), mark("Go to the previous match.")),
    key("log.level", "f", "next_level", mark("filter"), mark("Show all lines, only warnings, or only errors.")),
    key("log.wrap", "w", "wrap", mark("wrap"), mark("Wrap or truncate long lines."), rank=3),
    key(
        "log.follow",
        "end,G",
        "follow",
        mark("follow"),
        mark("Go to the end and follow new lines."),
        label="end",
        rank=2,
    ),
    hidden("log.start", "home,g", "to_start", mark("first line"), mark("Go to the first line.")),
    key("log.copy", "c", "copy", mark("copy"), mark("Copy the visible lines."), rank=3),
    hidden("document.close", "p", "close", mark("close"), mark("Close the plan.")),
    *(
        key(
            f"command.copy_{digit}",
            digit,
            f"copy({digit})",
            mark("copy"),
            mark("Copy command {number}."),
            rank=9,
            fills=(("number", digit),),
        )
        for digit in "123456789"
    ),
)

# Keys of the monitor.

PANEL_NAMES = (
    mark("plot"), mark("speed"), mark("device"), mark("RAM and disk"), mark("advice"), mark("log"), mark("answers"),
)  # fmt: skip
"""The panels of the monitor in the order of their digits."""


def _panel_keys() -> list[KeyBinding]:
    """The first stands for all of them in the key bar and in the help."""
    all_of_them = mark(
        "Show a single panel: 1 plot, 2 speed, 3 device, 4 RAM and disk, 5 advice, 6 log, 7 answers; press again to "
        "go back."
    )
    this_one = mark("Show only the {panel} panel; press again to go back.")
    first = key("monitor.panel_1", "1", "one_panel(1)", mark("panels"), all_of_them, label="1-7")
    return [
        first,
        *(
            key(f"monitor.panel_{n}", f"{n}", f"one_panel({n})", name, this_one, rank=9, fills=(("panel", name),))
            for n, name in enumerate(PANEL_NAMES[1:], start=2)
        ),
    ]


MONITOR_KEYS: tuple[KeyBinding, ...] = (
    key(
        "monitor.stop",
        "s",
        "stop",
        mark("stop"),
        mark("Save a checkpoint and stop the run; asks for confirmation."),
        rank=0,
        needs="stop",
    ),
    hidden(
        "monitor.stop_now",
        "S",
        "stop_now",
        mark("stop now"),
        mark("Stop the run immediately, without a new checkpoint; asks for confirmation."),
        needs="stop_now",
    ),
    key(
        "monitor.resume",
        "r",
        "resume",
        mark("resume"),
        mark("Resume from the newest complete checkpoint; asks for confirmation."),
        rank=0,
        needs="resume",
    ),
    key(
        "monitor.model",
        "t",
        "talk",
        mark("try the model"),
        mark("Leave this screen to try the model, and come back; c shows the commands to merge and export it."),
        rank=0,
        needs="model",
    ),
    key("monitor.log", "l", "show_log", mark("log"), mark("Show the whole log.")),
    *_panel_keys(),
    key("monitor.metric", "m", "choose_metric", mark("metric"), mark("Select the metric to plot.")),
    hidden(
        "monitor.next_metric",
        "full_stop",
        "next_metric(1)",
        mark("next metric"),
        mark("Plot the next metric."),
        label=".",
    ),
    hidden(
        "monitor.previous_metric",
        "comma",
        "next_metric(-1)",
        mark("previous metric"),
        mark("Plot the previous metric."),
        label=",",
    ),
    key("monitor.maximise", "x", "maximise", mark("maximize"), mark("Show one panel on the whole screen."), rank=2),
    key("monitor.zoom", "z", "zoom", mark("zoom"), mark("Plot only the last steps, or all steps."), rank=2),
    key("monitor.scale", "e", "log_scale", mark("log scale"), mark("Toggle the logarithmic scale."), rank=3),
    key(
        "monitor.plan",
        "p",
        "show_plan",
        mark("plan"),
        mark("Show the plan this run was started from."),
        needs="plan",
    ),
    key("monitor.fold", "f", "fold", mark("collapse"), mark("Collapse the panel to its title, or expand it."), rank=4),
    key(
        "monitor.command",
        "c",
        "copy_command",
        mark("copy command"),
        mark("Copy the exact command that starts this run."),
        rank=4,
        needs="command",
    ),
    key(
        "monitor.pause", "space", "pause", mark("pause"), mark("Pause or continue the replay."), rank=0, needs="replay"
    ),
    hidden("monitor.open", "enter", "open_panel", mark("open"), mark("Open the focused item.")),
    hidden("monitor.back", "escape", "back", mark("back"), mark("Go back to all panels.")),
    key("monitor.next", "tab", "next_panel(1)", mark("next panel"), mark("Go to the next panel."), rank=5),
    hidden("monitor.before", "shift+tab", "next_panel(-1)", mark("previous panel"), mark("Go to the previous panel.")),
)


# Keys of the wizard.

REMEDY_KEYS = "123456789"


def _remedy_keys() -> list[KeyBinding]:
    """The first stands for all of them in the key bar."""
    words, sentence = mark("fix {number}"), mark("Apply fix {number}.")
    first, of_all = mark("apply a fix"), mark("Apply the fix with this number.")
    return [
        key("plan.remedy_1", "1", "apply_remedy(1)", first, of_all, label="1-9", rank=2),
        *(
            hidden(f"plan.remedy_{n}", n, f"apply_remedy({n})", words, sentence, fills=(("number", n),))
            for n in REMEDY_KEYS[1:]
        ),
    ]


PLAN_KEYS: tuple[KeyBinding, ...] = (
    key(
        "plan.next",
        "enter",
        "next_step",
        mark("next"),
        mark("Go to the next step; on the last step, start the run."),
        rank=0,
    ),
    key("plan.back", "escape", "previous_step", mark("back"), mark("Go back one step. Nothing is lost."), rank=0),
    key(
        "plan.next_field", "down,tab", "app.focus_next", mark("move"), mark("Go to the next field."), label="↑↓", rank=4
    ),
    hidden(
        "plan.previous_field",
        "up,shift+tab",
        "app.focus_previous",
        mark("previous field"),
        mark("Go to the previous field."),
    ),
    key(
        "plan.change",
        "space",
        "change_field",
        mark("change"),
        mark("Edit the value, or open the list of values."),
        rank=0,
    ),
    hidden("plan.next_value", "right", "next_value(1)", mark("next value"), mark("Switch to the next value.")),
    hidden(
        "plan.previous_value", "left", "next_value(-1)", mark("previous value"), mark("Switch to the previous value.")
    ),
    hidden("plan.go", "g", "choose_step", mark("go to step"), mark("Go to a step you have already seen.")),
    key("plan.find", "slash", "find", mark("find field"), mark("Find a field by name."), label="/", rank=3),
    *_remedy_keys(),
    key(
        "plan.import",
        "i",
        "import_settings",
        mark("import"),
        mark("Import settings from an existing file, script or launch command."),
        rank=2,
    ),
    key("plan.reset", "r", "reset_field", mark("reset field"), mark("Undo your change to this field."), rank=3),
    hidden("plan.reset_step", "R", "reset_step", mark("reset step"), mark("Undo all your changes in this step.")),
    key(
        "plan.details",
        "v",
        "toggle_details",
        mark("details"),
        mark("Show all figures of the plan and this machine, or only the main ones."),
        rank=1,
    ),
    key("plan.start", "f5", "start", mark("start"), mark("Start the run with the current plan.")),
    hidden("plan.scroll_down", "pagedown", "scroll_plan(1)", mark("scroll plan"), mark("Scroll the plan down.")),
    hidden("plan.scroll_up", "pageup", "scroll_plan(-1)", mark("scroll plan up"), mark("Scroll the plan up.")),
    hidden("plan.copy", "c", "copy_command", mark("copy command"), mark("Copy the exact command.")),
    key(
        "edit.accept",
        "enter",
        "accept",
        mark("accept"),
        mark("Accept the value and leave the field."),
        rank=0,
        priority=True,
    ),
    key("edit.cancel", "escape", "cancel", mark("cancel"), mark("Leave the field unchanged."), rank=0, priority=True),
    hidden("files.down", "down", "move_file(1)", mark("next file"), mark("Show the next file.")),
    hidden("files.up", "up", "move_file(-1)", mark("previous file"), mark("Show the previous file.")),
    hidden("files.forward", "right", "scroll_file(1)", mark("next lines"), mark("Show the next lines of the file.")),
    hidden(
        "files.backward",
        "left",
        "scroll_file(-1)",
        mark("previous lines"),
        mark("Show the previous lines of the file."),
    ),
)


# Keys of the window in which foreign settings are read.

IMPORT_KEYS: tuple[KeyBinding, ...] = (
    key(
        "import.press",
        "enter",
        "press",
        mark("continue"),
        mark("Go to the button once settings have been read, or press the focused button."),
        rank=0,
    ),
    key(
        "import.next",
        "tab",
        "app.focus_next",
        mark("move"),
        mark("Go to the next field or button; shift+tab goes back."),
        rank=2,
    ),
    key(
        "import.page_down",
        "pagedown",
        "scroll_report(1)",
        mark("scroll report"),
        mark("Scroll the report down."),
        label="pgdn",
        rank=3,
        priority=True,
    ),
    hidden(
        "import.page_up",
        "pageup",
        "scroll_report(-1)",
        mark("scroll report up"),
        mark("Scroll the report up."),
        priority=True,
    ),
    key(
        "import.browse",
        "f3",
        "browse",
        mark("browse files"),
        mark("Choose a file; its path is filled in above the text."),
        rank=1,
    ),
    key("import.help", "f1", "help", mark("help"), mark("Explain what can be imported, and list all keys."), rank=2),
    key(
        "import.close",
        "escape",
        "close",
        mark("close"),
        mark("Close this window; nothing is written and no value changes."),
        rank=0,
        priority=True,
    ),
)


# Keys of the file picker, while its text has the focus, and of the table of the first rows.

BROWSE_KEYS: tuple[KeyBinding, ...] = (
    key("browse.close", "escape", "close", mark("close"), mark("Close the list without changes."), rank=0),
    hidden("browse.down", "down", "move(1)", mark("next entry"), mark("Go to the next entry.")),
    hidden("browse.up", "up", "move(-1)", mark("previous entry"), mark("Go to the previous entry.")),
    hidden("browse.page_down", "pagedown", "page(1)", mark("page down"), mark("Move down one page.")),
    hidden("browse.page_up", "pageup", "page(-1)", mark("page up"), mark("Move up one page.")),
    key("browse.enter", "tab", "complete", mark("open folder"), mark("Open the folder."), rank=2),
    key("browse.above", "shift+tab", "above", mark("parent folder"), mark("Go to the parent folder."), rank=3),
    key("columns.after", "right", "move_column(1)", mark("next column"), mark("Go to the next column."), rank=2),
    hidden("columns.before", "left", "move_column(-1)", mark("previous column"), mark("Go to the previous column.")),
    key("columns.text", "space", "take_text", mark("use as text"), mark("Use this column as the text.")),
    key(
        "columns.target",
        "t",
        "take_target",
        mark("use as target"),
        mark("Use this column as the target; where plain text is possible, press again to go back to it."),
    ),
)


# All of them.

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
