"""KeyBinding: one key of one screen, with the words that explain it; the keys of all screens but the wizard's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

from trainwiz.core.language import mark, tr

ScreenName = Literal[
    "app", "plan", "edit", "files", "monitor", "metric", "cards", "gpu", "log", "command", "dialog", "document",
    "confirm", "list", "browse", "columns", "picker", "import",
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
        """The description in the language of the reader."""
        return self._said(self.description)

    @property
    def sentence(self) -> str:
        """The tooltip in the language of the reader."""
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

PANEL_NAMES = (mark("plot"), mark("pace"), mark("device"), mark("RAM and disk"), mark("advice"), mark("log"))
"""The panels of the monitor in the order of their digits."""


def _panel_keys() -> list[KeyBinding]:
    """The first stands for all of them in the key bar and in the help."""
    all_of_them = mark(
        "Show one panel alone: 1 plot, 2 pace, 3 device, 4 RAM and disk, 5 advice, 6 log; the same key goes back."
    )
    this_one = mark("Show the {panel} panel alone; the same key goes back.")
    first = key("monitor.panel_1", "1", "one_panel(1)", mark("panels"), all_of_them, label="1-6")
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
