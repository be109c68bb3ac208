"""The data step over real files: rows that cannot be used yet, files that break, vanish, or are mended while it is open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trainwiz.core.config.request import PlanRequest
from trainwiz.tui.screens.plan_fields import FIELD_BY_ID, applies, parse_field, shown_value
from trainwiz.tui.screens.plan_offers import browse_data, found_column
from trainwiz.tui.screens.plan_reader import PlanReader
from trainwiz.tui.screens.plan_state import PlanState, with_values
from trainwiz.tui.screens.plan_views import field_view
from trainwiz.tui.theme import UNICODE_MARKS
from trainwiz.tui.widgets.facts import data_facts, findings_of

from tests.tui.wizard_parts import MACHINE


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path


def rows(path: Path, *values: object) -> str:
    path.write_text("\n".join(json.dumps(value) for value in values))
    return path.name


def asked(name: str, **values: object) -> PlanRequest:
    return PlanRequest(
        overrides={"data.sources.0.name": name, **{key.replace("__", "."): value for key, value in values.items()}}
    )


def state_of(reader: PlanReader, request: PlanRequest) -> PlanState:
    *_, reading = reader.read(request, lambda: False)
    return PlanState(request, reading=reading, updating=False)


def said(state: PlanState) -> str:
    return " ".join(line.plain.strip() for line in data_facts(state, 400, UNICODE_MARKS))


PAIRS = [{"prompt": "a", "response": ""}, {"prompt": "b", "response": "c"}, {"prompt": "d", "response": "e"}]


def test_a_file_in_a_folder_is_no_data_set_of_the_hub_and_its_rows_are_not_denied(here: Path):
    (here / "mine").mkdir()
    rows(here / "mine" / "a.jsonl", *({"first": "MKV", "second": "MSS"} for _ in range(9)))
    state = state_of(PlanReader(MACHINE), asked("mine/a.jsonl"))
    assert state.plan is not None and state.reading.data is None
    assert not applies(FIELD_BY_ID["split"], state.plan) and not applies(FIELD_BY_ID["subset"], state.plan)
    assert "No rows" not in said(state) and "The rows can't be used yet." in said(state)
    hub = state_of(PlanReader(MACHINE), asked("someone/a-set"))
    assert hub.plan is not None and applies(FIELD_BY_ID["split"], hub.plan)
    assert "No rows could be read." in said(hub)
    assert "someone/a-set" in field_view(hub, FIELD_BY_ID["data"], UNICODE_MARKS).invalid


def test_columns_are_found_or_said_to_be_missing_once_and_can_be_chosen(here: Path):
    column, reader = FIELD_BY_ID["column"], PlanReader(MACHINE)
    state = state_of(reader, asked(rows(here / "found.jsonl", {"note": "x", "sequence": "MKV"})))
    assert field_view(state, column, UNICODE_MARKS).value == "sequence"
    assert found_column(state, FIELD_BY_ID["target_column"]) == "", "the letters of a protein have no target"
    name = rows(here / "a.jsonl", *({"first": "MKV", "second": "MSS"} for _ in range(9)))
    state = state_of(reader, asked(name))
    assert state.reading.data is None and state.reading.glance is not None
    assert [column.name for column in state.reading.glance.columns] == ["first", "second"]
    views = [field_view(state, FIELD_BY_ID[field], UNICODE_MARKS) for field in ("data", "column")]
    words = " ".join((*(view.invalid for view in views), said(state)))
    assert views[1].value == "not found" and words.count("does not indicate which column") == 1
    assert "“Text column”" in words and "text_column" not in words
    mended = state_of(reader, with_values(state.request, column, {"data.sources.0.text_column": "second"}))
    assert mended.reading.data is not None and mended.reading.glance is not None
    assert mended.reading.glance.text == 1


def test_rows_with_an_empty_target_are_counted_and_named_by_their_line(here: Path):
    name = rows(here / "a.jsonl", *PAIRS)
    state = state_of(PlanReader(MACHINE), asked(name, model__name="t5-chat-tiny", task="seq2seq"))
    text = said(state)
    assert "1 empty row of a.jsonl is skipped" in text and "a.jsonl, line 1" in text
    assert "1 training row, counted; 1 held out." in text
    assert state.reading.glance is not None and state.reading.glance.rows[0] == ("a", "")


def test_a_broken_line_is_named_and_mending_it_is_seen(here: Path):
    path = here / "a.jsonl"
    path.write_text('{"text": "MKV"}\n{broken\n')
    reader = PlanReader(MACHINE)
    broken = state_of(reader, asked("a.jsonl"))
    problem = field_view(broken, FIELD_BY_ID["data"], UNICODE_MARKS).invalid
    assert "a.jsonl, line 2 is not a JSON object" in problem
    assert findings_of(broken) == (), "the field says it already"
    assert "No rows could be read." in said(broken)
    path.write_text('{"text": "MKV"}\n{"text": "MSSQ"}\n')
    mended = state_of(reader, asked("a.jsonl"))
    assert mended.reading.data is not None and mended.reading.data.texts == 2


def test_a_file_that_vanishes_is_a_sentence(here: Path):
    name = rows(here / "a.jsonl", {"text": "MKV"})
    reader = PlanReader(MACHINE)
    assert state_of(reader, asked(name)).reading.data is not None
    (here / name).unlink()
    gone = state_of(reader, asked(name))
    assert "no data at 'a.jsonl'" in field_view(gone, FIELD_BY_ID["data"], UNICODE_MARKS).invalid
    assert gone.reading.glance is None and gone.plan is not None


def test_held_out_data_of_its_own_is_one_source(here: Path):
    spec = FIELD_BY_ID["validation_data"]
    train, held = rows(here / "a.jsonl", *[{"text": "MKV"}] * 9), rows(here / "b.jsonl", *[{"text": "MSS"}] * 4)
    values = parse_field(spec, held, None)
    assert values == {"data.validation_sources": [{"name": "b.jsonl"}]}
    state = state_of(PlanReader(MACHINE), with_values(asked(train), spec, values))
    assert state.plan is not None and shown_value(spec, state.plan.config) == "b.jsonl"
    assert "9 training rows, counted; 4 held out." in said(state)


def test_the_picker_opens_beside_the_present_file(here: Path):
    (here / "sub").mkdir()
    rows(here / "sub" / "a.jsonl", {"text": "MKV"})
    state = state_of(PlanReader(MACHINE), asked("sub/a.jsonl"))
    picker = browse_data(state)
    assert (picker._folder, picker._started_at) == (here / "sub", "a.jsonl")
    sample = browse_data(state_of(PlanReader(MACHINE), asked("sample-proteins")))
    assert sample._folder == here
