"""The step Model: catalogue with search, hub ids, folders, config.json; what is found is shown, what is wrong is a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.pilot import Pilot
from trainwiz.core.catalog.models import load_models
from trainwiz.core.config.request import PlanRequest
from trainwiz.core.hardware.machine import Machine
from trainwiz.core.plan.gather import probe_here
from trainwiz.tui.app import TrainwizApp
from trainwiz.tui.screens.plan import PlanScreen
from trainwiz.tui.screens.plan_fields import FIELD_BY_ID
from trainwiz.tui.screens.plan_reader import PlanReader
from trainwiz.tui.screens.plan_state import PlanState, start_obstacle, with_values
from trainwiz.tui.screens.plan_views import field_view, offers
from trainwiz.tui.theme import UNICODE_MARKS
from trainwiz.tui.widgets.chooser import Chooser, matching
from trainwiz.tui.widgets.facts import fact_lines
from trainwiz.tui.widgets.field_row import FieldRow
from trainwiz.tui.widgets.file_picker import FilePicker

from tests.each import each
from tests.tui.wizard_keys import shown, shown_in, to_field, type_into, until
from tests.tui.wizard_parts import settled

DEMO = PlanRequest(profile="cpu-demo")
MODEL_FIELD = FIELD_BY_ID["model"]
ARCHITECTURE = {**load_models()["gpt2-tiny"].architecture}


@pytest.fixture(scope="module")
def machine() -> Machine:
    return probe_here(PlanRequest())


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)


def state_of(machine: Machine, model: str, request: PlanRequest = DEMO) -> PlanState:
    request = with_values(request, MODEL_FIELD, {"model.name": model})
    *_, reading = PlanReader(machine).read(request, lambda: False)
    return PlanState(request, step=1, reading=reading, updating=False)


def facts(state: PlanState) -> str:
    return " ".join(line.plain.strip() for line in fact_lines(state, 400, UNICODE_MARKS))


async def choose(pilot: Pilot, text: str) -> None:
    """As a user would: open the list, type, enter."""
    await to_field(pilot, "model")
    await type_into(pilot, text)
    assert isinstance(pilot.app.screen, Chooser)
    await pilot.press("enter")
    await settled(pilot)
    await pilot.pause()


@each(
    ("typed", "model", "task"),
    [
        ("esm2 650", "esm2-650m", "masked-lm"),
        ("355 million", "gpt2-medium", "causal-lm"),
        ("nllb 600", "nllb-600m", "seq2seq"),
        ("qwen 1.5", "qwen2.5-1.5b", "causal-lm"),
    ],
)
def test_the_catalogue_is_searched_by_name_family_and_size_and_the_task_follows(machine, typed, model, task) -> None:
    *_, first = PlanReader(machine).read(DEMO, lambda: False)
    found = matching(offers(PlanState(DEMO, reading=first), MODEL_FIELD), typed)
    assert found[0].value == model
    state = state_of(machine, model)
    assert (state.plan.config.model.name, state.plan.task) == (model, task)
    words, spec = facts(state), load_models()[model]
    assert f"on the hub as {spec.hub_id}" in words or "asks for its licence" in words
    assert spec.license is not None and f"Licence {spec.license}" in words.replace("  ", " ")
    assert "in half precision" in words and " layers" in words
    assert ("not for commercial use" in words) == (model == "nllb-600m")


async def test_a_folder_with_weights_tells_their_size_and_licence_and_browsing_finds_another(tmp_path: Path) -> None:
    for folder in (tmp_path / "mine", tmp_path / "models" / "small"):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(ARCHITECTURE))
    (tmp_path / "mine" / "model.safetensors").write_bytes(b"\0" * 3_000_000)
    (tmp_path / "mine" / "README.md").write_text("---\nlicense: bigscience-openrail-m\n---\n")
    app = TrainwizApp(lambda: PlanScreen(DEMO), ascii_only=False)
    async with app.run_test(size=(140, 60)) as pilot:
        await settled(pilot)
        await choose(pilot, "mine")
        assert app.screen.state.plan.config.model.name == "mine"
        words = shown_in(pilot)
        assert "Size 3 MiB on disk" in words and "on this machine: mine" in words
        assert "Licence bigscience-openrail-m" in words and app.screen.state.plan.task == "causal-lm"
        await to_field(pilot, "model")
        await pilot.press("down", "space")
        await pilot.pause()
        assert isinstance(app.screen, FilePicker)
        for entry in ("models", "small", "config.json"):
            await until(pilot, lambda entry=entry: entry in shown(app))
            await pilot.press(*entry.removesuffix(".json"), "enter")
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
        ("list.json", "[1, 2]", "holds no JSON object"),
        ("odd.json", '{"hidden_size": 4}', "names no `model_type`"),
        ("vision.json", '{"model_type": "vit", "architectures": ["ViTForImageClassification"]}', "cannot train"),
        ("binary.json", "\udcff\udcfe", "is not UTF-8 text"),
        ("gone.json", None, "does not exist"),
        ("nobody/[red]nothing", None, "There is no model"),
        ("nobody/nothing", None, "not in the local Hugging Face cache"),
        ("no such model", None, "There is no model"),
    ],
)
def test_what_cannot_be_used_is_a_sentence_beside_the_field(machine, tmp_path: Path, name, text, said) -> None:
    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    state = state_of(machine, str(tmp_path / name) if text is not None else name)
    assert said in field_view(state, MODEL_FIELD, UNICODE_MARKS).invalid
    assert start_obstacle(state)


async def test_a_wrong_model_is_taken_back_code_of_its_own_is_not_run_and_a_hostile_name_stays_text(
    tmp_path: Path,
) -> None:
    config = {**ARCHITECTURE, "auto_map": {"AutoModelForCausalLM": "evil.Model"}}
    (tmp_path / "remote.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text("raise SystemExit('run!')")
    hostile = "[red]m[b]\x1b[31m.json"
    (tmp_path / hostile).write_text(json.dumps(ARCHITECTURE))
    app = TrainwizApp(lambda: PlanScreen(DEMO), ascii_only=False)
    async with app.run_test(size=(140, 60)) as pilot:
        await settled(pilot)
        await choose(pilot, "remote.json")
        finding = next(one for one in app.screen.state.plan.findings if one.code == "remote_code")
        assert "Python code of its own" in finding.message
        assert "comes with Python code of its own" in shown_in(pilot, "#panel")
        row = await to_field(pilot, "model")
        app.screen._set(row.spec, hostile)
        await settled(pilot)
        assert "[red]m[b]" in shown_in(pilot) and "\x1b" not in shown(app)
        app.screen._set(row.spec, "nobody/[red]nothing")
        await until(pilot, lambda: "There is no model" in row.view.invalid)
        assert start_obstacle(app.screen.state)
        await pilot.press("r")
        await settled(pilot)
        assert row.view.value == "esm2-tiny" and row.view.invalid == "" and not start_obstacle(app.screen.state)
