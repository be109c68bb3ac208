"""The first rows: what is shown of wide, long and hostile ones, and columns that are chosen in place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.cells import cell_len
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.data.reader import Column
from trainwiz.core.data.summary import Glance
from trainwiz.tui.screens.plan_offers import column_offers, with_target, with_text
from trainwiz.tui.theme import UNICODE_MARKS
from trainwiz.tui.widgets import data_table
from trainwiz.tui.widgets.data_table import DataTable, cell_text, shown_columns, table_lines

from tests.each import each
from tests.tui.wizard_parts import frozen_app, settled

TEXT, TARGET = "data.sources.0.text_column", "data.sources.0.target_column"
HOSTILE = "a\x1b[31mb\x1b]0;title\x07[bold]\u202e\nc"


def table(*columns: str, rows: int = 2, **more: object) -> Glance:
    values = tuple(tuple(f"{name} {number}" for name in columns) for number in range(rows))
    return Glance(Path("a.jsonl"), 1, tuple(map(Column, columns)), values, **more)


def drawn(glance: Glance, width: int = 60, cursor: int | None = None) -> list[str]:
    return [line.plain for line in table_lines(glance, cursor, 5, width, UNICODE_MARKS)]


def test_what_is_learnt_from_is_said_in_words_and_hostile_cells_are_text():
    lines = drawn(table("q", "a", "note", text=1, target=0, has_target=True))
    assert "First rows of a.jsonl" in lines[1]
    assert lines[2].split() == ["q", "a", "note"]
    assert lines[3].split() == ["✓", "target", "✓", "text"]
    assert lines[4].split() == ["q", "0", "a", "0", "note", "0"]
    assert [cell_text(cell) for cell in (None, "", " \n", "none")] == ["(no value)", "(empty)", "(empty)", "none"]
    glance = Glance(Path(HOSTILE), 1, (Column(HOSTILE), Column("", False, HOSTILE)), ((HOSTILE, HOSTILE),), text=0)
    assert all(line.isprintable() and "\u202e" not in line for line in drawn(glance))
    assert "ab[bold] c" in drawn(glance)[4], "markup stays as it was written"


@each("width", [10, 47, 120])
@each("columns", [1, 3, 300])
def test_no_line_is_wider_than_its_room(width, columns):
    glance = Glance(
        Path("数据.jsonl"),
        2,
        tuple(Column(f"列{number}") for number in range(columns)),
        (("文" * 500,) * columns,),
        text=0,
    )
    for cursor in (None, columns - 1):
        for line in drawn(glance, width, cursor)[2:5]:
            assert cell_len(line) <= width + 2


def test_a_wide_file_shows_what_matters_and_counts_the_rest():
    glance = table(*(f"column{number}" for number in range(300)), text=250, target=120, has_target=True)
    shown = [place for place, _ in shown_columns(glance, 7, 5, 60)]
    assert {7, 120, 250} <= set(shown) and shown == sorted(shown)
    assert drawn(glance, 60, 7)[-1].strip() == f"{300 - len(shown)} more columns"


def test_ten_thousand_columns_are_as_quick_as_ten(monkeypatch):
    """By how many cells a drawing looks at: a count does not depend on the machine."""
    seen = []
    monkeypatch.setattr(data_table, "cell_text", lambda cell: seen.append(cell) or cell_text(cell))
    shown_columns(table(*(f"column{number}" for number in range(10_000)), text=9_999), None, 5, 60)
    assert 0 < len(seen) < 2_000


def test_text_and_target_are_chosen_and_change_places():
    none = PlanRequest()
    assert with_text(table("q", "q", "a", text=2), 1, none).overrides == {TEXT: "1"}, "as it can be found again"
    glance = table("q", "a", "z", text=0, target=1, has_target=True)
    assert with_text(glance, 1, none).overrides == {TEXT: "a", TARGET: "q"}
    assert with_target(glance, 0, none).overrides == {TARGET: "q", TEXT: "a"}
    # The other column of a pair stays what it was.
    assert with_text(glance, 2, none).overrides == {TEXT: "z", TARGET: "a"}
    assert with_target(glance, 2, none).overrides == {TARGET: "z", TEXT: "q"}
    # A target is taken back by choosing it again, and the other choices stay.
    first = with_target(replace(glance, target=None, has_target=False), 1, PlanRequest(profile="p", overrides={"a": 3}))
    assert first == PlanRequest(profile="p", overrides={"a": 3, TARGET: "a", TEXT: "q"})
    assert with_target(glance, 1, first).overrides == {"a": 3, TEXT: "q"}


def test_the_list_of_columns_has_their_first_cells():
    glance = Glance(Path("a"), 1, (Column("q"), Column("n", False, "a number"), Column("a")), (("x", "1", ""),))
    assert [(offer.value, offer.note) for offer in column_offers(glance)] == [("q", "x"), ("a", "empty")]
    assert column_offers(None) == ()


async def test_columns_are_chosen_by_keys_and_by_the_mouse():
    app = frozen_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("enter", "enter")
        await settled(pilot)
        found = pilot.app.screen.query_one(DataTable)
        found.focus()
        await settled(pilot)
        before = app.screen.state.request
        await pilot.press("left", "space")
        await settled(pilot)
        assert app.screen.state.request is before, "a column without text cannot be learnt from"
        await pilot.press("t")
        assert app.screen.state.request is before, "a masked model has no targets"
        await pilot.press("right", "right", "space")
        await settled(pilot)
        chosen_by_key = app.screen.state.request.overrides[TEXT]
        column = str(found._lines(found.content_size.width)[2].plain).index("id")
        await pilot.click(found, offset=(column, 2))
        assert found.cursor == 1
        await pilot.click(found, offset=(column, 2), times=2)
        await settled(pilot)
        assert chosen_by_key == app.screen.state.request.overrides[TEXT] == "id"
