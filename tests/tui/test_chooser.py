"""The list over the screen: its cursor is a mark, its hint stays in sight, and an empty one says so."""

from __future__ import annotations

from textual.widgets import OptionList, Static
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.plan_state import Offer
from trainwiz.tui.widgets.chooser import Chooser

OFFERS = [
    Offer(f"profile-{number}", note="a long note about what it is for and on which card " * 3) for number in range(30)
]


def marked(chooser: Chooser) -> list[str]:
    options = chooser.query_one(OptionList).options
    return [str(option.prompt).split()[1] for option in options if str(option.prompt).startswith("▸")]


async def test_the_cursor_is_a_mark_which_moves_with_it():
    app = TrainwizApp(lambda: Chooser("Profile", OFFERS, "profile-3"), ascii_only=False)
    async with app.run_test() as pilot:
        await pilot.pause()
        assert marked(app.screen) == ["profile-3"]
        await pilot.press("down")
        await pilot.pause()
        assert marked(app.screen) == ["profile-4"]
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
        assert marked(app.screen) == ["profile-4"]
        await pilot.press(*"29")
        await pilot.pause()
        assert marked(app.screen) == ["profile-29"]


async def test_the_hint_of_a_long_list_is_in_sight_and_an_empty_list_says_so():
    app = TrainwizApp(lambda: Chooser("Profile", OFFERS, ""), ascii_only=False)
    async with app.run_test(size=(120, 40)) as pilot:
        hint, window = app.screen.query_one(".hint", Static), app.screen.query_one("Vertical")
        for size in ((120, 40), (80, 24), (60, 20)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            await pilot.pause()
            assert hint.content_size.height == 1 and hint.region.bottom < window.region.bottom, size
        assert "No matches" not in str(hint.render())
        await pilot.press(*"zz")
        assert "No matches" in str(hint.render())
        await pilot.press("enter")
        assert isinstance(app.screen, Chooser)
        await pilot.press("backspace", "backspace")
        assert "No matches" not in str(hint.render())


async def test_a_typed_folder_wins_over_a_file_that_begins_like_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data.csv").write_text("sequence\nMKT\n")
    app = TrainwizApp(lambda: Chooser("Data", [Offer("data.csv")], "", "type a path"), ascii_only=False)
    async with app.run_test() as pilot:
        chooser = app.screen
        await pilot.press(*"data")
        assert [offer.value for offer in chooser._shown] == ["data", "data.csv"]
        await pilot.press(".", "c")
        assert [offer.value for offer in chooser._shown] == ["data.csv", "data.c"]
