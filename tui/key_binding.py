"""KeyBinding: one key of one screen, with the words that explain it; the keys of all screens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainwiz.core.language import mark, tr

# KeyBinding: one key of one screen, with the words that explain it.

ScreenName = Literal[
    "app",
    "plan",
    "edit",
    "files",
    "monitor",
    "metric",
    "cards",
    "gpu",
    "log",
    "command",
    "dialog",
    "document",
    "confirm",
    "list",
    "browse",
    "columns",
    "picker",
    "import",
]
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


# Keys of the whole application, of its windows and of its lists.

APP_KEYS: tuple[KeyBinding, ...] = (
    KeyBinding(
        "app.help",
        "f1,question_mark",
        "help",
        mark("help"),
        mark("Explain what has the focus, and list all keys."),
        "app",
    ),
    KeyBinding(
        "app.quit", "q,f10", "leave", mark("quit"), mark("Leave. A run that was started goes on."), "app", rank=0
    ),
    KeyBinding(
        "app.palette",
        "colon,ctrl+p",
        "command_palette",
        mark("all actions"),
        mark("Find an action by its name."),
        "app",
        rank=9,
    ),
    KeyBinding(
        "app.theme", "f2", "next_theme", mark("theme"), mark("Next theme: dark, light, high contrast."), "app", rank=9
    ),
    KeyBinding(
        "dialog.close", "escape", "close", mark("close"), mark("Close this window; nothing changes."), "dialog", rank=0
    ),
    KeyBinding("dialog.done", "enter,f1,q", "close", mark("close"), mark("Close this window."), "dialog", rank=9),
    KeyBinding("confirm.press", "enter", "press", mark("choose"), mark("Do what the button says."), "confirm", rank=0),
    KeyBinding(
        "confirm.close",
        "escape",
        "close",
        mark("close"),
        mark("Close this window; nothing changes."),
        "confirm",
        rank=0,
    ),
    KeyBinding(
        "confirm.left", "left", "app.focus_previous", mark("button before"), mark("Go to the button before."), "confirm"
    ),
    KeyBinding(
        "confirm.right", "right", "app.focus_next", mark("next button"), mark("Go to the next button."), "confirm"
    ),
    KeyBinding("picker.open", "enter", "open", mark("watch"), mark("Watch what is marked."), "picker", rank=0),
    KeyBinding("picker.down", "down", "move(1)", mark("move"), mark("Go to the next entry."), "picker", label="↑↓"),
    KeyBinding("picker.up", "up", "move(-1)", mark("entry above"), mark("Go to the entry above."), "picker", rank=9),
    KeyBinding("picker.leave", "escape", "app.leave", mark("leave"), mark("Leave; nothing changes."), "picker", rank=9),
    KeyBinding(
        "list.close", "escape", "close", mark("close"), mark("Close the list; nothing changes."), "list", rank=0
    ),
    KeyBinding("list.down", "down", "move(1)", mark("next entry"), mark("Go to the next entry."), "list", rank=9),
    KeyBinding("list.up", "up", "move(-1)", mark("entry above"), mark("Go to the entry above."), "list", rank=9),
)
