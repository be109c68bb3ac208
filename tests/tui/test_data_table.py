"""The first rows: what is shown of wide, long and hostile ones; the list of columns."""

from __future__ import annotations

from pathlib import Path

from rich.cells import cell_len
from trainwiz.core.data.reader import Column
from trainwiz.core.data.summary import Glance
from trainwiz.tui.screens.plan_offers import column_offers
from trainwiz.tui.widgets import data_table
from trainwiz.tui.widgets.data_table import cell_text, shown_columns, table_lines

from tests.each import each

HOSTILE = "a\x1b[31mb\x1b]0;title\x07[bold]\u202e\nc"


def table(*columns: str, rows: int = 2, **more: object) -> Glance:
    values = tuple(tuple(f"{name} {number}" for name in columns) for number in range(rows))
    return Glance(Path("a.jsonl"), 1, tuple(map(Column, columns)), values, **more)


def drawn(glance: Glance, width: int = 60) -> list[str]:
    return [line.plain for line in table_lines(glance, 5, width)]


def test_what_is_learnt_from_is_said_in_words():
    lines = drawn(table("q", "a", "note", text=1, target=0, has_target=True))
    assert "First rows of a.jsonl" in lines[1]
    assert lines[2].split() == ["q", "a", "note"]
    assert lines[3].split() == ["✓", "target", "✓", "text"]
    assert lines[4].split() == ["q", "0", "a", "0", "note", "0"]


def test_what_is_not_there_and_what_is_empty_are_told_apart_and_hostile_cells_are_text():
    assert [cell_text(cell) for cell in (None, "", " \n", "none")] == ["(no value)", "(empty)", "(empty)", "none"]
    glance = Glance(Path(HOSTILE), 1, (Column(HOSTILE), Column("", False, HOSTILE)), ((HOSTILE, HOSTILE),), text=0)
    for line in drawn(glance):
        assert line.isprintable() and "\u202e" not in line
    assert "ab[bold] c" in drawn(glance)[4], "markup stays as it was written"


@each("width", [10, 20, 47, 62, 120])
@each("columns", [1, 3, 300])
def test_no_line_is_wider_than_its_room(width, columns):
    glance = Glance(
        Path("数据.jsonl"),
        2,
        tuple(Column(f"列{number}") for number in range(columns)),
        (("文" * 500,) * columns,),
        text=0,
    )
    for line in drawn(glance, width)[2:5]:
        assert cell_len(line) <= width + 2


def test_a_wide_file_shows_what_matters_and_counts_the_rest():
    glance = table(*(f"column{number}" for number in range(300)), text=250, target=120, has_target=True)
    shown = [place for place, _ in shown_columns(glance, 5, 60)]
    assert {120, 250} <= set(shown) and shown == sorted(shown)
    assert drawn(glance, 60)[-1].strip() == f"{300 - len(shown)} more columns"


def test_ten_thousand_columns_are_as_quick_as_ten(monkeypatch):
    """By how many cells are looked at: a count does not depend on the machine."""
    seen = []
    monkeypatch.setattr(data_table, "cell_text", lambda cell: seen.append(cell) or cell_text(cell))
    shown_columns(table(*(f"column{number}" for number in range(10_000)), text=9_999), 5, 60)
    assert 0 < len(seen) < 2_000


def test_the_list_of_columns_has_their_first_cells():
    glance = Glance(Path("a"), 1, (Column("q"), Column("n", False, "a number"), Column("a")), (("x", "1", ""),))
    assert [(offer.value, offer.note) for offer in column_offers(glance)] == [("q", "x"), ("a", "empty")]
    assert column_offers(None) == ()
