"""Rows that are longer than the input: a note, or a warning with a longer input where most of them are."""

from __future__ import annotations

import pytest
from trainwiz.core.data.summary import DataSummary

from tests.core.plan.machines import codes, config, finding, machine, plan

CSV = [{"name": "rows.csv", "text_column": "text"}]


def cut_at(length: int, *lengths: int, model: str = "esm2-8m", **values: object):  # type: ignore[no-untyped-def]
    data = DataSummary(rows=1000, rows_exact=True, lengths=lengths)
    return plan(machine(), config(model, batch__sequence_length=length, batch__target_samples=64, **values), data)


def test_few_cut_rows_are_a_note() -> None:
    made = cut_at(512, *[300] * 9, 600)
    assert (finding(made, "rows_cut").severity, finding(made, "rows_cut").remedies) == ("note", ())


def test_mostly_cut_rows_offer_the_round_length_that_cuts_hardly_one() -> None:
    found = finding(cut_at(128, *[300] * 9, 600), "rows_cut")
    assert found.severity == "warning"
    assert [one.changes for one in found.remedies] == [{"batch.sequence_length": 1024}]
    assert "0 %" in found.remedies[0].text


@pytest.mark.parametrize(("length", "offered"), [(512, [{"batch.sequence_length": 1024}]), (1024, [])])
def test_no_more_is_offered_than_the_model_has_positions(length: int, offered: list[dict[str, int]]) -> None:
    """GPT-2 has a table of 1,024 positions."""
    text = {"task": "causal-lm", "data__sources": CSV, "data__concatenate": False}
    made = cut_at(length, *[4000] * 10, model="gpt2-medium", **text)
    assert [one.changes for one in finding(made, "rows_cut").remedies] == offered
    assert "too_long" not in codes(made)
