"""The log card on real files: follow, search, filter by level, wrap, copy; lines of any kind stay text."""

from __future__ import annotations

from pathlib import Path

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Input
from trainwiz.core.telemetry.log import LogFile
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.log_card import LogCard, WholeLog
from trainwiz.tui.widgets.log_view import (
    MOST_LINES,
    LogView,
    LogWindow,
    earlier,
    found_line,
    later,
    refreshed,
    window_at,
    window_at_end,
)

from tests.tui.test_monitor import notices
from tests.tui.wizard_parts import running, until

ERROR = "RuntimeError: CUDA error: out of memory"
WARNING = "UserWarning: this is slow"


class Blank(Screen[None]):
    def compose(self) -> ComposeResult:
        yield from ()


def seen(view: LogView) -> list[str]:
    top = int(view.scroll_offset.y)
    return view.shown_lines[top : top + view.scrollable_content_region.height]


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


async def test_it_follows_searches_filters_wraps_and_copies(tmp_path: Path) -> None:
    # One warning at line 100, errors at 20,000 and 40,000.
    path, words = tmp_path / "train.log", {100: WARNING, 20_000: ERROR, 40_000: ERROR}
    path.write_text("".join(f"{words.get(number, 'line')} {number}\n" for number in range(50_000)))
    app = TrainwizApp(Blank, ascii_only=False)
    app.animation_level = "none"
    card = LogCard(path)
    app.call_later(app.push_screen, card)
    async with running(app, (80, 24)) as pilot:
        await until(pilot, lambda: app.screen is card and bool(card.query_one(WholeLog).shown_lines))
        await until(pilot, lambda: not card._reading)
        view = card.query_one(WholeLog)
        assert seen(view)[-1] == "line 49999"
        add(path, "line 50000\nhalf a li")
        await until(pilot, lambda: seen(view)[-1] == "half a li")
        assert seen(view)[-2] == "line 50000"
        add(path, "ne\n")
        await until(pilot, lambda: seen(view)[-1] == "half a line")
        assert "following" in str(view.border_subtitle)

        # A search goes up and down through what is not laid out.
        await pilot.press("slash", *"cuda error", "enter")
        await until(pilot, lambda: f"{ERROR} 40000" in seen(view))
        await pilot.press("N")
        await until(pilot, lambda: f"{ERROR} 20000" in seen(view))
        await pilot.press("N")
        await until(pilot, lambda: "not found further up" in " ".join(notices(pilot)))
        assert f"{ERROR} 20000" in seen(view)
        await pilot.press("n")
        await until(pilot, lambda: f"{ERROR} 40000" in seen(view))
        await pilot.press("n")
        await until(pilot, lambda: "not found further down" in " ".join(notices(pilot)))
        # The text stands out in more than colour.
        row = view.shown_lines.index(f"{ERROR} 40000") - int(view.scroll_offset.y)
        marked = [segment for segment in view.render_line(row) if segment.style and segment.style.reverse]
        assert [segment.text for segment in marked] == ["CUDA error"]
        # A search can be left, and the card stays.
        await pilot.press("slash", *"q[red]l")
        assert card.query_one(Input).value == "q[red]l"
        await pilot.press("escape")
        assert app.screen is card and view.has_focus
        await pilot.press("slash", *"[red]", "enter")
        await until(pilot, lambda: "“[red]” was not found in this log." in notices(pilot))

        # Levels are filtered in the whole log.
        await pilot.press("f")
        everything = [f"{WARNING} 100", f"{ERROR} 20000", f"{ERROR} 40000"]
        await until(pilot, lambda: view.shown_lines == everything)
        assert "warnings and errors" in str(view.border_subtitle)
        await pilot.press("f")
        await until(pilot, lambda: view.shown_lines == everything[1:])
        await pilot.press("end")
        add(path, f"a line\n{ERROR} {'x' * 100}\x1b]0;owned\x07\x1b[31m\n")
        await until(pilot, lambda: len(view.shown_lines) > 3)
        await pilot.press("c", "w")
        errors = [*everything[1:], f"{ERROR} {'x' * 100}"]
        assert app.clipboard == "\n".join(errors) and "Copied 3 lines." in notices(pilot)
        assert view.shown_lines == errors
        await pilot.press("w")
        assert len(view.shown_lines) > 3
        await pilot.press("f")
        await until(pilot, lambda: "line 49999" in seen(view))

        # Far more at once than is laid out.
        await pilot.press("end")
        add(path, "".join(f"more {number:<60}|\n" for number in range(18_000)))
        await until(pilot, lambda: seen(view)[-1].startswith("more 17999"))
        assert len(view.shown_lines) <= MOST_LINES and card._window.at_end
        # A reader of older lines is left alone.
        await pilot.press("pageup", "pageup")
        await pilot.pause(0.1)
        before = seen(view)
        add(path, "new\n" * 500)
        await pilot.pause(1.2)
        assert seen(view) == before and "following" not in str(view.border_subtitle)
        await pilot.press("home")
        await until(pilot, lambda: seen(view)[0] == "line 0")
        await pilot.press("end")
        await until(pilot, lambda: seen(view)[-1] == "new" and view.following)

        # The look for news comes between asking for the window of a match and the thread that reads it.
        old = card._window
        start = found_line(card._log, ERROR, None, 0, 1, lambda *_: True)
        assert start is not None
        card._read(window_at, start.start, show=start.start)
        card._refresh()
        await until(pilot, lambda: ERROR in "\n".join(seen(view)))
        # One that comes late is not taken either.
        card._take(card._asked - 1, old, None, True)
        assert card._window is not old and not view.following
        await pilot.press("l")
        assert app.screen is not card


def texts(window: LogWindow) -> list[str]:
    return [placed.line.text for placed in window.lines]


def test_a_window_moves_without_a_gap(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(4_000)]
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    log = LogFile(tmp_path / "log")
    window = window_at_end(log, None)
    assert texts(window)[-1] == lines[-1] and window.at_end
    for move in (earlier, later, earlier):
        for _ in range(200):
            if window.at_start if move is earlier else window.at_end:
                break
            window = move(log, None, window)
            first = lines.index(texts(window)[0])
            assert texts(window) == lines[first : first + len(window.lines)]
            assert len(window.lines) <= MOST_LINES
        assert texts(window)[0 if move is earlier else -1] == lines[0 if move is earlier else -1]
    found = found_line(log, "line 1234", None, 0, 1, lambda at, size: True)
    assert found is not None and found.line.text == "line 1234"
    about = window_at(log, None, found.start)
    assert texts(about)[about.place_of(found.start)] == "line 1234"


def test_a_log_that_is_begun_anew_is_read_anew_and_a_progress_bar_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("old\n" * 1000)
    log = LogFile(path)
    window = window_at_end(log, None)
    assert refreshed(log, None, window) is window
    path.write_text("start\n  1%|          | 1/100 [00:01<01:39,  1.00s/it]\n")
    window = refreshed(log, None, window)
    assert texts(window)[0] == "start"
    with path.open("a") as file:
        file.write("  2%|▏         | 2/100 [00:02<01:38,  1.00s/it]\n")
    window = refreshed(log, None, window)
    assert len(window.lines) == 2 and "2/100" in texts(window)[-1]
