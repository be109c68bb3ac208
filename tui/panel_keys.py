"""Keys of the panels of the monitor and of the windows over it."""

from __future__ import annotations

from trainwiz.core.language import mark
from trainwiz.tui.key_binding import KeyBinding


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
