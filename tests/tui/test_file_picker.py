"""The file picker: what it lists, where typing leads, and what it says of folders that cannot be read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from textual import events
from textual.screen import Screen
from textual.widgets import Static
from trainwiz.core.data.formats import file_endings
from trainwiz.tui.app import TrainwizApp
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
from tests.tui.wizard_keys import shown as text_of
from tests.tui.wizard_keys import until

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


class _Blank(Screen[None]):
    def compose(self):
        yield Static("")


class Picked:
    """A picker on the screen, and what it answered."""

    def __init__(self, picker: FilePicker) -> None:
        self.app = TrainwizApp(_Blank, ascii_only=False)
        self.picker = picker
        self.answer: object = "none yet"

    async def show(self, pilot) -> None:
        self.app.push_screen(self.picker, lambda answer: setattr(self, "answer", answer))
        await self.settled(pilot)

    async def settled(self, pilot) -> None:
        def is_read() -> bool:
            listing = self.picker.listing
            return self.app.screen is not self.picker or (listing is not None and listing.folder == self.picker._folder)

        await until(pilot, is_read)
        await pilot.pause()

    async def type(self, pilot, text: str) -> None:
        for letter in text:
            await pilot.press("slash" if letter == "/" else "full_stop" if letter == "." else letter)
        await self.settled(pilot)

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


def picked(start: str = "") -> Picked:
    return Picked(FilePicker("Data", start, KINDS))


def test_folders_first_then_the_files_that_can_be_read(world: Path):
    listing = read_folder(world, KINDS)
    names = [entry.name for entry in matching_entries(listing.entries, "")]
    assert names == ["sub", "A.PARQUET", "b.jsonl", "c.csv.gz", "notes.md"]
    assert listing.wanted == 4
    assert [entry.name for entry in matching_entries(listing.entries, ".h")] == [".hidden.csv"]
    assert next(entry.name for entry in matching_entries(listing.entries, "s")) == "sub", "what begins so is first"
    assert {entry.name: entry.bytes for entry in listing.entries}["b.jsonl"] == 2048


def test_a_folder_that_cannot_be_read_is_a_sentence(world: Path, monkeypatch: pytest.MonkeyPatch):
    assert read_folder(world / "gone", KINDS).problem == f"Can't read {world / 'gone'}: No such file or directory."
    assert "Not a directory" in read_folder(world / "b.jsonl", KINDS).problem

    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refused)
    assert read_folder(world, KINDS).problem == f"Can't read {world}: Permission denied."


def test_a_link_that_goes_in_circles_and_one_that_leads_nowhere_are_entries(world: Path):
    (world / "round").symlink_to("round")
    (world / "lost.csv").symlink_to("nowhere")
    listing = read_folder(world, KINDS)
    sizes = {entry.name: entry.bytes for entry in listing.entries}
    assert "round" in sizes and sizes["lost.csv"] is None


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


async def test_a_folder_is_entered_left_and_taken(world: Path):
    shown = picked()
    async with shown.app.run_test(size=(80, 24)) as pilot:
        await shown.show(pilot)
        assert shown.names == [".", "..", "sub", "A.PARQUET", "b.jsonl", "c.csv.gz", "notes.md"]
        assert shown.here == "A.PARQUET"
        await pilot.press("up", "enter")
        await shown.settled(pilot)
        assert shown.names == [".", "..", "deeper", "rows.tsv"] and shown.here == "rows.tsv"
        await pilot.press("backspace")
        await shown.settled(pilot)
        assert shown.here == "sub", "on the folder that was left"
        await pilot.press("tab")
        await shown.settled(pilot)
        await pilot.press("up", "up", "up", "enter")
        await shown.settled(pilot)
    assert shown.answer == "./sub"


async def test_a_typed_path_goes_there_and_back(world: Path):
    shown = picked()
    async with shown.app.run_test(size=(80, 24)) as pilot:
        await shown.show(pilot)
        await shown.type(pilot, "sub/ro")
        assert shown.names == ["rows.tsv"]
        await pilot.press(*["backspace"] * 3)
        await shown.settled(pilot)
        assert shown.names == ["sub"]
        await shown.type(pilot, "/rows.tsv")
        await pilot.press("enter")
        await shown.settled(pilot)
    assert shown.answer == "sub/rows.tsv"


async def test_enter_right_after_a_pasted_path_waits_for_its_folder(world: Path):
    shown = picked()
    async with shown.app.run_test(size=(80, 24)) as pilot:
        await shown.show(pilot)
        shown.app.screen.focused.post_message(events.Paste(str(world / "sub" / "rows.tsv")))
        await pilot.press("enter")
        await until(pilot, lambda: shown.answer != "none yet")
    assert shown.answer == "sub/rows.tsv"


async def test_what_is_not_there_is_a_sentence_and_escape_changes_nothing(world: Path):
    shown = picked()
    async with shown.app.run_test(size=(80, 24)) as pilot:
        await shown.show(pilot)
        await shown.type(pilot, "zzz")
        assert shown.said == "No matches. Press backspace to show all."
        await pilot.press("enter")
        assert shown.said == "zzz does not exist."
        await shown.type(pilot, "/")
        assert f"Can't read {world / 'zzz'}: No such file or directory." in shown.said
        await pilot.press("escape")
        await pilot.pause()
    assert shown.answer is None


async def test_a_folder_and_a_file_that_vanish_are_sentences(world: Path):
    shown = picked()
    async with shown.app.run_test(size=(80, 24)) as pilot:
        await shown.show(pilot)
        shutil.rmtree(world / "sub")
        (world / "b.jsonl").unlink()
        await pilot.press("down", "enter")
        await shown.settled(pilot)
        assert (shown.answer, shown.said) == ("none yet", "b.jsonl no longer exists; the folder was read again.")
        assert "b.jsonl" not in shown.names and "sub" not in shown.names
        (world / "later").mkdir()
        await shown.type(pilot, "later/")
        (world / "later").rmdir()
        await pilot.press("enter")
        await shown.settled(pilot)
        assert f"Can't read {world / 'later'}: No such file or directory." in shown.said
        assert shown.answer == "none yet"


async def test_a_name_with_escape_codes_is_text_and_is_not_taken(world: Path):
    for name in ("z\x1b[31m[bold].csv", "zz很长的名字" * 9 + ".csv"):
        (world / name).write_text("x")
    shown = picked()
    async with shown.app.run_test(size=(80, 24)) as pilot:
        await shown.show(pilot)
        await shown.type(pilot, "z")
        text = text_of(shown.app)
        assert "z[bold].csv" in text and "\x1b" not in text and "zz很长的名字" in text
        lines = [shown.picker.line(place, "▸", width) for place in (0, 1) for width in (12, 80)]
        assert [line.cell_length for line in lines] == [12, 80] * 2
        await pilot.press("enter")
        assert "Rename it first" in shown.said
    assert shown.answer == "none yet"


async def test_the_entry_under_the_cursor_is_on_the_screen_at_every_size(world: Path):
    for number in range(200):
        (world / f"file{number:03}.csv").write_text("")
    shown = picked()
    async with shown.app.run_test(size=(80, 24)) as pilot:
        await shown.show(pilot)
        for size in ((40, 10), (60, 20), (200, 60)):
            await pilot.resize_terminal(*size)
            await pilot.press("pagedown", "pagedown", "down")
            await pilot.pause()
            assert f"▸ {shown.here}" in text_of(shown.app), size
