"""The style sheet: read once before the first frame, again for another theme."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from textual.app import ComposeResult
from textual.css import stylesheet
from textual.screen import Screen
from textual.widgets import Static
from trainwiz.tui.app import TrainwizApp


class Plain(Screen[None]):
    CSS = "Plain Static { color: $foreground; }"

    def compose(self) -> ComposeResult:
        yield Static("text")


async def test_no_style_is_read_twice_before_the_first_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, str]] = []
    parse = stylesheet.parse

    def counted(scope: str, css: str, *arguments: Any, **keywords: Any) -> Iterator[Any]:
        read.append((scope, css))
        return parse(scope, css, *arguments, **keywords)

    monkeypatch.setattr(stylesheet, "parse", counted)
    app = TrainwizApp(lambda: Screen())
    async with app.run_test() as pilot:
        await pilot.pause()
        assert any("MonitorScreen" in css for _, css in read)
        assert len(read) == len(set(read))


async def test_another_theme_changes_the_colours_and_a_new_screen_brings_its_own() -> None:
    app = TrainwizApp(lambda: Screen())
    async with app.run_test() as pilot:
        await app.push_screen(Plain())
        colours = []
        for name in ("dark", "light", "dark"):
            app.theme = name
            await pilot.pause()
            colours.append((app.screen.query_one(Static).styles.color, app.screen.styles.background))
        assert colours[0][0] != colours[1][0]
        assert colours[0][1] != colours[1][1]
        assert colours[0] == colours[2]
