"""Keys of the wizard."""

from __future__ import annotations

from trainwiz.core.language import mark
from trainwiz.tui.key_binding import KeyBinding

REMEDY_KEYS = "123456789"


def _remedy_keys() -> list[KeyBinding]:
    """The first stands for all of them in the key bar."""
    apply = mark("Apply the remedy with the number {number}.")
    all_of_them = mark("Apply the remedy with this number.")
    rows = []
    for digit in REMEDY_KEYS:
        first = digit == "1"
        rows.append(
            KeyBinding(
                f"plan.remedy_{digit}",
                digit,
                f"apply_remedy({digit})",
                mark("apply a remedy") if first else mark("remedy {number}"),
                all_of_them if first else apply,
                "plan",
                label="1-9" if first else "",
                rank=2 if first else 9,
                fills=(("number", digit),),
            )
        )
    return rows


PLAN_KEYS: tuple[KeyBinding, ...] = (
    KeyBinding(
        "plan.next",
        "enter",
        "next_step",
        mark("next"),
        mark("Go to the next step; start, on the last."),
        "plan",
        rank=0,
    ),
    KeyBinding(
        "plan.back", "escape", "previous_step", mark("back"), mark("Go back one step. Nothing is lost."), "plan", rank=0
    ),
    KeyBinding(
        "plan.next_field",
        "down,tab",
        "next_field",
        mark("move"),
        mark("Go to the next field."),
        "plan",
        label="↑↓",
        rank=4,
    ),
    KeyBinding(
        "plan.previous_field",
        "up,shift+tab",
        "previous_field",
        mark("field above"),
        mark("Go to the field above."),
        "plan",
        rank=9,
    ),
    KeyBinding(
        "plan.change",
        "space",
        "change_field",
        mark("change"),
        mark("Edit the value, or open the list of values."),
        "plan",
        rank=0,
    ),
    KeyBinding(
        "plan.next_value", "right", "next_value(1)", mark("next value"), mark("Take the next value."), "plan", rank=9
    ),
    KeyBinding(
        "plan.previous_value",
        "left",
        "next_value(-1)",
        mark("value before"),
        mark("Take the value before."),
        "plan",
        rank=9,
    ),
    KeyBinding(
        "plan.go", "g", "choose_step", mark("go to step"), mark("Go to a step that you have seen."), "plan", rank=9
    ),
    KeyBinding(
        "plan.find", "slash", "find", mark("find a value"), mark("Find a field by its name."), "plan", label="/", rank=3
    ),
    *_remedy_keys(),
    KeyBinding(
        "plan.import",
        "i",
        "import_settings",
        mark("import"),
        mark("Take the settings of a file, a script or a launch command that you have."),
        "plan",
        rank=2,
    ),
    KeyBinding(
        "plan.reset",
        "r",
        "reset_field",
        mark("reset value"),
        mark("Take back your change of this field."),
        "plan",
        rank=3,
    ),
    KeyBinding(
        "plan.reset_step",
        "R",
        "reset_step",
        mark("reset the step"),
        mark("Take back all your changes of this step."),
        "plan",
        rank=9,
    ),
    KeyBinding("plan.start", "f5", "start", mark("start"), mark("Start the run as it is planned now."), "plan"),
    KeyBinding(
        "plan.scroll_down",
        "pagedown",
        "scroll_plan(1)",
        mark("scroll plan"),
        mark("Scroll the plan down."),
        "plan",
        rank=9,
    ),
    KeyBinding(
        "plan.scroll_up",
        "pageup",
        "scroll_plan(-1)",
        mark("scroll plan up"),
        mark("Scroll the plan up."),
        "plan",
        rank=9,
    ),
    KeyBinding("plan.copy", "c", "copy_command", mark("copy command"), mark("Copy the exact command."), "plan", rank=9),
    KeyBinding(
        "edit.accept",
        "enter",
        "accept",
        mark("accept"),
        mark("Keep the value and leave the field."),
        "edit",
        rank=0,
        priority=True,
    ),
    KeyBinding(
        "edit.cancel",
        "escape",
        "cancel",
        mark("cancel"),
        mark("Leave the field as it was."),
        "edit",
        rank=0,
        priority=True,
    ),
    KeyBinding("files.down", "down", "move_file(1)", mark("next file"), mark("Show the next file."), "files", rank=9),
    KeyBinding("files.up", "up", "move_file(-1)", mark("file above"), mark("Show the file above."), "files", rank=9),
    KeyBinding(
        "files.forward",
        "right",
        "scroll_file(1)",
        mark("lines after"),
        mark("Show the next lines of the file."),
        "files",
        rank=9,
    ),
    KeyBinding(
        "files.backward",
        "left",
        "scroll_file(-1)",
        mark("lines before"),
        mark("Show the lines before in the file."),
        "files",
        rank=9,
    ),
)
