"""The bars of lengths, and what the words beneath say of the chosen one."""

from __future__ import annotations

from itertools import pairwise

from trainwiz.core.config.request import PlanRequest
from trainwiz.core.data.summary import DataSummary
from trainwiz.tui.screens.plan_state import PlanState, Reading
from trainwiz.tui.theme import UNICODE_MARKS
from trainwiz.tui.widgets.plan_charts import axis_text, bar_rows, count_bars, input_lengths, target_lengths

from tests.each import each
from tests.tui.wizard_parts import make_frozen_plan


def state_of(
    lengths: tuple[int, ...], *, targets: tuple[int, ...] = (), unit: str = "tokens", **values: object
) -> PlanState:
    request = PlanRequest(overrides={key.replace("__", "."): value for key, value in values.items()})
    data = DataSummary(len(lengths), True, lengths, unit, targets)
    return PlanState(request, reading=Reading(data=data, plan=make_frozen_plan(request)))


def words(state: PlanState, width: int = 100) -> str:
    return " ".join(line.plain.strip() for line in input_lengths(state, width, UNICODE_MARKS, False))


@each("columns", [12, 72])
@each("lengths", [(1,), (5, 5, 5), tuple(range(1, 2000)), (3,) * 99 + (1_000_000,)])
@each("limit", [1, 512, 100_000])
def test_every_row_is_in_a_bar_and_every_line_has_the_width(columns, lengths, limit):
    bars = count_bars(lengths, limit, columns)
    assert sum(bars.counts) == len(lengths)
    assert 0 <= bars.limit_column <= columns
    rows = bar_rows(bars, 4)
    assert [len(row) for row in rows] == [columns] * 4
    assert all((rows[-1][place] != " ") == bool(count) for place, count in enumerate(bars.counts))
    assert len(axis_text(bars, limit)) <= columns


def test_the_highest_bar_is_full_and_half_as_many_rows_are_half_as_high():
    bars = count_bars((10,) * 100 + (30,) * 50, 35, 40)
    rows = bar_rows(bars, 4)
    high, half = (int(length / bars.span) for length in (10, 30))
    assert [row[high] for row in rows] == ["█"] * 4
    assert [row[half] for row in rows] == [" ", " ", "█", "█"]


@each("longest", [20, 35, 71, 90, 108, 143, 500])
def test_as_many_rows_of_every_length_are_a_level_line(longest):
    """No spikes where a column holds one length more than its neighbours, no gaps where the columns are many."""
    rows = bar_rows(count_bars(tuple(range(1, longest + 1)), longest, 72), 4)
    drawn = [place for place, cell in enumerate(rows[-1]) if cell != " "][:-2]
    steps = {after - before for before, after in pairwise(drawn)}
    assert len(steps) == 1
    assert all(rows[0][place] in "▇█" for place in drawn[1:])


def test_a_long_tail_is_in_the_last_bar():
    bars = count_bars(tuple(sorted((50,) * 1000 + (90_000,))), 64, 40)
    assert bars.has_longer and bars.counts[-1] == 1 and bars.top < 1000
    assert axis_text(count_bars((50,) * 1000 + (90_000,), 20, 40), 20).endswith("+")
    bars = count_bars((3,) * 999 + (1000,), 512, 40)
    assert bars.limit_column == 40 and axis_text(bars, 512).endswith("max 512 →"), "no mark among the rows"


def test_the_column_of_the_limit_is_the_one_that_holds_it():
    for limit, columns in ((50, 100), (100, 72), (300, 40)):
        bars = count_bars(tuple(range(1, 1000)), limit, columns)
        assert bars.limit_column * bars.span <= limit < (bars.limit_column + 1) * bars.span
        assert axis_text(bars, limit).index("▲") == bars.limit_column


def test_the_words_are_the_share_of_the_rows():
    text = words(state_of((100,) * 90 + (1000,) * 10, batch__sequence_length=500))
    assert "10% of the rows exceed 500 tokens and are truncated; 26% of all tokens are dropped." in text
    assert "Median 100 tokens per row, 95% of the rows up to 1,000, the longest 1,000." in text
    assert "22% of the processed tokens are padding; 4% if rows of similar length are grouped." in text


def test_targets_are_cut_at_their_own_length():
    state = state_of((10,) * 4, targets=(5, 5, 5, 50), task="seq2seq", batch__target_length=20)
    text = " ".join(line.plain.strip() for line in target_lengths(state, 100, UNICODE_MARKS, False))
    assert "25% of the rows exceed 20 tokens" in text
    assert not list(target_lengths(state_of((10,)), 100, UNICODE_MARKS, False))


@each("width", [8, 14, 30, 60, 200])
def test_no_line_is_wider_than_its_room(width):
    state = state_of((3,) * 99 + (100_000,))
    for line in input_lengths(state, width, UNICODE_MARKS, False):
        assert line.cell_length <= max(width, 15)
