"""KeyBinding: one key of one screen, with the words that explain it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainwiz.core.language import tr

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
