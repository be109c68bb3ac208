"""The step Model: catalogue with search, hub ids, folders, config.json; what is found is shown, what is wrong is a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config.request import PlanRequest
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_fields import FIELD_BY_ID
from trainwiz.tui.screens.plan_offers import model_offers
from trainwiz.tui.screens.plan_reader import PlanReader
from trainwiz.tui.screens.plan_state import PlanState, start_obstacle, with_values
from trainwiz.tui.screens.plan_views import field_view
from trainwiz.tui.theme import UNICODE_MARKS
from trainwiz.tui.widgets.chooser import matching
from trainwiz.tui.widgets.facts import model_lines
from trainwiz.tui.widgets.field_row import FieldRow, row_lines
from trainwiz.tui.widgets.file_picker import FilePicker
from trainwiz.tui.widgets.plan_panel import finding_lines

from tests.each import each
from tests.tui.wizard_keys import shown, to_field, until
from tests.tui.wizard_parts import MACHINE, plain, settled

ARCHITECTURE = {**load_models()["gpt2-tiny"].architecture}
DEMO = PlanRequest(profile="cpu-demo")
MODEL = FIELD_BY_ID["model"]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def reader() -> PlanReader:
    return PlanReader(MACHINE)


def chosen(reader: PlanReader, name: str) -> PlanState:
    """As a user would have it: the value of the field."""
    request = with_values(DEMO, MODEL, {"model.name": name})
    *_, reading = reader.read(request, lambda: False)
    return PlanState(request, reading=reading, updating=False)


def facts(state: PlanState) -> str:
    assert state.plan is not None
    lines = model_lines(state.plan.model, state.reading.model, state.reading.model_facts, 200, UNICODE_MARKS)
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
    assert "in half precision" in words and " layers" in words
    assert ("not for commercial use" in words) == (model == "nllb-600m")


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
    app = TrainwizApp(lambda: PlanScreen(DEMO), ascii_only=False)
    async with app.run_test(size=(140, 60)) as pilot:
        await settled(pilot)
        await to_field(pilot, "model")
        await pilot.press("down", "space")
        await pilot.pause()
        picker = app.screen
        assert isinstance(picker, FilePicker)
        await until(pilot, lambda: "models" in shown(app))
        await pilot.press(*"models", "enter")
        await until(pilot, lambda: "small" in shown(app))
        await pilot.press(*"small", "enter")
        await until(pilot, lambda: "config.json" in shown(app))
        await pilot.press(*"config", "enter")
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
        ("list.json", "[1, 2]", "does not contain a JSON object"),
        ("odd.json", '{"hidden_size": 4}', "has no `model_type`"),
        ("vision.json", '{"model_type": "vit", "architectures": ["ViTForImageClassification"]}', "cannot train"),
        ("binary.json", "\udcff\udcfe", "is not UTF-8 text"),
        ("gone.json", None, "does not exist"),
        ("nobody/[red]nothing", None, "Unknown model"),
        ("nobody/nothing", None, "not in the local Hugging Face cache"),
    ],
)
def test_what_cannot_be_used_is_a_sentence(name, text, said, tmp_path, monkeypatch, reader) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    state = chosen(reader, name)
    assert said in field_view(state, MODEL, UNICODE_MARKS).invalid and start_obstacle(state)


def test_code_of_the_models_own_is_not_run(tmp_path: Path, reader: PlanReader) -> None:
    config = {**ARCHITECTURE, "auto_map": {"AutoModelForCausalLM": "evil.Model"}}
    (tmp_path / "remote.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text("raise SystemExit('run!')")
    state = chosen(reader, "remote.json")
    assert state.plan is not None
    (finding,) = (one for one in state.plan.findings if one.code == "remote_code")
    assert "includes custom Python code, which is not run" in plain(finding_lines(finding, 200, UNICODE_MARKS))


def test_a_hostile_name_stays_text(tmp_path: Path, reader: PlanReader) -> None:
    hostile = "[red]m[b]\x1b[31m.json"
    (tmp_path / hostile).write_text(json.dumps(ARCHITECTURE))
    state = chosen(reader, hostile)
    lines = row_lines(
        field_view(state, MODEL, UNICODE_MARKS), 80, UNICODE_MARKS, focused=True, roomy=True, editing=False
    )
    assert "[red]m[b]" in plain(lines) and "\x1b" not in plain(lines) + facts(state)
