"""The log of the monitor on a real file: follow, search, filter by level; lines of any kind stay text."""

from __future__ import annotations

from pathlib import Path

from trainwiz.tui.widgets.frame import EntryDialog
from trainwiz.tui.widgets.log_panel import LogPanel

from tests.core.telemetry.written_run import write_run
from tests.tui.test_monitor import monitored, notices
from tests.tui.wizard_parts import until

ERROR = "RuntimeError: CUDA error: out of memory"
WARNING = "UserWarning: this is slow"


def seen(panel: LogPanel) -> list[str]:
    return panel.content().plain.splitlines()


async def test_it_follows_searches_and_filters(tmp_path: Path) -> None:
    words = {100: WARNING, 200: ERROR, 700: ERROR}
    log = "".join(f"{words.get(number, 'line')} {number}\n" for number in range(900))
    folder = write_run(tmp_path / "run", log=log)
    async with monitored(folder, interval_s=0.1) as (screen, pilot):
        panel = screen.query_one(LogPanel)

        def add(text: str) -> None:
            with (folder / "train.log").open("a") as file:
                file.write(text)

        await pilot.press("l")
        await until(pilot, lambda: len(seen(panel)) > 20 and seen(panel)[-1] == "line 899")
        add("line 900\nhalf a li")
        await until(pilot, lambda: seen(panel)[-1] == "half a li")
        assert seen(panel)[-2] == "line 900"
        add("ne\n")
        await until(pilot, lambda: seen(panel)[-1] == "half a line")

        # A search goes up and down.
        await pilot.press("slash")
        assert isinstance(pilot.app.screen, EntryDialog)
        await pilot.press(*"cuda error", "enter")
        await until(pilot, lambda: f"{ERROR} 700" in seen(panel))
        await pilot.press("N")
        assert f"{ERROR} 200" in seen(panel)
        await pilot.press("N")
        assert "not found further up" in notices(pilot)[-1] and f"{ERROR} 200" in seen(panel)
        await pilot.press("n")
        assert f"{ERROR} 700" in seen(panel)
        await pilot.press("n")
        assert "not found further down" in notices(pilot)[-1]
        # The text stands out in more than colour.
        row = panel.content_lines()[seen(panel).index(f"{ERROR} 700")]
        marked = [row.plain[span.start : span.end] for span in row.spans if "reverse" in str(span.style)]
        assert marked == ["CUDA error"]

        # A reader of older lines is left alone.
        before = seen(panel)
        add(f"a line\n{ERROR} {'x' * 200}\x1b]0;owned\x07\x1b[31m\n")
        await pilot.pause(0.5)
        assert seen(panel) == before and panel.title_text == "log · press end to follow"
        await pilot.press("f")
        await until(pilot, lambda: len(seen(panel)) > 4)
        assert seen(panel)[:3] == [f"{WARNING} 100", f"{ERROR} 200", f"{ERROR} 700"]
        assert "".join(seen(panel)[3:]) == f"{ERROR} {'x' * 200}", "a long line is wrapped"
        assert panel.title_text == "log · warnings and errors"
        await pilot.press("f")
        assert seen(panel)[0] == f"{ERROR} 200"
        await pilot.press("f", "home")
        assert seen(panel)[0] == "line 0"
        await pilot.press("down", "pagedown", "up")
        assert seen(panel)[0] == f"line {panel.content_size.height - 1}"
        await pilot.press("end")
        assert seen(panel)[-1].endswith("xxx")
        (folder / "train.log").write_text("begun anew\n")
        await until(pilot, lambda: seen(panel) == ["begun anew"])
        await pilot.press("l", "escape")
        assert screen.maximized is None
