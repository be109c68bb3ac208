"""The steps Model and Data over real files: what is found is shown, what is wrong or vanishes is a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config.request import PlanRequest
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_command import help_parts
from trainwiz.tui.screens.plan_fields import FIELD_BY_ID, REVIEW, applies, parse_field, shown_value
from trainwiz.tui.screens.plan_reader import PlanReader
from trainwiz.tui.screens.plan_state import PlanState, start_obstacle, with_values
from trainwiz.tui.screens.plan_views import field_view, found_column, model_offers
from trainwiz.tui.widgets.chooser import matching
from trainwiz.tui.widgets.facts import data_facts, findings_of, model_lines
from trainwiz.tui.widgets.field_row import FieldRow, row_lines
from trainwiz.tui.widgets.file_picker import FilePicker
from trainwiz.tui.widgets.frame import rail_lines, wrong_steps

from tests.each import each
from tests.tui.wizard_parts import MACHINE, go, plain, real, settled, to_field, until

pytestmark = pytest.mark.usefixtures("here")
ARCHITECTURE = {**load_models()["gpt2-tiny"].architecture}
DEMO = PlanRequest(profile="cpu-demo")
MODEL = FIELD_BY_ID["model"]


@pytest.fixture(scope="module")
def reader() -> PlanReader:
    return PlanReader(MACHINE)


def chosen(reader: PlanReader, name: str) -> PlanState:
    """As a user would have it: the value of the field."""
    return state_of(reader, with_values(DEMO, MODEL, {"model.name": name}))


def facts(state: PlanState) -> str:
    assert state.plan is not None
    lines = model_lines(state.plan.model, state.reading.model, state.reading.model_facts, 200)
    return " ".join(plain(lines).split())


@each(
    ("typed", "model", "task"),
    [
        ("esm2 650", "esm2-650m", "masked-lm"),
        ("355 million", "gpt2-medium", "causal-lm"),
        ("nllb 600", "nllb-600m", "seq2seq"),
    ],
)
def test_the_catalogue_is_searched_by_name_family_and_size_and_the_task_follows(typed, model, task, reader, tmp_path):
    assert matching(model_offers(tmp_path), typed)[0].value == model
    state = chosen(reader, model)
    assert state.plan is not None and (state.plan.config.model.name, state.plan.task) == (model, task)
    words, spec = facts(state), load_models()[model]
    assert f"on the Hub as {spec.hub_id}" in words or "accept the license of" in words
    assert spec.license is not None and f"License {spec.license}" in words
    assert "in half precision" in words


def test_a_folder_with_weights_tells_their_size_and_licence(tmp_path: Path, reader: PlanReader) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(ARCHITECTURE))
    (folder / "model.safetensors").write_bytes(b"\0" * 3_000_000)
    (folder / "README.md").write_text("---\nlicense: bigscience-openrail-m\n---\n")
    state = chosen(reader, "mine")
    words = facts(state)
    assert "Size 3 MiB on disk" in words and "on this machine: mine" in words
    assert "License bigscience-openrail-m" in words and state.plan is not None and state.plan.task == "causal-lm"


async def test_browsing_takes_the_folder_of_a_config_file_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "small"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(ARCHITECTURE))
    async with real(DEMO) as (app, pilot):
        await to_field(pilot, "model")
        await go(pilot, "down", "space")
        assert isinstance(app.screen, FilePicker) and app.screen.folder == tmp_path
        for _ in range(3):
            await pilot.press("down", "enter")
            await pilot.pause(0.2)
        await until(pilot, lambda: isinstance(app.screen, PlanScreen))
        await settled(pilot)
        # Not the bare config.json: weights lie beside it.
        assert app.screen.state.plan.config.model.name == "models/small"
        # Enter would open the window again.
        assert isinstance(app.focused, FieldRow) and app.focused.spec.id != "model"
        assert app.screen.state.plan.model.parameters == app.screen.state.plan.model.trainable_parameters > 100_000


@each(
    ("name", "text", "said"),
    [
        ("cut.json", json.dumps(ARCHITECTURE)[:60], "is not valid JSON"),
        ("vision.json", '{"model_type": "vit", "architectures": ["ViTForImageClassification"]}', "cannot train"),
        ("gone.json", None, "does not exist"),
        ("nobody/[red]nothing\x1b[31m", None, "Unknown model"),
    ],
)
def test_what_cannot_be_used_is_a_sentence(name, text, said, reader) -> None:
    if text is not None:
        Path(name).write_text(text)
    state = chosen(reader, name)
    view = field_view(state, MODEL)
    assert said in view.invalid and start_obstacle(state)
    assert "\x1b" not in plain(row_lines(view, 80, focused=True, roomy=True, editing=False))


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
    return " ".join(line.plain.strip() for line in data_facts(state, 400))


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
    assert "someone/a-set" in field_view(hub, FIELD_BY_ID["data"]).invalid


def test_columns_are_found_or_said_to_be_missing_once_and_can_be_chosen(here: Path):
    column, reader = FIELD_BY_ID["column"], PlanReader(MACHINE)
    state = state_of(reader, asked(rows(here / "found.jsonl", {"note": "x", "sequence": "MKV"})))
    assert field_view(state, column).value == "sequence"
    assert found_column(state, FIELD_BY_ID["target_column"]) == "", "the letters of a protein have no target"
    name = rows(here / "a.jsonl", *({"first": "MKV", "second": "MSS"} for _ in range(9)))
    state = state_of(reader, asked(name))
    assert state.reading.data is None and state.reading.glance is not None
    assert [column.name for column in state.reading.glance.columns] == ["first", "second"]
    views = [field_view(state, FIELD_BY_ID[field]) for field in ("data", "column")]
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


def test_a_file_that_is_broken_mended_and_gone_is_seen_as_it_is(here: Path):
    path = here / "a.jsonl"
    path.write_text('{"text": "MKV"}\n{broken\n')
    reader = PlanReader(MACHINE)
    broken = state_of(reader, asked("a.jsonl"))
    problem = field_view(broken, FIELD_BY_ID["data"]).invalid
    assert "a.jsonl, line 2 is not a JSON object" in problem
    assert findings_of(broken) == (), "the field says it already"
    assert help_parts(broken, FIELD_BY_ID["data"], ())[1][0] == ("Problem", problem)
    assert "✗ Data" in plain(rail_lines(replace(broken, reached=REVIEW), wrong_steps(broken), 18))
    assert "No rows could be read." in said(broken)
    path.write_text('{"text": "MKV"}\n{"text": "MSSQ"}\n')
    mended = state_of(reader, asked("a.jsonl"))
    assert mended.reading.data is not None and mended.reading.data.texts == 2
    path.unlink()
    gone = state_of(reader, asked("a.jsonl"))
    assert "no data at 'a.jsonl'" in field_view(gone, FIELD_BY_ID["data"]).invalid
    assert gone.reading.glance is None and gone.plan is not None


def test_held_out_data_of_its_own_is_one_source(here: Path):
    spec = FIELD_BY_ID["validation_data"]
    train, held = rows(here / "a.jsonl", *[{"text": "MKV"}] * 9), rows(here / "b.jsonl", *[{"text": "MSS"}] * 4)
    values = parse_field(spec, held, None)
    assert values == {"data.validation_sources": [{"name": "b.jsonl"}]}
    state = state_of(PlanReader(MACHINE), with_values(asked(train), spec, values))
    assert state.plan is not None and shown_value(spec, state.plan.config) == "b.jsonl"
    assert "9 training rows, counted; 4 held out." in said(state)
