"""Keys of the monitor, its panels and the windows over it."""

from __future__ import annotations

from trainwiz.core.language import mark
from trainwiz.tui.key_binding import KeyBinding

# Keys of the panels of the monitor and of the windows over it.


def _copy_keys() -> list[KeyBinding]:
    return [
        KeyBinding(
            f"command.copy_{digit}",
            digit,
            f"copy({digit})",
            mark("copy"),
            mark("Copy the command with the number {number}."),
            "command",
            rank=9,
            fills=(("number", digit),),
        )
        for digit in "123456789"
    ]


PANEL_KEYS: tuple[KeyBinding, ...] = (
    KeyBinding(
        "metric.left",
        "left",
        "move_cursor(-1)",
        mark("read a step"),
        mark("Read the step before."),
        "metric",
        label=mark("arrows"),
        rank=2,
    ),
    KeyBinding(
        "metric.right", "right", "move_cursor(1)", mark("step after"), mark("Read the step after."), "metric", rank=9
    ),
    KeyBinding(
        "metric.far_left",
        "pageup",
        "move_cursor(-10)",
        mark("far before"),
        mark("Ten columns to the left."),
        "metric",
        rank=9,
    ),
    KeyBinding(
        "metric.far_right",
        "pagedown",
        "move_cursor(10)",
        mark("far after"),
        mark("Ten columns to the right."),
        "metric",
        rank=9,
    ),
    KeyBinding(
        "metric.first", "home", "cursor_to_end(-1)", mark("first step"), mark("Read the first step."), "metric", rank=9
    ),
    KeyBinding(
        "metric.last", "end", "cursor_to_end(1)", mark("last step"), mark("Read the last step."), "metric", rank=9
    ),
    KeyBinding(
        "metric.narrow",
        "plus,equals_sign",
        "resize_range(0.5)",
        mark("narrow"),
        mark("Show half as many steps, about the cursor."),
        "metric",
        label="+",
        rank=9,
    ),
    KeyBinding(
        "metric.widen",
        "minus",
        "resize_range(2)",
        mark("widen"),
        mark("Show twice as many steps."),
        "metric",
        label="-",
        rank=9,
    ),
    KeyBinding(
        "metric.earlier",
        "less_than_sign,shift+left",
        "move_range(-1)",
        mark("earlier steps"),
        mark("Move the range of steps to the left."),
        "metric",
        label="<",
        rank=9,
    ),
    KeyBinding(
        "metric.later",
        "greater_than_sign,shift+right",
        "move_range(1)",
        mark("later steps"),
        mark("Move the range of steps to the right."),
        "metric",
        label=">",
        rank=9,
    ),
    KeyBinding(
        "metric.range", "g", "type_range", mark("range"), mark("Type the steps to show, as 400-900."), "metric", rank=3
    ),
    KeyBinding(
        "metric.all", "0", "show_all", mark("all steps"), mark("Show all steps, without a cursor."), "metric", rank=4
    ),
    KeyBinding(
        "cards.open", "enter", "open_card", mark("open GPU"), mark("Show all of the chosen GPU."), "cards", rank=2
    ),
    KeyBinding("cards.down", "down", "move_card(1)", mark("next GPU"), mark("Choose the next GPU."), "cards", rank=9),
    KeyBinding("cards.up", "up", "move_card(-1)", mark("GPU above"), mark("Choose the GPU above."), "cards", rank=9),
    KeyBinding(
        "gpu.next", "right,tab", "other_card(1)", mark("next GPU"), mark("Show the next GPU."), "gpu", label="→"
    ),
    KeyBinding(
        "gpu.before",
        "left,shift+tab",
        "other_card(-1)",
        mark("GPU before"),
        mark("Show the GPU before."),
        "gpu",
        label="←",
    ),
    KeyBinding("log.close", "escape", "close", mark("close"), mark("Close the search, or the log."), "log", rank=0),
    KeyBinding("log.done", "l,q", "leave", mark("close"), mark("Close the log."), "log", rank=9),
    KeyBinding(
        "log.search", "slash", "search", mark("search"), mark("Find a text in the whole log."), "log", label="/"
    ),
    KeyBinding(
        "log.next",
        "n",
        "next_match(1)",
        mark("next match"),
        mark("Go to the next line with that text."),
        "log",
        label="n N",
        rank=2,
    ),
    KeyBinding(
        "log.previous",
        "N",
        "next_match(-1)",
        mark("match before"),
        mark("Go to the line before with that text."),
        "log",
        rank=9,
    ),
    KeyBinding(
        "log.level", "f", "next_level", mark("filter"), mark("All lines, warnings only, or errors only."), "log"
    ),
    KeyBinding("log.wrap", "w", "wrap", mark("wrap"), mark("Wrap long lines, or cut them."), "log", rank=3),
    KeyBinding(
        "log.follow", "end,G", "follow", mark("follow"), mark("Go to the end, and follow."), "log", label="end", rank=2
    ),
    KeyBinding("log.start", "home,g", "to_start", mark("first line"), mark("Go to the first line."), "log", rank=9),
    KeyBinding("log.copy", "c", "copy", mark("copy"), mark("Copy the lines on the screen."), "log", rank=3),
    KeyBinding("document.close", "p", "close", mark("close"), mark("Close the plan."), "document", rank=9),
    *_copy_keys(),
)


# Keys of the monitor.

PANEL_NAMES = (mark("plot"), mark("pace"), mark("device"), mark("RAM and disk"), mark("advice"), mark("log"))
"""The panels of the monitor in the order of their digits."""


def _panel_keys() -> list[KeyBinding]:
    """The first stands for all of them in the key bar and in the help."""
    all_of_them = mark(
        "Show one panel alone: 1 plot, 2 pace, 3 device, 4 RAM and disk, 5 advice, 6 log; the same key goes back."
    )
    rows = []
    for place, name in enumerate(PANEL_NAMES, start=1):
        first = place == 1
        rows.append(
            KeyBinding(
                f"monitor.panel_{place}",
                str(place),
                f"one_panel({place})",
                mark("panels") if first else name,
                all_of_them if first else mark("Show the {panel} panel alone; the same key goes back."),
                "monitor",
                label="1-6" if first else "",
                rank=1 if first else 9,
                fills=(("panel", name),),
            )
        )
    return rows


MONITOR_KEYS: tuple[KeyBinding, ...] = (
    KeyBinding(
        "monitor.stop",
        "s",
        "stop",
        mark("stop"),
        mark("Stop the run with a checkpoint; asks first."),
        "monitor",
        rank=0,
        needs="stop",
    ),
    KeyBinding(
        "monitor.stop_now",
        "S",
        "stop_now",
        mark("stop now"),
        mark("End the run at once, without a new checkpoint; asks first."),
        "monitor",
        rank=9,
        needs="stop_now",
    ),
    KeyBinding(
        "monitor.resume",
        "r",
        "resume",
        mark("resume"),
        mark("Go on from the newest complete checkpoint; asks first."),
        "monitor",
        rank=0,
        needs="resume",
    ),
    KeyBinding("monitor.log", "l", "show_log", mark("log"), mark("Show the whole log."), "monitor"),
    *_panel_keys(),
    KeyBinding("monitor.metric", "m", "choose_metric", mark("metric"), mark("Choose what is plotted."), "monitor"),
    KeyBinding(
        "monitor.next_metric",
        "full_stop",
        "next_metric(1)",
        mark("next metric"),
        mark("Plot the next metric."),
        "monitor",
        label=".",
        rank=9,
    ),
    KeyBinding(
        "monitor.previous_metric",
        "comma",
        "next_metric(-1)",
        mark("metric before"),
        mark("Plot the metric before."),
        "monitor",
        label=",",
        rank=9,
    ),
    KeyBinding(
        "monitor.maximise",
        "x",
        "maximise",
        mark("maximise"),
        mark("Give the whole screen to a panel."),
        "monitor",
        rank=2,
    ),
    KeyBinding(
        "monitor.zoom", "z", "zoom", mark("zoom"), mark("Plot the last steps only, or all of them."), "monitor", rank=2
    ),
    KeyBinding(
        "monitor.scale", "e", "log_scale", mark("log scale"), mark("Switch the logarithmic scale."), "monitor", rank=3
    ),
    KeyBinding(
        "monitor.plan",
        "p",
        "show_plan",
        mark("plan"),
        mark("Show the plan that this run was started from."),
        "monitor",
        needs="plan",
    ),
    KeyBinding(
        "monitor.fold", "f", "fold", mark("fold"), mark("Fold the panel to its title, or unfold it."), "monitor", rank=4
    ),
    KeyBinding(
        "monitor.command",
        "c",
        "copy_command",
        mark("copy command"),
        mark("Copy the exact command that starts this run."),
        "monitor",
        rank=4,
        needs="command",
    ),
    KeyBinding(
        "monitor.pause",
        "space",
        "pause",
        mark("pause"),
        mark("Pause the replay, or go on."),
        "monitor",
        rank=0,
        needs="replay",
    ),
    KeyBinding(
        "monitor.open", "enter", "open_panel", mark("open"), mark("Open what has the focus."), "monitor", rank=9
    ),
    KeyBinding(
        "monitor.back",
        "escape",
        "back",
        mark("back"),
        mark("Go back from one panel to all of them."),
        "monitor",
        rank=9,
    ),
    KeyBinding(
        "monitor.next", "tab", "next_panel(1)", mark("next panel"), mark("Go to the next panel."), "monitor", rank=5
    ),
    KeyBinding(
        "monitor.before",
        "shift+tab",
        "next_panel(-1)",
        mark("panel before"),
        mark("Go to the panel before."),
        "monitor",
        rank=9,
    ),
)
