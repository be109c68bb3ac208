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
    key("app.help", "f1,question_mark", "help", mark("help"), mark("Explain what has the focus, and list all keys.")),
    key("app.quit", "q,f10", "leave", mark("quit"), mark("Leave. A run that was started goes on."), rank=0),
    hidden("app.palette", "colon,ctrl+p", "command_palette", mark("all actions"), mark("Find an action by its name.")),
    hidden("app.theme", "f2", "next_theme", mark("theme"), mark("Next theme: dark, light, high contrast.")),
    key("dialog.close", "escape", "close", mark("close"), mark("Close this window; nothing changes."), rank=0),
    hidden("dialog.done", "enter,f1,q", "close", mark("close"), mark("Close this window.")),
    key("confirm.press", "enter", "press", mark("choose"), mark("Do what the button says."), rank=0),
    key("confirm.close", "escape", "close", mark("close"), mark("Close this window; nothing changes."), rank=0),
    key("confirm.left", "left", "app.focus_previous", mark("button before"), mark("Go to the button before.")),
    key("confirm.right", "right", "app.focus_next", mark("next button"), mark("Go to the next button.")),
    key("picker.open", "enter", "open", mark("watch"), mark("Watch what is marked."), rank=0),
    key("picker.down", "down", "move(1)", mark("move"), mark("Go to the next entry."), label="↑↓"),
    hidden("picker.up", "up", "move(-1)", mark("entry above"), mark("Go to the entry above.")),
    hidden("picker.leave", "escape", "app.leave", mark("leave"), mark("Leave; nothing changes.")),
    key("list.close", "escape", "close", mark("close"), mark("Close the list; nothing changes."), rank=0),
    hidden("list.down", "down", "move(1)", mark("next entry"), mark("Go to the next entry.")),
    hidden("list.up", "up", "move(-1)", mark("entry above"), mark("Go to the entry above.")),
)

# Keys of the panels of the monitor and of the windows over it.

PANEL_KEYS: tuple[KeyBinding, ...] = (
    key(
        "metric.left",
        "left",
        "move_cursor(-1)",
        mark("read a step"),
        mark("Read the step before."),
        label=mark("arrows"),
        rank=2,
    ),
    hidden("metric.right", "right", "move_cursor(1)", mark("step after"), mark("Read the step after.")),
    hidden("metric.far_left", "pageup", "move_cursor(-10)", mark("far before"), mark("Ten columns to the left.")),
    hidden("metric.far_right", "pagedown", "move_cursor(10)", mark("far after"), mark("Ten columns to the right.")),
    hidden("metric.first", "home", "cursor_to_end(-1)", mark("first step"), mark("Read the first step.")),
    hidden("metric.last", "end", "cursor_to_end(1)", mark("last step"), mark("Read the last step.")),
    hidden(
        "metric.narrow",
        "plus,equals_sign",
        "resize_range(0.5)",
        mark("narrow"),
        mark("Show half as many steps, about the cursor."),
        label="+",
    ),
    hidden("metric.widen", "minus", "resize_range(2)", mark("widen"), mark("Show twice as many steps."), label="-"),
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
    key("metric.range", "g", "type_range", mark("range"), mark("Type the steps to show, as 400-900."), rank=3),
    key("metric.all", "0", "show_all", mark("all steps"), mark("Show all steps, without a cursor."), rank=4),
    key("cards.open", "enter", "open_card", mark("open GPU"), mark("Show all of the chosen GPU."), rank=2),
    hidden("cards.down", "down", "move_card(1)", mark("next GPU"), mark("Choose the next GPU.")),
    hidden("cards.up", "up", "move_card(-1)", mark("GPU above"), mark("Choose the GPU above.")),
    key(
        "answers.earlier", "left", "move_step(-1)", mark("earlier answer"), mark("Show the answer before."), label="←→"
    ),
    hidden("answers.later", "right", "move_step(1)", mark("later answer"), mark("Show the answer after.")),
    key("answers.next", "down", "move_prompt(1)", mark("next prompt"), mark("Show the next prompt."), label="↑↓"),
    hidden("answers.before", "up", "move_prompt(-1)", mark("prompt before"), mark("Show the prompt before.")),
    key("gpu.next", "right,tab", "other_card(1)", mark("next GPU"), mark("Show the next GPU."), label="→"),
    key("gpu.before", "left,shift+tab", "other_card(-1)", mark("GPU before"), mark("Show the GPU before."), label="←"),
    key("log.close", "escape", "close", mark("close"), mark("Close the search, or the log."), rank=0),
    hidden("log.done", "l,q", "leave", mark("close"), mark("Close the log.")),
    key("log.search", "slash", "search", mark("search"), mark("Find a text in the whole log."), label="/"),
    key(
        "log.next",
        "n",
        "next_match(1)",
        mark("next match"),
        mark("Go to the next line with that text."),
        label="n N",
        rank=2,
    ),
    hidden("log.previous", "N", "next_match(-1)", mark("match before"), mark("Go to the line before with that text.")),
    key("log.level", "f", "next_level", mark("filter"), mark("All lines, warnings only, or errors only.")),
    key("log.wrap", "w", "wrap", mark("wrap"), mark("Wrap long lines, or cut them."), rank=3),
    key("log.follow", "end,G", "follow", mark("follow"), mark("Go to the end, and follow."), label="end", rank=2),
    hidden("log.start", "home,g", "to_start", mark("first line"), mark("Go to the first line.")),
    key("log.copy", "c", "copy", mark("copy"), mark("Copy the lines on the screen."), rank=3),
    hidden("document.close", "p", "close", mark("close"), mark("Close the plan.")),
    *(
        key(
            f"command.copy_{digit}",
            digit,
            f"copy({digit})",
            mark("copy"),
            mark("Copy the command with the number {number}."),
            rank=9,
            fills=(("number", digit),),
        )
        for digit in "123456789"
    ),
)

# Keys of the monitor.

PANEL_NAMES = (
    mark("plot"), mark("pace"), mark("device"), mark("RAM and disk"), mark("advice"), mark("log"), mark("answers"),
)  # fmt: skip
"""The panels of the monitor in the order of their digits."""


def _panel_keys() -> list[KeyBinding]:
    """The first stands for all of them in the key bar and in the help."""
    all_of_them = mark(
        "Show one panel alone: 1 plot, 2 pace, 3 device, 4 RAM and disk, 5 advice, 6 log, 7 answers; the same key "
        "goes back."
    )
    this_one = mark("Show the {panel} panel alone; the same key goes back.")
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
        mark("Stop the run with a checkpoint; asks first."),
        rank=0,
        needs="stop",
    ),
    hidden(
        "monitor.stop_now",
        "S",
        "stop_now",
        mark("stop now"),
        mark("End the run at once, without a new checkpoint; asks first."),
        needs="stop_now",
    ),
    key(
        "monitor.resume",
        "r",
        "resume",
        mark("resume"),
        mark("Go on from the newest complete checkpoint; asks first."),
        rank=0,
        needs="resume",
    ),
    key(
        "monitor.model",
        "t",
        "talk",
        mark("try the model"),
        mark("Leave this screen to talk to the model, and come back; c has the commands to merge and export it."),
        rank=0,
        needs="model",
    ),
    key("monitor.log", "l", "show_log", mark("log"), mark("Show the whole log.")),
    *_panel_keys(),
    key("monitor.metric", "m", "choose_metric", mark("metric"), mark("Choose what is plotted.")),
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
        mark("metric before"),
        mark("Plot the metric before."),
        label=",",
    ),
    key("monitor.maximise", "x", "maximise", mark("maximise"), mark("Give the whole screen to a panel."), rank=2),
    key("monitor.zoom", "z", "zoom", mark("zoom"), mark("Plot the last steps only, or all of them."), rank=2),
    key("monitor.scale", "e", "log_scale", mark("log scale"), mark("Switch the logarithmic scale."), rank=3),
    key(
        "monitor.plan",
        "p",
        "show_plan",
        mark("plan"),
        mark("Show the plan that this run was started from."),
        needs="plan",
    ),
    key("monitor.fold", "f", "fold", mark("fold"), mark("Fold the panel to its title, or unfold it."), rank=4),
    key(
        "monitor.command",
        "c",
        "copy_command",
        mark("copy command"),
        mark("Copy the exact command that starts this run."),
        rank=4,
        needs="command",
    ),
    key("monitor.pause", "space", "pause", mark("pause"), mark("Pause the replay, or go on."), rank=0, needs="replay"),
    hidden("monitor.open", "enter", "open_panel", mark("open"), mark("Open what has the focus.")),
    hidden("monitor.back", "escape", "back", mark("back"), mark("Go back from one panel to all of them.")),
    key("monitor.next", "tab", "next_panel(1)", mark("next panel"), mark("Go to the next panel."), rank=5),
    hidden("monitor.before", "shift+tab", "next_panel(-1)", mark("panel before"), mark("Go to the panel before.")),
)


# Keys of the wizard.

REMEDY_KEYS = "123456789"


def _remedy_keys() -> list[KeyBinding]:
    """The first stands for all of them in the key bar."""
    words, sentence = mark("remedy {number}"), mark("Apply the remedy with the number {number}.")
    first, of_all = mark("apply a remedy"), mark("Apply the remedy with this number.")
    return [
        key("plan.remedy_1", "1", "apply_remedy(1)", first, of_all, label="1-9", rank=2),
        *(
            hidden(f"plan.remedy_{n}", n, f"apply_remedy({n})", words, sentence, fills=(("number", n),))
            for n in REMEDY_KEYS[1:]
        ),
    ]


PLAN_KEYS: tuple[KeyBinding, ...] = (
    key("plan.next", "enter", "next_step", mark("next"), mark("Go to the next step; start, on the last."), rank=0),
    key("plan.back", "escape", "previous_step", mark("back"), mark("Go back one step. Nothing is lost."), rank=0),
    key(
        "plan.next_field", "down,tab", "app.focus_next", mark("move"), mark("Go to the next field."), label="↑↓", rank=4
    ),
    hidden(
        "plan.previous_field", "up,shift+tab", "app.focus_previous", mark("field above"), mark("Go to the field above.")
    ),
    key(
        "plan.change",
        "space",
        "change_field",
        mark("change"),
        mark("Edit the value, or open the list of values."),
        rank=0,
    ),
    hidden("plan.next_value", "right", "next_value(1)", mark("next value"), mark("Take the next value.")),
    hidden("plan.previous_value", "left", "next_value(-1)", mark("value before"), mark("Take the value before.")),
    hidden("plan.go", "g", "choose_step", mark("go to step"), mark("Go to a step that you have seen.")),
    key("plan.find", "slash", "find", mark("find a value"), mark("Find a field by its name."), label="/", rank=3),
    *_remedy_keys(),
    key(
        "plan.import",
        "i",
        "import_settings",
        mark("import"),
        mark("Take the settings of a file, a script or a launch command that you have."),
        rank=2,
    ),
    key("plan.reset", "r", "reset_field", mark("reset value"), mark("Take back your change of this field."), rank=3),
    hidden(
        "plan.reset_step", "R", "reset_step", mark("reset the step"), mark("Take back all your changes of this step.")
    ),
    key(
        "plan.details",
        "v",
        "toggle_details",
        mark("details"),
        mark("Show all figures of the plan and this machine, or only the main ones."),
        rank=1,
    ),
    key("plan.start", "f5", "start", mark("start"), mark("Start the run as it is planned now.")),
    hidden("plan.scroll_down", "pagedown", "scroll_plan(1)", mark("scroll plan"), mark("Scroll the plan down.")),
    hidden("plan.scroll_up", "pageup", "scroll_plan(-1)", mark("scroll plan up"), mark("Scroll the plan up.")),
    hidden("plan.copy", "c", "copy_command", mark("copy command"), mark("Copy the exact command.")),
    key(
        "edit.accept",
        "enter",
        "accept",
        mark("accept"),
        mark("Keep the value and leave the field."),
        rank=0,
        priority=True,
    ),
    key("edit.cancel", "escape", "cancel", mark("cancel"), mark("Leave the field as it was."), rank=0, priority=True),
    hidden("files.down", "down", "move_file(1)", mark("next file"), mark("Show the next file.")),
    hidden("files.up", "up", "move_file(-1)", mark("file above"), mark("Show the file above.")),
    hidden("files.forward", "right", "scroll_file(1)", mark("lines after"), mark("Show the next lines of the file.")),
    hidden(
        "files.backward", "left", "scroll_file(-1)", mark("lines before"), mark("Show the lines before in the file.")
    ),
)


# Keys of the window in which foreign settings are read.

IMPORT_KEYS: tuple[KeyBinding, ...] = (
    key(
        "import.press",
        "enter",
        "press",
        mark("go on"),
        mark("Go on to the button when something was read, or do what the button says."),
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
        mark("report"),
        mark("Scroll the report down."),
        label="pgdn",
        rank=3,
        priority=True,
    ),
    hidden(
        "import.page_up", "pageup", "scroll_report(-1)", mark("report up"), mark("Scroll the report up."), priority=True
    ),
    key(
        "import.browse",
        "f3",
        "browse",
        mark("browse files"),
        mark("Choose a file; its path is put above the text."),
        rank=1,
    ),
    key("import.help", "f1", "help", mark("help"), mark("Say what can be read here, and list the keys."), rank=2),
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
    key("browse.close", "escape", "close", mark("close"), mark("Close the list; nothing changes."), rank=0),
    hidden("browse.down", "down", "move(1)", mark("next entry"), mark("Go to the next entry.")),
    hidden("browse.up", "up", "move(-1)", mark("entry above"), mark("Go to the entry above.")),
    hidden("browse.page_down", "pagedown", "page(1)", mark("page down"), mark("Go a page down.")),
    hidden("browse.page_up", "pageup", "page(-1)", mark("page up"), mark("Go a page up.")),
    key("browse.enter", "tab", "complete", mark("enter folder"), mark("Go into the folder."), rank=2),
    key("browse.above", "shift+tab", "above", mark("folder above"), mark("Go to the folder above."), rank=3),
    key("columns.after", "right", "move_column(1)", mark("next column"), mark("Go to the next column."), rank=2),
    hidden("columns.before", "left", "move_column(-1)", mark("column before"), mark("Go to the column before.")),
    key("columns.text", "space", "take_text", mark("as text"), mark("Learn from this column.")),
    key(
        "columns.target",
        "t",
        "take_target",
        mark("as target"),
        mark("Answer with this column; in plain text learning, the same key goes back."),
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
