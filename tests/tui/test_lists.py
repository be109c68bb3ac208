"""Lists over the screen: offers to choose from, and files and folders of the disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from textual import events
from textual.screen import Screen
from textual.widgets import OptionList, Static
from trainwiz.core.data.formats import file_endings
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.plan_state import Offer
from trainwiz.tui.widgets.chooser import Chooser
from trainwiz.tui.widgets.file_picker import (
    FilePicker,
    first_folder,
    matching_entries,
    path_text,
    read_folder,
    typed_parts,
    unusable_name,
)

from tests.each import each
from tests.tui.wizard_parts import running, until
from tests.tui.wizard_parts import shown as text_of

NOTE = "a long note about what it is for and on which card " * 3
OFFERS = [*(Offer(f"profile-{number}", note=NOTE) for number in range(30)), Offer("data.csv")]


def marked(chooser: Chooser) -> list[str]:
    options = chooser.query_one(OptionList).options
    return [str(option.prompt).split()[1] for option in options if str(option.prompt).startswith("▸")]


async def test_a_list_of_offers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data.csv").write_text("sequence\nMKT\n")
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
        assert "No matches" in text_of(app) and app.screen is not chooser


KINDS = file_endings()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with data, other files, a hidden one and folders in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("b.jsonl", "A.PARQUET", "notes.md", ".hidden.csv", "c.csv.gz"):
        (tmp_path / name).write_bytes(b"x" * 2048)
    (tmp_path / "sub" / "deeper").mkdir(parents=True)
    (tmp_path / "sub" / "rows.tsv").write_text("text\nx\n")
    return tmp_path


class Picked:
    """A picker over a screen, and what it answered."""

    def __init__(self, pilot) -> None:
        self.pilot, self.app = pilot, pilot.app
        self.answer: object = None

    async def show(self, start: str = "") -> None:
        self.picker, self.answer = FilePicker("Data", start, KINDS), "none yet"
        self.app.push_screen(self.picker, lambda answer: setattr(self, "answer", answer))
        await self.settled()

    async def settled(self) -> None:
        def is_read() -> bool:
            listing = self.picker.listing
            return self.app.screen is not self.picker or (listing is not None and listing.folder == self.picker._folder)

        await until(self.pilot, is_read)
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settled()

    @property
    def names(self) -> list[str]:
        return [entry.name for entry in self.picker.shown]

    @property
    def here(self) -> str:
        assert self.picker.place is not None
        return self.names[self.picker.place]

    @property
    def said(self) -> str:
        return str(self.picker.query_one(".problem", Static).render())


def test_folders_first_then_the_files_that_can_be_read(world: Path):
    listing = read_folder(world, KINDS)
    names = [entry.name for entry in matching_entries(listing.entries, "")]
    assert names == ["sub", "A.PARQUET", "b.jsonl", "c.csv.gz", "notes.md"]
    assert listing.wanted == 4
    assert [entry.name for entry in matching_entries(listing.entries, ".h")] == [".hidden.csv"]
    assert next(entry.name for entry in matching_entries(listing.entries, "s")) == "sub", "what begins so is first"
    # A link that goes in circles and one that leads nowhere are entries.
    (world / "round").symlink_to("round")
    (world / "lost.csv").symlink_to("nowhere")
    sizes = {entry.name: entry.bytes for entry in read_folder(world, KINDS).entries}
    assert sizes["b.jsonl"] == 2048 and "round" in sizes and sizes["lost.csv"] is None
    assert "Not a directory" in read_folder(world / "b.jsonl", KINDS).problem


def test_names_that_no_config_could_hold_are_refused():
    assert unusable_name("rows.csv") == unusable_name("数据 1.csv") == ""
    assert "UTF-8" in unusable_name(os.fsdecode(b"\xff.csv"))
    assert all("Rename it first" in unusable_name(name) for name in ("a\n.csv", " a.csv", "a\x1b.csv"))


@each(
    ("text", "folder", "rest"),
    [("ro", "/w", "ro"), ("sub/", "/w/sub", ""), ("sub/ro", "/w/sub", "ro"), ("../x", "/", "x"), ("/etc/ho", "/etc", "ho"),
     ("/", "/", ""), ("a\0b", "/w", "ab"), ("  ro ", "/w", "ro"), ("~/da", "/home/someone", "da"), ("~", "/home/someone", "")],
)  # fmt: skip
def test_a_typed_path_is_a_folder_and_the_beginning_of_a_name(text, folder, rest, monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    assert typed_parts(text, Path("/w")) == (Path(folder), rest)


def test_it_opens_where_the_present_value_lies(world: Path):
    assert first_folder("sub/rows.tsv", world) == (world / "sub", "rows.tsv")
    assert first_folder("sub", world) == (world / "sub", "")
    for odd in ("", "sample-proteins", "a\0b", "x" * 5000, "OWNER/NAME"):
        assert first_folder(odd, world) == (world, "")


def test_a_path_is_written_from_the_working_folder(world: Path):
    assert path_text(world / "sub" / "rows.tsv", world) == "sub/rows.tsv"
    assert path_text(world / "sub", world) == "./sub", "not the name of a sample, and no hub id"
    assert path_text(Path("/elsewhere/a.csv"), world) == "/elsewhere/a.csv"


async def test_a_folder_is_entered_left_and_taken_and_a_path_is_typed_or_pasted(world: Path):
    async with running(TrainwizApp(Screen, ascii_only=False), (80, 24)) as pilot:
        shown = Picked(pilot)
        await shown.show()
        assert shown.names == [".", "..", "sub", "A.PARQUET", "b.jsonl", "c.csv.gz", "notes.md"]
        assert shown.here == "A.PARQUET"
        await shown.press("up", "enter")
        assert shown.names == [".", "..", "deeper", "rows.tsv"] and shown.here == "rows.tsv"
        await shown.press("backspace")
        assert shown.here == "sub", "on the folder that was left"
        await shown.press("tab")
        await shown.press("up", "up", "up", "enter")
        assert shown.answer == "./sub"
        await shown.show()
        await shown.press(*"sub/ro")
        assert shown.names == ["rows.tsv"]
        await shown.press(*["backspace"] * 3)
        assert shown.names == ["sub"]
        await shown.press(*"/rows.tsv")
        await shown.press("enter")
        assert shown.answer == "sub/rows.tsv"
        # Enter right after a pasted path waits for its folder.
        await shown.show()
        shown.app.screen.focused.post_message(events.Paste(str(world / "sub" / "rows.tsv")))
        await pilot.press("enter")
        await until(pilot, lambda: shown.answer != "none yet")
        assert shown.answer == "sub/rows.tsv"


async def test_what_is_not_there_or_vanishes_is_a_sentence(world: Path):
    async with running(TrainwizApp(Screen, ascii_only=False), (80, 24)) as pilot:
        shown = Picked(pilot)
        await shown.show()
        await shown.press(*"zzz")
        assert shown.said == "No matches. Press backspace to show all."
        await shown.press("enter")
        assert shown.said == "zzz does not exist."
        await shown.press("slash")
        assert f"Can't read {world / 'zzz'}: No such file or directory." in shown.said
        await pilot.press("escape")
        await pilot.pause()
        assert shown.answer is None
        await shown.show()
        shutil.rmtree(world / "sub")
        (world / "b.jsonl").unlink()
        await shown.press("down", "enter")
        assert (shown.answer, shown.said) == ("none yet", "b.jsonl no longer exists; the folder was read again.")
        assert "b.jsonl" not in shown.names and "sub" not in shown.names
        for name in (
            "z\x1b[31m[bold].csv",
            "zz很长的名字" * 9 + ".csv",
            *(f"file{number:03}.csv" for number in range(200)),
        ):
            (world / name).write_text("x")
        await pilot.press("escape")
        await pilot.pause()
        await shown.show()
        for size in ((40, 10), (60, 20), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.press("pagedown", "pagedown", "down")
            await pilot.pause()
            assert f"▸ {shown.here}" in text_of(shown.app), size
        await shown.press("z")
        text = text_of(shown.app)
        assert "z[bold].csv" in text and "\x1b" not in text and "zz很长的名字" in text
        lines = [shown.picker.line(place, "▸", width) for place in (0, 1) for width in (12, 80)]
        assert [line.cell_length for line in lines] == [12, 80] * 2
        await pilot.press("enter")
        assert "Rename it first" in shown.said and shown.answer == "none yet"
