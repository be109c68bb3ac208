"""The log card on a real file: follow, search, filter by level; lines of any kind stay text."""

from __future__ import annotations

from pathlib import Path

from textual.screen import Screen
from textual.widgets import Input
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.log_card import MOST_LINES, LogCard
from trainwiz.tui.widgets.log_view import LogView

from tests.tui.test_monitor import notices
from tests.tui.wizard_parts import running, until

ERROR = "RuntimeError: CUDA error: out of memory"
WARNING = "UserWarning: this is slow"


def seen(view: LogView) -> list[str]:
    top = int(view.scroll_offset.y)
    return view.shown_lines[top : top + view.scrollable_content_region.height]


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


async def test_it_follows_searches_and_filters(tmp_path: Path) -> None:
    path, words = tmp_path / "train.log", {41_000: WARNING, 42_000: ERROR, 49_000: ERROR}
    path.write_text("".join(f"{words.get(number, 'line')} {number}\n" for number in range(50_000)))
    app = TrainwizApp(Screen, ascii_only=False)
    app.animation_level = "none"
    card = LogCard(path)
    app.call_later(app.push_screen, card)
    async with running(app, (80, 24)) as pilot:
        await until(pilot, lambda: app.screen is card and bool(card.query_one(LogView).shown_lines))
        view = card.view
        await until(pilot, lambda: seen(view)[-1:] == ["line 49999"])
        assert len(view.shown_lines) == MOST_LINES
        add(path, "line 50000\nhalf a li")
        await until(pilot, lambda: seen(view)[-1] == "half a li")
        assert seen(view)[-2] == "line 50000"
        add(path, "ne\n")
        await until(pilot, lambda: seen(view)[-1] == "half a line")
        assert str(view.border_subtitle) == "all lines · the newest 10,000 lines · following"

        # A search goes up and down.
        await pilot.press("slash", *"cuda error", "enter")
        assert f"{ERROR} 49000" in seen(view)
        await pilot.press("N")
        assert f"{ERROR} 42000" in seen(view)
        await pilot.press("N")
        assert "not found further up" in notices(pilot)[-1] and f"{ERROR} 42000" in seen(view)
        await pilot.press("n")
        assert f"{ERROR} 49000" in seen(view)
        await pilot.press("n")
        assert "not found further down" in notices(pilot)[-1]
        # The text stands out in more than colour.
        row = view.shown_lines.index(f"{ERROR} 49000") - int(view.scroll_offset.y)
        marked = [segment for segment in view.render_line(row) if segment.style and segment.style.reverse]
        assert [segment.text for segment in marked] == ["CUDA error"]
        # A search can be left, and the card stays.
        await pilot.press("slash", *"q[red]l")
        assert card.query_one(Input).value == "q[red]l"
        await pilot.press("escape")
        assert app.screen is card and view.has_focus

        # A reader of older lines is left alone.
        before = seen(view)
        add(path, f"a line\n{ERROR} {'x' * 100}\x1b]0;owned\x07\x1b[31m\n")
        await pilot.pause(1.2)
        assert seen(view) == before and "following" not in str(view.border_subtitle)
        await pilot.press("f")
        await until(pilot, lambda: len(view.shown_lines) > 4)
        assert view.shown_lines[:3] == [f"{WARNING} 41000", f"{ERROR} 42000", f"{ERROR} 49000"]
        assert "".join(view.shown_lines[3:]) == f"{ERROR} {'x' * 100}", "a long line is wrapped"
        assert str(view.border_subtitle).startswith("warnings and errors · ")
        await pilot.press("f")
        assert view.shown_lines[0] == f"{ERROR} 42000"
        await pilot.press("f", "home")
        assert seen(view)[0] == view.shown_lines[0] and not view.following
        await pilot.press("end")
        await until(pilot, lambda: view.following and seen(view)[-1].endswith("xxx"))
        path.write_text("begun anew\n")
        await until(pilot, lambda: seen(view) == ["begun anew"])
        await pilot.press("l")
        assert app.screen is not card
