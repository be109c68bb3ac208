"""The charts of the plan: the curve of the learning rate, and the bars of lengths with what the words say of them."""

from __future__ import annotations

from itertools import pairwise

from trainwiz.core.config import RunConfig
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.export.training_arguments import RateSchedule, rate_schedule
from trainwiz.tui.screens.plan_state import PlanState, Reading
from trainwiz.tui.widgets.canvas import ASCII, BLOCK, BRAILLE
from trainwiz.tui.widgets.plan_charts import (
    axis_text,
    bar_rows,
    count_bars,
    input_lengths,
    rate_curve,
    rate_picture,
    target_lengths,
)

from tests.each import each
from tests.tui.wizard_parts import make_frozen_plan, plain


def schedule(steps: int = 1000, **values: object) -> RateSchedule:
    keys = {f"training.{key}": value for key, value in values.items()}
    config = RunConfig().with_values({"training.max_steps": steps, "training.learning_rate": 4e-4, **keys}, "you")
    return rate_schedule(config, steps)


def text(rows: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(part for part, _ in row) for row in rows]


def test_warm_up_peak_and_end_stand_at_their_places():
    lines = text(rate_picture(schedule(warmup=0.5, schedule="linear"), 46, 7, ASCII))
    assert all(len(line) == 46 for line in lines)
    assert lines[0].startswith("4.0e-4 ") and lines[5].startswith("     0 ")
    top = lines[0][7:]
    assert abs(top.index("*") + top.rindex("*") - 38) <= 4, "the peak is in the middle"
    assert lines[5][7] == "*" and lines[5][-1] == "*", "it begins and ends at the bottom"
    assert lines[6].split() == ["0", "500", "1,000"]


@each(("steps", "warmup"), [(1, 0), (2, 5), (10**12, 10**13), (10**12, 0.02)])
@each("kind", ["cosine", "constant"])
@each("glyphs", [BRAILLE, BLOCK, ASCII])
def test_no_schedule_is_too_short_or_too_long(steps, warmup, kind, glyphs):
    values = schedule(steps, warmup=warmup, schedule=kind, final_learning_rate=1e-5)
    for width in (24, 40, 120):
        assert [len(line) for line in text(rate_picture(values, width, 6, glyphs))] == [width] * 6


def test_the_words_and_the_curve_are_the_plan_s():
    def drawn(small: bool = False, **values: object) -> str:
        request = PlanRequest(overrides={f"training.{key}": value for key, value in values.items()})
        state = PlanState(request, reading=Reading(plan=make_frozen_plan(request)))
        return plain(rate_curve(state, 80, small))

    assert "Linear decay from 4e-4 to 0 at step 500,000." in drawn(warmup=0)
    assert "Cosine decay from 4e-4 to 0 at step 500,000." in drawn(warmup=0, schedule="cosine")
    large, small = drawn(schedule="cosine", warmup=2000), drawn(True, schedule="cosine", warmup=2000)
    assert "Warmup to 4e-4 over 2,000 steps, then cosine" in large and "⠉" in large
    assert " ".join(large.split()).startswith(" ".join(small.split())) and "⠉" not in small


def state_of(
    lengths: tuple[int, ...], *, targets: tuple[int, ...] = (), unit: str = "tokens", **values: object
) -> PlanState:
    request = PlanRequest(overrides={key.replace("__", "."): value for key, value in values.items()})
    data = DataSummary(len(lengths), True, lengths, unit, targets)
    return PlanState(request, reading=Reading(data=data, plan=make_frozen_plan(request)))


def words(state: PlanState, width: int = 100) -> str:
    return " ".join(line.plain.strip() for line in input_lengths(state, width, False))


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
    if bars.limit_column < columns and limit < 10**5 and len(lengths) > 3:
        assert bars.limit_column * bars.span <= limit < (bars.limit_column + 1) * bars.span
        assert axis_text(bars, limit).index("▲") == bars.limit_column


def test_the_highest_bar_is_full_and_half_as_many_rows_are_half_as_high():
    bars = count_bars((10,) * 100 + (30,) * 50, 35, 40)
    rows = bar_rows(bars, 4)
    high, half = (int(length / bars.span) for length in (10, 30))
    assert [row[high] for row in rows] == ["█"] * 4
    assert [row[half] for row in rows] == [" ", " ", "█", "█"]


@each("longest", [20, 71, 90, 143, 500])
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


def test_the_words_are_the_share_of_the_rows():
    text = words(state_of((100,) * 90 + (1000,) * 10, batch__sequence_length=500))
    assert "10% of the rows exceed 500 tokens and are truncated; 26% of all tokens are dropped." in text
    assert "Median 100 tokens per row, 95% of the rows up to 1,000, the longest 1,000." in text
    assert "22% of the processed tokens are padding." in text


def test_targets_are_cut_at_their_own_length():
    state = state_of((10,) * 4, targets=(5, 5, 5, 50), task="seq2seq", batch__target_length=20)
    text = " ".join(line.plain.strip() for line in target_lengths(state, 100, False))
    assert "25% of the rows exceed 20 tokens" in text
    assert not list(target_lengths(state_of((10,)), 100, False))


@each("width", [8, 14, 30, 60, 200])
def test_no_line_is_wider_than_its_room(width):
    state = state_of((3,) * 99 + (100_000,))
    for line in input_lengths(state, width, False):
        assert line.cell_length <= max(width, 15)
