"""The style sheet of the application: what was read is read again only when something in it is new."""

from __future__ import annotations

from textual.css.stylesheet import Stylesheet


class KeptStylesheet(Stylesheet):
    """Textual reads all styles before the first frame, and then all of them anew for the theme in use.

    That is for nothing when the theme was known from the start.
    """

    def set_variables(self, variables: dict[str, str]) -> None:
        """As Textual's, which forgets all that it read, also when the variables are the same."""
        if variables != self._variables:
            super().set_variables(variables)
            self._require_parse = True

    def reparse(self) -> None:
        """Only when there are other variables or other sources, and in place: these styles are ours and whole."""
        if self._require_parse:
            self.parse()
