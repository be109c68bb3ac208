"""What follows from a learning rate and from a length, in words and as a line of blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from textual.content import Content
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.data.summary import DataSummary
from trainwiz.core.export.training_arguments import RateSchedule
from trainwiz.tui.screens.plan_state import PlanState, Reading
from trainwiz.tui.widgets.facts import input_lengths, length_line, rate_curve, rate_facts, target_lengths

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


@each(
    ("values", "words"),
    [
        ({"warmup": 0}, "Linear decay from 4e-4 to 0 at step 500,000."),
        ({"warmup": 0, "schedule": "cosine"}, "Cosine decay from 4e-4 to 0 at step 500,000."),
        ({"warmup": 2000, "schedule": "cosine"}, "Warmup to 4e-4 over 2,000 steps, then cosine decay to 0"),
    ],
)
def test_the_words_of_the_rate_are_the_plan_s(values, words):
    assert words in said(rate_facts, 10, **{f"training__{key}": value for key, value in values.items()})


def test_the_words_are_the_share_of_the_rows():
    text = said(input_lengths, *(100,) * 90, *(1000,) * 10, batch__sequence_length=500)
    assert "10% of the rows exceed 500 tokens and are truncated; 26% of all tokens are dropped." in text
    assert "Median 100 tokens per row, 95% of the rows up to 1,000, the longest 1,000." in text
    assert "22% of the processed tokens are padding." in text
    assert said(input_lengths, *(3,) * 99, 100_000, width=30)


def test_targets_are_cut_at_their_own_length():
    values = {"targets": (5, 5, 5, 50), "task": "seq2seq", "batch__target_length": 20}
    assert "25% of the rows exceed 20 tokens" in said(target_lengths, *(10,) * 4, **values)
    assert not said(target_lengths, 10)


def test_the_curve_does_what_the_schedule_does():
    linear, constant = (RateSchedule(kind, 1000, 500, 1.0, last) for kind, last in (("linear", 0), ("constant", 1)))
    assert rate_curve(linear, 8) == "▁▃▆██▆▃▁" and rate_curve(constant, 3) == "███"
    assert [len(rate_curve(RateSchedule("cosine", steps, 5, 1.0, 0), 8)) for steps in (1, 2, 10**12)] == [2, 2, 8]


@each(
    ("lengths", "limit", "line"),
    [
        ((10,) * 100 + (30,) * 50, 20, "    0     █     │20│    ▅ 30"),
        (tuple(range(1, 2001)), 2000, "    0 ████████ 2,000 │2,000│"),
        ((3,) * 99 + (100_000,), 512, "    0   █ │512│▁ 100,000"),
        ((0, 0), 5, "    0 █ 0 │5│"),
    ],
)
def test_the_bars_show_what_the_length_cuts(lengths, limit, line):
    assert [shown.plain for shown in length_line(lengths, limit, 30)] == [line]
    assert not length_line(lengths, limit, 12)
