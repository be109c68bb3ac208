"""PanelScreen: a screen of panels; each folds to its title, and one can have the whole screen.

It sets classes and moves the focus; the style sheet of the screen says what they look like:
-folded (a panel), -fills (takes the rest of its column), -alone (has the screen), -away (a column
without that panel), -one-panel (the screen).
"""

from __future__ import annotations

from textual import on
from textual.events import DescendantFocus, Resize
from textual.screen import Screen
from textual.widget import Widget
from trainwiz.core.language import tr

PANEL = "panel"
"""CSS class of what counts as a panel, in the order of the tab key."""
COLUMN = "column"
"""CSS class of what holds panels one below the other."""


class PanelScreen(Screen[None]):
    """Which panel was chosen outlives sizes at which it has no room."""

    AUTO_FOCUS = ""
    _chosen: Widget | None = None

    @property
    def panels(self) -> list[Widget]:
        return list(self.query(f".{PANEL}").results(Widget))

    @property
    def focused_panel(self) -> Widget | None:
        """The panel that has the focus, or what has it inside."""
        if self.focused is None:
            return None
        nodes = (node for node in self.focused.ancestors_with_self if isinstance(node, Widget))
        return next(filter(_is_panel, nodes), None)

    @property
    def alone(self) -> Widget | None:
        """The panel that has the whole screen."""
        return next((panel for panel in self.panels if panel.has_class("-alone")), None)

    # Keys

    def action_next_panel(self, by: int) -> None:
        """Go to a panel `by` places on. While one has the whole screen, the next takes its place."""
        panels = self.panels if self.alone is not None else [panel for panel in self.panels if _is_shown(panel)]
        if not panels:
            return
        here = self.alone or self.focused_panel
        place = panels.index(here) + by if here in panels else (0 if by > 0 else -1)
        panel = panels[place % len(panels)]
        if self.alone is not None:
            self.show_alone(panel)
        else:
            self.choose(panel)

    def action_maximise(self) -> None:
        """The focused panel fills the screen, or gives the room back."""
        self.show_alone(None if self.alone is not None else self.focused_panel or self.panels[0])

    def action_one_panel(self, place: int) -> None:
        """The panel at `place` (from 1) fills the screen, or gives the room back."""
        panel = self.panels[place - 1]
        self.show_alone(None if panel is self.alone else panel)

    def action_back(self) -> None:
        if self.alone is not None:
            self.show_alone(None)

    def action_fold(self) -> None:
        panel = self.focused_panel
        if panel is None:
            self.notify(tr("Press tab to choose the panel that is to be folded."), markup=False)
            return
        if self.alone is None:
            panel.toggle_class("-folded")
            self._fill_columns()

    # What they do

    def choose(self, panel: Widget) -> None:
        self._chosen = panel
        panel.focus()

    def show_alone(self, panel: Widget | None) -> None:
        """Give the whole screen to `panel`; None gives the room back to all of them."""
        for other in self.panels:
            other.set_class(other is panel, "-alone")
            if other is panel:
                other.remove_class("-folded")
        for column in self.query(f".{COLUMN}").results(Widget):
            column.set_class(panel is not None and panel not in column.query(f".{PANEL}"), "-away")
        self.set_class(panel is not None, "-one-panel")
        self._fill_columns()
        if panel is not None:
            self._chosen = panel
            # It can take the focus only once it is shown.
            self.call_after_refresh(panel.focus)
        elif self._chosen is not None:
            self.call_after_refresh(self._focus_chosen)

    def _fill_columns(self) -> None:
        """Where the panel that takes the rest of its column is folded, the last open one takes it."""
        for column in self.query(f".{COLUMN}").results(Widget):
            panels = [child for child in column.children if _is_panel(child)]
            open_ = [panel for panel in panels if not panel.has_class("-folded")]
            greedy = any(panel.has_class("-greedy") for panel in open_)
            for panel in panels:
                panel.set_class(bool(open_) and not greedy and panel is open_[-1], "-fills")

    @on(DescendantFocus)
    def _remember(self) -> None:
        """A click chooses too; what gets the focus because the chosen one has no room does not."""
        panel = self.focused_panel
        if panel is not None and (self._chosen is None or _is_shown(self._chosen)):
            self._chosen = panel

    @on(Resize)
    def _keep_focus(self) -> None:
        self.call_after_refresh(self._focus_chosen)

    def _focus_chosen(self) -> None:
        if self._chosen is not None and self._chosen.focusable and self.focused_panel is not self._chosen:
            self._chosen.focus()


def _is_panel(widget: Widget) -> bool:
    return widget.has_class(PANEL)


def _is_shown(widget: Widget) -> bool:
    return all(node.display for node in widget.ancestors_with_self if isinstance(node, Widget))
