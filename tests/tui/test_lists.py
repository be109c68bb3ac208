"""Lists over the screen: offers to choose from, and files and folders of the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from textual.screen import Screen
from textual.widgets import OptionList, Static
from trainwiz.core.data.formats import file_endings
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.plan_state import Offer
from trainwiz.tui.widgets.chooser import Chooser
from trainwiz.tui.widgets.file_picker import FilePicker, FileTree, first_folder, path_text, unusable_name

from tests.tui.wizard_parts import running, shown, until

NOTE = "a long note about what it is for and on which card " * 3
OFFERS = [*(Offer(f"profile-{number}", note=NOTE) for number in range(30)), Offer("data.csv")]


def marked(chooser: Chooser) -> list[str]:
    options = chooser.query_one(OptionList).options
    return [str(option.prompt).split()[1] for option in options if str(option.prompt).startswith("▸")]


async def test_a_list_of_offers(here: Path):
    (here / "data").mkdir()
    (here / "data.csv").write_text("sequence\nMKT\n")
    app = TrainwizApp(lambda: Chooser("Data", OFFERS, "profile-3", "type a path"), ascii_only=False)
    async with running(app, (120, 40)) as pilot:
        await pilot.pause()
        chooser = app.screen
        hint, window = chooser.query_one(".hint", Static), chooser.query_one("Vertical")
        assert marked(chooser) == ["profile-3"]
        await pilot.press("down")
        for size in ((120, 40), (80, 24), (60, 20)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            await pilot.pause()
            assert marked(chooser) == ["profile-4"], size
            assert hint.content_size.height == 1 and hint.region.bottom < window.region.bottom, size
        await pilot.press(*"29")
        await pilot.pause()
        assert marked(chooser) == ["profile-29"]
        await pilot.press("backspace", "backspace", *"data")
        # A folder wins over a file that begins like it.
        assert [offer.value for offer in chooser._shown] == ["data", "data.csv"]
        await pilot.press(".", "c")
        assert [offer.value for offer in chooser._shown] == ["data.csv", "data.c"]
        # Where only the list counts, nothing is taken that is not in it.
        app.push_screen(Chooser("Profile", OFFERS, ""))
        await pilot.press(*"zz", "enter")
        assert "No matches" in shown(app) and app.screen is not chooser


KINDS = file_endings()


@pytest.fixture
def world(here: Path) -> Path:
    """A working folder with data, other files, a hidden one and folders in it."""
    for name in ("b.jsonl", "A.PARQUET", "notes.md", ".hidden.csv", "c.csv.gz"):
        (here / name).write_bytes(b"x" * 2048)
    (here / "sub" / "deeper").mkdir(parents=True)
    (here / "sub" / "rows.tsv").write_text("text\nx\n")
    return here


def test_names_that_no_config_could_hold_are_refused():
    assert unusable_name("rows.csv") == unusable_name("数据 1.csv") == ""
    odd = (os.fsdecode(b"\xff.csv"), "a\n.csv", " a.csv", "a\x1b.csv")
    assert all("Rename it first" in unusable_name(name) for name in odd)


def test_it_opens_where_the_present_value_lies_and_writes_a_path_from_the_working_folder(world: Path):
    assert first_folder("sub/rows.tsv", world) == first_folder("sub", world) == world / "sub"
    for odd in ("", "sample-proteins", "a\0b", "x" * 5000, "OWNER/NAME"):
        assert first_folder(odd, world) == world

    assert path_text(world / "sub" / "rows.tsv", world) == "sub/rows.tsv"
    assert path_text(world / "sub", world) == "./sub", "not the name of a sample, and no hub id"
    assert path_text(Path("/elsewhere/a.csv"), world) == "/elsewhere/a.csv"


async def test_a_folder_is_walked_through_and_what_cannot_be_taken_is_a_sentence(world: Path):
    answers: list[object] = []
    async with running(TrainwizApp(Screen, ascii_only=False), (80, 24)) as pilot:

        async def show(start: str = "") -> FileTree:
            pilot.app.push_screen(FilePicker("Data", start, KINDS), answers.append)
            await until(pilot, lambda: isinstance(pilot.app.screen, FilePicker))
            tree = pilot.app.screen.query_one(FileTree)
            await until(pilot, lambda: bool(tree.root.children))
            return tree

        def names(tree: FileTree) -> list[str]:
            return [str(node.label) for node in tree.root.children]

        tree = await show()
        assert names(tree) == ["sub", "A.PARQUET", "b.jsonl", "c.csv.gz"], "no hidden and no other files"
        await pilot.press("down", "enter")
        await until(pilot, lambda: bool(tree.root.children[0].children))
        await pilot.press("down", "down", "enter")
        await until(pilot, lambda: answers == ["sub/rows.tsv"])
        tree = await show("sub/rows.tsv")
        assert names(tree) == ["deeper", "rows.tsv"]
        await pilot.press("down", "u")
        await until(pilot, lambda: answers[1:] == ["sub/deeper"])
        tree = await show("sub")
        await pilot.press("backspace")
        await until(pilot, lambda: "b.jsonl" in names(tree))
        await pilot.press("escape")
        await until(pilot, lambda: answers[2:] == [None])

        (world / "z\x1b[31m[bold].csv").write_text("x")
        (world / "sub").chmod(0)
        tree = await show()
        assert names(tree)[-1] == "z[bold].csv" and "\x1b" not in shown(pilot.app)
        await pilot.press("down", "enter")
        if os.getuid():
            await until(pilot, lambda: "No permission to read" in shown(pilot.app))
        (world / "sub").chmod(0o755)
        for name, words in (("z", "Rename it first"), ("b", "b.jsonl does not exist.")):
            (world / "b.jsonl").unlink(missing_ok=True)
            tree.move_cursor(next(node for node in tree.root.children if str(node.label).startswith(name)))
            await pilot.press("enter")
            await until(pilot, lambda words=words: words in shown(pilot.app))
        assert len(answers) == 3
