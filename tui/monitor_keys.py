"""Keys of the monitor."""

from __future__ import annotations

from trainwiz.core.language import mark
from trainwiz.tui.key_binding import KeyBinding

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
