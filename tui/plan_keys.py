"""Keys of the wizard and of its windows."""

from __future__ import annotations

from trainwiz.core.language import mark
from trainwiz.tui.key_binding import KeyBinding

# Keys of the wizard.

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


# A table: id, key, action, words, sentence, scope.
# fmt: off

PLAN_KEYS: tuple[KeyBinding, ...] = (
    KeyBinding("plan.next", "enter", "next_step", mark("next"),
               mark("Go to the next step; start, on the last."), "plan", rank=0),
    KeyBinding("plan.back", "escape", "previous_step", mark("back"),
               mark("Go back one step. Nothing is lost."), "plan", rank=0),
    KeyBinding("plan.next_field", "down,tab", "app.focus_next", mark("move"),
               mark("Go to the next field."), "plan", label="↑↓", rank=4),
    KeyBinding("plan.previous_field", "up,shift+tab", "app.focus_previous", mark("field above"),
               mark("Go to the field above."), "plan", rank=9),
    KeyBinding("plan.change", "space", "change_field", mark("change"),
               mark("Edit the value, or open the list of values."), "plan", rank=0),
    KeyBinding("plan.next_value", "right", "next_value(1)", mark("next value"),
               mark("Take the next value."), "plan", rank=9),
    KeyBinding("plan.previous_value", "left", "next_value(-1)", mark("value before"),
               mark("Take the value before."), "plan", rank=9),
    KeyBinding("plan.go", "g", "choose_step", mark("go to step"),
               mark("Go to a step that you have seen."), "plan", rank=9),
    KeyBinding("plan.find", "slash", "find", mark("find a value"),
               mark("Find a field by its name."), "plan", label="/", rank=3),
    *_remedy_keys(),
    KeyBinding("plan.import", "i", "import_settings", mark("import"),
               mark("Take the settings of a file, a script or a launch command that you have."), "plan", rank=2),
    KeyBinding("plan.reset", "r", "reset_field", mark("reset value"),
               mark("Take back your change of this field."), "plan", rank=3),
    KeyBinding("plan.reset_step", "R", "reset_step", mark("reset the step"),
               mark("Take back all your changes of this step."), "plan", rank=9),
    KeyBinding("plan.start", "f5", "start", mark("start"), mark("Start the run as it is planned now."), "plan"),
    KeyBinding("plan.scroll_down", "pagedown", "scroll_plan(1)", mark("scroll plan"),
               mark("Scroll the plan down."), "plan", rank=9),
    KeyBinding("plan.scroll_up", "pageup", "scroll_plan(-1)", mark("scroll plan up"),
               mark("Scroll the plan up."), "plan", rank=9),
    KeyBinding("plan.copy", "c", "copy_command", mark("copy command"), mark("Copy the exact command."), "plan", rank=9),
    KeyBinding("edit.accept", "enter", "accept", mark("accept"),
               mark("Keep the value and leave the field."), "edit", rank=0, priority=True),
    KeyBinding("edit.cancel", "escape", "cancel", mark("cancel"),
               mark("Leave the field as it was."), "edit", rank=0, priority=True),
    KeyBinding("files.down", "down", "move_file(1)", mark("next file"), mark("Show the next file."), "files", rank=9),
    KeyBinding("files.up", "up", "move_file(-1)", mark("file above"), mark("Show the file above."), "files", rank=9),
    KeyBinding("files.forward", "right", "scroll_file(1)", mark("lines after"),
               mark("Show the next lines of the file."), "files", rank=9),
    KeyBinding("files.backward", "left", "scroll_file(-1)", mark("lines before"),
               mark("Show the lines before in the file."), "files", rank=9),
)


# Keys of the window in which foreign settings are read.

IMPORT_KEYS: tuple[KeyBinding, ...] = (
    KeyBinding("import.press", "enter", "press", mark("go on"),
               mark("Go on to the button when something was read, or do what the button says."), "import", rank=0),
    KeyBinding("import.next", "tab", "app.focus_next", mark("move"),
               mark("Go to the next field or button; shift+tab goes back."), "import", rank=2),
    KeyBinding("import.page_down", "pagedown", "scroll_report(1)", mark("report"),
               mark("Scroll the report down."), "import", label="pgdn", rank=3, priority=True),
    KeyBinding("import.page_up", "pageup", "scroll_report(-1)", mark("report up"),
               mark("Scroll the report up."), "import", rank=9, priority=True),
    KeyBinding("import.browse", "f3", "browse", mark("browse files"),
               mark("Choose a file; its path is put above the text."), "import", rank=1),
    KeyBinding("import.help", "f1", "help", mark("help"),
               mark("Say what can be read here, and list the keys."), "import", rank=2),
    KeyBinding("import.close", "escape", "close", mark("close"),
               mark("Close this window; nothing is written and no value changes."), "import", rank=0, priority=True),
)


# Keys of the file picker, while its text has the focus, and of the table of the first rows.

BROWSE_KEYS: tuple[KeyBinding, ...] = (
    KeyBinding("browse.close", "escape", "close", mark("close"),
               mark("Close the list; nothing changes."), "browse", rank=0),
    KeyBinding("browse.down", "down", "move(1)", mark("next entry"), mark("Go to the next entry."), "browse", rank=9),
    KeyBinding("browse.up", "up", "move(-1)", mark("entry above"), mark("Go to the entry above."), "browse", rank=9),
    KeyBinding("browse.page_down", "pagedown", "page(1)", mark("page down"), mark("Go a page down."), "browse", rank=9),
    KeyBinding("browse.page_up", "pageup", "page(-1)", mark("page up"), mark("Go a page up."), "browse", rank=9),
    KeyBinding("browse.enter", "tab", "complete", mark("enter folder"), mark("Go into the folder."), "browse", rank=2),
    KeyBinding("browse.above", "shift+tab", "above", mark("folder above"),
               mark("Go to the folder above."), "browse", rank=3),
    KeyBinding("columns.after", "right", "move_column(1)", mark("next column"),
               mark("Go to the next column."), "columns", rank=2),
    KeyBinding("columns.before", "left", "move_column(-1)", mark("column before"),
               mark("Go to the column before."), "columns", rank=9),
    KeyBinding("columns.text", "space", "take_text", mark("as text"), mark("Learn from this column."), "columns"),
    KeyBinding("columns.target", "t", "take_target", mark("as target"),
               mark("Answer with this column; in plain text learning, the same key goes back."), "columns"),
)
