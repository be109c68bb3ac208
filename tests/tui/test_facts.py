"""What follows from a learning rate and from a length, in words and as a line of blocks; the table of the first rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from rich.cells import cell_len
from textual.content import Content
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.data.reader import Column
from trainwiz.core.data.summary import DataSummary, Glance
from trainwiz.core.export.training_arguments import RateSchedule
from trainwiz.tui.screens.plan_state import PlanState, Reading
from trainwiz.tui.screens.plan_views import column_offers
from trainwiz.tui.widgets import facts
from trainwiz.tui.widgets.facts import (
    cell_text,
    length_line,
    lengths,
    rate_curve,
    rate_facts,
    shown_columns,
    table_lines,
)

from tests.each import each
from tests.tui.wizard_parts import make_frozen_plan


def said(draw: Callable[[PlanState, int, bool], Iterable[Content]], *lengths: int, width: int = 100, **values: object):
    """What a part says where rows have these lengths, and as targets `targets`."""
    targets = values.pop("targets", ())
    assert isinstance(targets, tuple)
    request = PlanRequest(overrides={key.replace("__", "."): value for key, value in values.items()})
    data = DataSummary(len(lengths), True, lengths, "tokens", targets)
    lines = list(draw(PlanState(request, reading=Reading(data=data, plan=make_frozen_plan(request))), width, False))
    assert all(line.cell_length <= max(width, 15) for line in lines)
    return " ".join(line.plain.strip() for line in lines)


def test_the_words_of_the_rate_are_the_plan_s():
    assert "linear: 0 warmup steps, at most 4e-4, 0 at step 500,000." in said(rate_facts, 10, training__warmup=0)
    text = said(rate_facts, 10, training__warmup=2000, training__schedule="cosine")
    assert "cosine: 2,000 warmup steps, at most 4e-4, 0 at step 500,000." in text


def test_the_words_are_the_share_of_the_rows():
    text = said(lengths, *(100,) * 90, *(1000,) * 10, batch__sequence_length=500)
    assert "10% of the rows exceed 500 tokens and are truncated; 26% of all tokens are dropped." in text
    assert "Median 100 tokens per row, 95% of the rows up to 1,000, the longest 1,000." in text
    assert "22% of the processed tokens are padding." in text
    assert said(lengths, *(3,) * 99, 100_000, width=30)


def test_targets_are_cut_at_their_own_length():
    values = {"targets": (5, 5, 5, 50), "task": "seq2seq", "batch__target_length": 20}
    assert "Targets: " in said(lengths, *(10,) * 4, **values) and "25% of the rows exceed 20" in said(
        lengths, 10, **values
    )
    assert "Targets" not in said(lengths, 10)


def test_the_curve_does_what_the_schedule_does():
    linear, constant = (RateSchedule(kind, 1000, 500, 1.0, last) for kind, last in (("linear", 0), ("constant", 1)))
    assert rate_curve(linear, 8) == "▁▃▆██▆▃▁" and rate_curve(constant, 3) == "███"
    assert [len(rate_curve(RateSchedule("cosine", steps, 5, 1.0, 0), 8)) for steps in (1, 2, 10**12)] == [2, 2, 8]


@each(
    ("lengths", "limit", "line"),
    [
        ((10,) * 100 + (30,) * 50, 20, "    0     █     │20│    ▃ 30"),
        (tuple(range(1, 2001)), 2000, "    0 ███████████████ 2,000"),
        ((3,) * 99 + (100_000,), 512, "    0    █│512│▁ 100,000"),
        ((0, 0), 5, "    0 █ 0"),
    ],
)
def test_the_bars_show_what_the_length_cuts(lengths, limit, line):
    assert [shown.plain for shown in length_line(lengths, limit, 30)] == [line]
    assert not length_line(lengths, limit, 12)


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
    names = tuple(Column(f"列{number}") for number in range(columns))
    glance = Glance(Path("数据.jsonl"), 2, names, (("文" * 500,) * columns,), text=0)
    for line in drawn(glance, width)[2:5]:
        assert cell_len(line) <= width + 2


def test_a_wide_file_shows_what_matters_and_counts_the_rest():
    glance = table(*(f"column{number}" for number in range(300)), text=250, target=120, has_target=True)
    shown = [place for place, _ in shown_columns(glance, 5, 58)]
    assert {120, 250} <= set(shown) and shown == sorted(shown)
    assert drawn(glance, 60)[-1].strip() == f"{300 - len(shown)} more columns"


def test_ten_thousand_columns_are_as_quick_as_ten(monkeypatch):
    """By how many cells are looked at: a count does not depend on the machine."""
    seen = []
    monkeypatch.setattr(facts, "cell_text", lambda cell: seen.append(cell) or cell_text(cell))
    shown_columns(table(*(f"column{number}" for number in range(10_000)), text=9_999), 5, 60)
    assert 0 < len(seen) < 2_000


def test_the_list_of_columns_has_those_with_text():
    glance = Glance(Path("a"), 1, (Column("q"), Column("n", False, "a number"), Column("a")), (("x", "1", ""),))
    assert [offer.value for offer in column_offers(glance)] == ["q", "a"]
    assert column_offers(None) == ()
